"""PyTorch's public names: records them, and checks that each can be imported here.

    python bindings/python/public_names.py            # the check: every name of tests/public_names.txt can be imported under install(); its counts
    python bindings/python/public_names.py --compare  # with a Python that has torch: the list is today's PyTorch's, and the check
    python bindings/python/public_names.py --record   # with a Python that has torch: writes the list, the table of absent names and that of names elsewhere

A public module has no part that begins with an underscore. Its public names are those of ``__all__``; without one, the names without a leading underscore
that PyTorch itself defines. A name that is absent here can be imported and raises when it is used (``rushlight/_public.py``). A name that PyTorch has in several
modules and this package in another one of them is that module's; so are classes and functions that a public module there imports from another.
"""

import importlib
import importlib.util
import inspect
import json
import pathlib
import pkgutil
import subprocess
import sys
import types
import warnings

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "tests" / "public_names.txt"
HOMES = HERE / "python" / "rushlight" / "_public_homes.txt"
TABLE = HERE / "python" / "rushlight" / "_public_names.txt"
ALIASES = HERE / "python" / "rushlight" / "_public_aliases.txt"
#: Modules that are nobody's interface: examples, tests, and copies of other projects.
LEFT_OUT = ("torch.testing._internal", "torch.utils.benchmark.examples", "torch.distributed.benchmarks", "torch.utils.model_dump")


def theirs():
    """PyTorch's public names by module."""
    warnings.simplefilter("ignore")
    import torch

    names = ["torch"]
    for found in pkgutil.walk_packages(torch.__path__, "torch.", onerror=lambda name: None):
        parts = found.name.split(".")
        if not any(p.startswith("_") for p in parts) and not found.name.startswith(LEFT_OUT) and "test" not in parts[-1]:
            names.append(found.name)
    listed = {}
    for name in names:
        try:
            module = importlib.import_module(name)
        except BaseException:  # A module that needs a library that is not installed.
            continue
        public = getattr(module, "__all__", None)
        if public is None:
            public = [
                key for key, value in vars(module).items()
                if not key.startswith("_") and not inspect.ismodule(value) and (getattr(value, "__module__", None) or "").startswith("torch")
            ]
        listed[name] = sorted({key for key in public if isinstance(key, str)})
    return listed


def further(listed):
    """Classes and functions of PyTorch's that its public modules have besides their public names, as imports of their own."""
    found = {}
    for module, public in listed.items():
        names = {
            key for key, value in vars(sys.modules[module]).items()
            if not key.startswith("_") and isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
            and (getattr(value, "__module__", None) or "").startswith("torch")
        }
        found[module] = sorted(names - set(public))
    return {module: names for module, names in found.items() if names}


def read(path):
    """A list of names by module."""
    lines = (line.partition(":") for line in path.read_text().splitlines() if not line.startswith("#"))
    return {module: names.split() for module, _, names in lines}


def write(path, names):
    lines = [f"{module}: {' '.join(names[module])}".rstrip() for module in sorted(names)]
    path.write_text("\n".join(["# Written by bindings/python/public_names.py.", *lines, ""]))


#: Run in a process of its own: reads names by module, prints those whose import fails.
PROGRAM = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
import rushlight
from rushlight import _public
if sys.argv[1] == "bare":
    _public.table = _public.aliases = lambda: {}
rushlight.install()
listed, failed, modules, absent, silent = json.load(sys.stdin), {}, [], {}, {}
for module, names in listed.items():
    try:
        importlib.import_module(module)
    except ImportError as error:
        modules.append(module)
        continue
    for name in names:
        found = {}
        try:
            exec(f"from {module} import {name} as found", found)
        except ImportError:
            failed.setdefault(module, []).append(name)
            continue
        if getattr(found["found"], "_absent", False) is not True:
            continue
        absent.setdefault(module, []).append(name)
        try:
            answer = found["found"]()
            if name != "is_available" or answer:
                silent.setdefault(module, []).append(name)
        except NotImplementedError as error:
            if len(str(error).split(":", 1)[-1]) < 10:
                silent.setdefault(module, []).append(name)
plain = sorted(m for m in sys.modules if m.startswith("torch.") and not hasattr(sys.modules[m], "__path__"))
print(json.dumps({"modules": modules, "failed": failed, "plain": plain, "absent": absent, "silent": silent}))
"""


#: Run in a process of its own: reads where PyTorch defines public names, prints which modules here define them
#: elsewhere, if the name is there, too.
PLACES = """
import importlib, json, sys, types, warnings
warnings.simplefilter("ignore")
import rushlight
from rushlight import _public
_public.homes = lambda: {}
rushlight.install()
found, homes = {}, {}
for path, home in json.load(sys.stdin).items():
    module, _, name = path.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        continue
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) and getattr(value, "_absent", False) is not True:
        _, there, modules = homes.setdefault(id(value), (value, set(), set()))
        there.add(home)
        modules.add(module)
for value, there, modules in homes.values():
    here = value.__module__
    # What is one object here and several there keeps its module, unless that is a private one.
    if here in there or not here.startswith("torch") or len(there) > 1 and not any(part.startswith("_") for part in here.split(".")):
        continue
    for home in [*sorted(there, key=len), *sorted(modules, key=len)]:
        try:
            if getattr(importlib.import_module(home), value.__qualname__.rpartition(".")[2]) is not value:
                continue
            defined = vars(importlib.import_module(here))
        except (ImportError, AttributeError):
            continue
        for key in [key for key, other in defined.items() if other is value]:
            found.setdefault(f"{here} {home}", set()).add(key)
        break
