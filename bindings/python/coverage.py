"""Compares PyTorch's public names with ours and writes docs/python-coverage.md.

    python bindings/python/coverage.py            # with a Python that has torch; rushlight from the tree or installed
    python bindings/python/coverage.py --missing  # lists what is missing instead

A name counts if it exists here. What PyTorch documents as public is what counts there: functions of a module without a leading underscore that
PyTorch itself defines.
"""

import importlib
import inspect
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Title, module, what to count, the share to reach.
AREAS = [
    ("torch functions", "torch", "functions", 60),
    ("Tensor methods", "torch.Tensor", "methods", 65),
    ("torch.nn", "torch.nn", "classes", 85),
    ("torch.nn.functional", "torch.nn.functional", "functions", 75),
    ("torch.nn.init", "torch.nn.init", "functions", 90),
    ("torch.nn.utils", "torch.nn.utils", "functions", 60),
    ("torch.optim", "torch.optim", "classes", 100),
    ("torch.optim.lr_scheduler", "torch.optim.lr_scheduler", "classes", 100),
    ("torch.utils.data", "torch.utils.data", "all", 90),
    ("torch.linalg", "torch.linalg", "functions", 98),
    ("torch.special", "torch.special", "functions", 98),
    ("torch.autograd", "torch.autograd", "all", 60),
]


def public(module, what):
    """Names of an area, as PyTorch has them."""
    owner = importlib.import_module("torch").Tensor if module == "torch.Tensor" else importlib.import_module(module)
    if what == "methods":
        inherited = set(dir(object))
        names = {n for n in dir(owner) if not n.startswith("_") and n not in inherited}
        return sorted(n for n in names if callable(getattr(owner, n, None)) or isinstance(inspect.getattr_static(owner, n), property))
    documented = getattr(owner, "__all__", None)
    names = documented if documented and what != "functions" else [n for n in dir(owner) if not n.startswith("_")]
    found = []
    for name in names:
        value = getattr(owner, name, None)
        home = getattr(value, "__module__", None) or ""
        if name.startswith("_") or inspect.ismodule(value) or not callable(value):
            continue
        if home and not home.startswith("torch") and home != "builtins":
            continue
        if what == "functions" and inspect.isclass(value):
            continue
        if what == "classes" and not inspect.isclass(value):
            continue
        # Internal ops that PyTorch leaves in its namespace are nobody's interface.
        if module == "torch" and not documented_function(name, value):
            continue
        found.append(name)
    return sorted(set(found))


def documented_function(name, value):
    """Whether a function of ``torch`` has a documentation of its own: internal ops have none."""
    return bool((getattr(value, "__doc__", None) or "").strip())


def ours(areas):
    """Which of the names exist here: asked of another process, as both are called torch."""
    program = """
import json, sys, importlib
sys.path.insert(0, sys.argv[1])
import rushlight
areas = json.load(sys.stdin)
out = {}
for module, names in areas.items():
    place = module.replace("torch", "rushlight", 1)
    try:
        owner = rushlight.Tensor if module == "torch.Tensor" else importlib.import_module(place)
    except ImportError:
        out[module] = []
        continue
    have = []
    for name in names:
        try:
            found = getattr(owner, name)
        except (AttributeError, ImportError):
            continue
        # Names that only raise do not count.
        if not getattr(found, "_absent", False):
            have.append(name)
    out[module] = have
print(json.dumps(out))
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "bindings/python/python")], input=json.dumps(areas), capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def main():
    theirs = {module: public(module, what) for _, module, what, _ in AREAS}
    have = ours(theirs)
    rows, missing = [], []
    for title, module, _, target in AREAS:
        names, found = theirs[module], set(have[module])
        absent = [n for n in names if n not in found]
        share = 100 * len(found) / max(len(names), 1)
        rows.append(f"| {title} | {len(names)} | {len(found)} | {share:.0f}% | {target}% |")
        missing.append((title, absent))
        print(f"{title:28} {len(found):4} of {len(names):4}  {share:5.1f}%  (wanted {target}%)")
    if "--missing" in sys.argv:
        for title, absent in missing:
            print(f"\n{title}: {' '.join(absent)}")
        return
    import torch

    lines = [
        "# What of PyTorch the Python front has",
        "",
        f"Names of PyTorch {torch.__version__.split('+')[0]}'s public interface that exist here, by `bindings/python/coverage.py`.",
        "A name that is missing raises an error that names the closest one there is.",
        "",
        "| | PyTorch | here | | aim |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "Not part of this version: `torch.distributed.rpc`, quantised tensors. Their names can be imported and raise when they are used; they do not",
        "count here.",
        "",
        "Dtypes: all but quantised ones. `uint16`, `uint32`, `uint64` and the 8-bit floats are stored, converted and saved; they have the few ops that PyTorch has for them.",
        "",
        "## Missing names",
        "",
    ]
    for title, absent in missing:
        lines += [f"**{title}**: " + (", ".join(f"`{n}`" for n in absent) or "none"), ""]
    path = ROOT / "docs" / "python-coverage.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