print(json.dumps({place: sorted(names) for place, names in found.items()}))
"""


#: Run in a process of its own: reads the other paths that PyTorch has of absent names, prints the first that is here.
OTHERS = """
import importlib, json, sys, types, warnings
warnings.simplefilter("ignore")
import rushlight
from rushlight import _public
_public.table = _public.aliases = lambda: {}
rushlight.install()
found = {}
for path, others in json.load(sys.stdin).items():
    for other in others:
        module, _, name = other.rpartition(".")
        try:
            value = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
        if getattr(value, "_absent", False) is not True and not isinstance(value, types.ModuleType):
            found[path] = other
            break
print(json.dumps(found))
"""


def their_others(absent):
    """The paths that PyTorch has of each absent class and function besides that one: public and short ones first."""
    paths = {}
    for module in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        for name, value in list(vars(sys.modules[module]).items()):
            if callable(value):
                paths.setdefault(id(value), []).append(f"{module}.{name}")
    found = {}
    for path in absent:
        module, _, name = path.rpartition(".")
        value = getattr(sys.modules.get(module), name, None)
        # Packages that are not this one's may be missing.
        others = [other for other in paths.get(id(value), ()) if other not in absent and "._vendor." not in other]
        if callable(value) and others:
            found[path] = sorted(others, key=lambda other: (any(part.startswith("_") for part in other.split(".")), len(other), other))
    return found


def record_aliases(absent):
    others = their_others({f"{module}.{name}" for module in absent for name in absent[module]})
    found = {}
    for path, other in ask(OTHERS, others).items():
        (module, _, name), (home, _, there) = path.rpartition("."), other.rpartition(".")
        found.setdefault(f"{module} {home}", []).append(name if name == there else f"{name}={there}")
    write(ALIASES, {place: sorted(names) for place, names in found.items()})
    return sum(map(len, found.values()))


def their_homes(listed):
    """The module that PyTorch says each public function and class is from."""
    import torch  # noqa: F401

    found = {}
    for module, names in listed.items():
        for name in names:
            value = getattr(sys.modules.get(module), name, None)
            home = getattr(value, "__module__", None)
            if isinstance(home, str) and callable(value) and home.startswith("torch"):
                found[f"{module}.{name}"] = home
    return found


def record_homes(listed):
    write(HOMES, ask(PLACES, their_homes(listed)))


def package():
    """The folder of the front: the installed one, or the tree's."""
    found = importlib.util.find_spec("rushlight")
    return str(pathlib.Path(found.origin).parent.parent) if found and found.origin else str(HERE / "python")


def ask(program, names, *args):
    """What a program says of names, under this package's ``torch``."""
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {package()!r})\n{program}", *args], input=json.dumps(names), capture_output=True, text=True,
    )
    if run.returncode:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def imports(names, bare=False):
    """What the names are here: modules and names that cannot be imported, modules that are no packages, names that are absent, and those of them that do not
    say so when they are used."""
    return ask(PROGRAM, names, "bare" if bare else "whole")


def main():
    if "--record" in sys.argv:
        listed = theirs()
        write(LIST, listed)
        found = imports(listed, bare=True)
        modules, failed = found["modules"], found["failed"]
        absent = {**{name: listed[name] for name in modules}, **failed}
        write(TABLE, absent)
        more = further(listed)
        lacking = imports(more, bare=True)
        more = {**{name: more[name] for name in lacking["modules"]}, **lacking["failed"]}
        aliases = record_aliases({name: {*absent.get(name, ()), *more.get(name, ())} for name in {*absent, *more}})
        record_homes(listed)
        parents = sorted({name.rpartition(".")[0] for name in modules} & set(found["plain"]))
        print(f"{len(listed)} modules, {sum(map(len, listed.values()))} names; absent: {len(modules)} modules, {sum(map(len, failed.values()))} names of others; {aliases} names are there in other modules")
        print("packages there, files here:", *parents)
        return 0
    listed, changed = read(LIST), 0
    if "--compare" in sys.argv:
        # Modules that need a library are in the list only if it was installed.
        today = {module: names for module, names in theirs().items() if module in listed}
        gone, new = ({f"{m}.{n}" for m in a for n in a[m]} - {f"{m}.{n}" for m in b for n in b[m]} for a, b in ((listed, today), (today, listed)))
        changed = len(gone) + len(new)
        print(f"PyTorch's names against the list: {len(new)} new, {len(gone)} gone", *sorted(new | gone)[:40], sep="\n  ")
    found = imports(listed)
    total, absent, failed, silent = (sum(map(len, names.values())) for names in (listed, found["absent"], found["failed"], found["silent"]))
    print(f"{len(listed)} modules, {total} names: {total - absent - failed} exist, {absent} say on use what they lack")
    print(f"{len(found['modules'])} modules and {failed} names cannot be imported; {silent} absent names do not say so on use")
    for name in found["modules"]:
        print(f"  {name}")
    for names in (found["failed"], found["silent"]):
        for module in names:
            print(f"  {module}: {' '.join(names[module])}")
    areas = {}
    for module in listed:
        area = areas.setdefault(".".join(module.split(".")[:2]), [0, 0])
        area[0] += len(listed[module])
        area[1] += len(found["absent"].get(module, ()))
    print(f"{'area':<28} {'names':>6} {'exist':>6}")
    for area, (names, lacking) in sorted(areas.items()):
        if names:
            print(f"{area:<28} {names:>6} {names - lacking:>6}")
    return 1 if changed or found["modules"] or failed or silent else 0


if __name__ == "__main__":
    sys.exit(main())
