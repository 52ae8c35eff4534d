"""pytest plugin of ``suite.py``: runs one of PyTorch's test files on Rushlight (or, with SUITE_REAL=1, on PyTorch) and records every test.

PyTorch's harness (``torch.testing``) comes from its sources, ``$SUITE_SOURCES``. Names of ``torch`` that only importing a file needs and that Rushlight
lacks become ``Absent`` objects, which raise when a test uses them; the records list them. ``$SUITE_RECORDS`` gets one JSON object per line.
"""

import importlib
import importlib.machinery
import importlib.util
import json
import opcode
import os
import random
import re
import signal
import sys
import threading
import time
import traceback
import types

import packaging
import packaging.version
import pytest

REAL = os.environ.get("SUITE_REAL") == "1"
SOURCES = os.path.realpath(os.environ["SUITE_SOURCES"])
FILE = os.path.realpath(os.environ["SUITE_FILE"])
RECORDS = os.environ["SUITE_RECORDS"]
SECONDS = float(os.environ.get("SUITE_TEST_SECONDS", "30"))
BUDGET = float(os.environ.get("SUITE_FILE_SECONDS", "600"))
READS = {opcode.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") if name in opcode.opmap}

importing = True
absent_names = set()


def record(**fields):
    with open(RECORDS, "a", encoding="utf-8") as file:
        file.write(json.dumps(fields) + "\n")


class Absent:
    """A name of PyTorch that Rushlight lacks. It can be decorated with, derived from and looked into while files are imported."""

    def __init__(self, path):
        self.__dict__.update(_path=path, __name__=path.rpartition(".")[2], __qualname__=path.rpartition(".")[2], __module__="torch", __doc__=None)

    def _use(self, path):
        if not importing:
            raise NotImplementedError(f"rushlight has no '{self._path}'")
        return Absent(path)

    def __call__(self, *args, **kwargs):
        made = self._use(f"{self._path}()")
        decorates = len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Absent)
        return args[0] if decorates else made

    def __getattr__(self, name):
        if name == "__all__":
            return []
        if name.startswith("__"):
            raise AttributeError(name)
        return self._use(f"{self._path}.{name}")

    def __getitem__(self, key):
        return self._use(f"{self._path}[]")

    def __mro_entries__(self, bases):
        return ()

    def __instancecheck__(self, value):
        return False

    def __subclasscheck__(self, value):
        return False

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __enter__(self):
        self._use("")

    def __exit__(self, *error):
        return False

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __add__(self, other):
        return other

    def __repr__(self):
        return f"<absent {self._path}>"


def stand_in(path):
    absent_names.add(path)
    return Absent(path)


def lenient(module):
    """Lets statements of PyTorch's sources read names that a module lacks. ``hasattr`` and ``getattr`` see none of it."""
    kind = type(module)
    if kind.__dict__.get("_lenient") or module.__name__.startswith("torch.testing"):
        return
    path = module.__name__.replace("rushlight", "torch", 1)

    def __getattr__(self, name):
        inner = getattr(kind, "__getattr__", None)
        if inner is not None:
            try:
                return inner(self, name)
            except AttributeError:
                pass
        frame = sys._getframe(1)
        reads = frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in READS
        if frame.f_code.co_name == "_getattr_qual":
            # The operator database's look-up of dotted names; with a default, absence is an answer.
            reads = frame.f_locals.get("default") is frame.f_globals.get("_NOTHING")
        if importing and reads and not name.startswith("__") and frame.f_code.co_filename.startswith(SOURCES):
            made = stand_in(f"{path}.{name}")
            setattr(self, name, made)
            return made
        raise AttributeError(f"module '{path}' has no attribute '{name}'", name=name, obj=self)

    module.__class__ = type("Lenient", (kind,), {"__getattr__": __getattr__, "_lenient": True})


def lenient_all():
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("torch", "functorch") and isinstance(module, types.ModuleType):
            lenient(module)


class AbsentModule(importlib.machinery.SourceFileLoader):
    """The loader of a module that Rushlight lacks: empty, and lenient."""

    def __init__(self):
        pass

    def create_module(self, spec):
        absent_names.add(spec.name)
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__all__ = []
        return module

    def exec_module(self, module):
        lenient(module)


def by_from_import():
    """Whether ``from package import name`` tries a name that is no attribute as a module."""
    frame = sys._getframe(2)
    for _ in range(8):
        if frame is None:
            return False
        if frame.f_code.co_name == "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


class Finder:
    """``torch.testing`` from PyTorch's sources; other modules of ``torch`` from Rushlight, or empty."""

    def __init__(self, ours):
        self.ours = ours

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ("torch", "functorch") or name in ("torch", "functorch"):
            return None
        if name.startswith("torch.testing."):
            return importlib.machinery.PathFinder.find_spec(name, path)
        lenient_all()
        try:
            return self.ours.find_spec(name, path, target)
        except ModuleNotFoundError:
            if not importing or by_from_import():
                raise
            return importlib.machinery.ModuleSpec(name, AbsentModule(), is_package=True)


def load(name):
    """Imports a module. An attribute of a class that is missing is stood in for, and the import repeated."""
    for _ in range(60):
        try:
            return importlib.import_module(name)
        except (AttributeError, ImportError) as error:
            # Modules that were loaded meanwhile.
            lenient_all()
            outer = sys.modules.get((getattr(error, "name", None) or "").rpartition(".")[0])
            if isinstance(error, ModuleNotFoundError) and outer is not None and not hasattr(outer, "__path__"):
                outer.__path__ = []
                continue
            found = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
            owner = sys.modules.get(found[2]) if found else getattr(error, "obj", None)
            missing = found[1] if found else getattr(error, "name", None)
            if owner is None or missing is None or isinstance(error, ModuleNotFoundError) or missing in vars(owner):
                raise
            path = owner.__name__ if isinstance(owner, types.ModuleType) else f"torch.{getattr(owner, '__name__', owner)}"
            record(info="imported again", module=name, absent=f"{path}.{missing}")
            setattr(owner, missing, stand_in(f"{path}.{missing}"))
    raise ImportError(f"{name} lacks more than 60 names of classes")


#: Dtypes of PyTorch's tables of dtypes that Rushlight lacks, and those that take their places there.
DTYPES = {"bcomplex32": "complex32", "quint4x2": "float8_e8m0fnu", "quint2x4": "float4_e2m1fn_x2"}


class Invariants:
    """Checks of sparse tensors, which every test case switches on and off."""

    is_enabled = staticmethod(lambda: False)
    enable = disable = staticmethod(lambda: None)

    def __init__(self, enable=True):
        # Decorates tests of sparse tensors, which are left out.
        self.enabled = enable

    def __call__(self, function):
        return function


def prepare():
    """Serves PyTorch's harness beside Rushlight and imports the test file."""
    import torch

    ours = next(finder for finder in sys.meta_path if type(finder).__module__ in ("rushlight._install", "torch._install"))
    sys.meta_path.insert(0, Finder(ours))
    sys.path.append(SOURCES)
    # PyTorch carries a copy of this package.
    sys.modules["torch._vendor"] = torch._vendor = types.ModuleType("torch._vendor")
    torch._vendor.packaging = packaging
    sys.modules["torch._vendor.packaging"], sys.modules["torch._vendor.packaging.version"] = packaging, packaging.version
    for missing, used in DTYPES.items():
        if not hasattr(torch, missing):
            setattr(torch, missing, getattr(torch, used))
    lenient_all()
    folder = os.path.join(SOURCES, "torch", "testing")
    spec = importlib.util.spec_from_file_location("torch.testing", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch.testing"] = sys.modules["rushlight.testing"] = torch.testing = module
    spec.loader.exec_module(module)
    if not hasattr(torch.sparse, "check_sparse_tensor_invariants"):
        torch.sparse.check_sparse_tensor_invariants = Invariants
    load("torch.testing._internal.common_utils")
    load("torch.testing._internal.common_device_type")


def on_the_cpu():
    """Makes classes of tests for devices that leave the CPU out, as theirs has another class, for the CPU, too."""
    from torch.testing._internal import common_device_type

    original = common_device_type.instantiate_device_type_tests

    def instantiate(generic, scope, except_for=None, **options):
        except_for = [except_for] if isinstance(except_for, str) else except_for or ()
        return original(generic, scope, except_for=[device for device in except_for if device != "cpu"] or None, **options)

    common_device_type.instantiate_device_type_tests = instantiate


def pytest_configure(config):
    global importing
    folder, base = os.path.split(FILE)
    # Test files import one another from their own folders.
    sys.path[:0] = [folder, os.path.join(SOURCES, "test")]
    began = time.time()
    if not REAL:
        prepare()
    on_the_cpu()
    if not REAL:
        load(base[: -len(".py")])
    importing = False
    record(info="imported", seconds=round(time.time() - began, 1), absent=sorted(absent_names))
    signal.signal(signal.SIGPROF, over_time)
    threading.Thread(target=watch, daemon=True).start()


# ---- running


class OverTime(Exception):
    """A test that ran longer than its limit."""


current = {"test": None, "since": 0.0}
started = time.time()


def over_time(*_):
    raise OverTime(f"longer than {SECONDS:.0f} s of CPU time")


def watch():
    """Ends the process when a test waits for something, or does not return to the interpreter."""
    while True:
        time.sleep(1)
        if current["test"] and time.time() - current["since"] > 4 * SECONDS:
            record(test=current["test"], outcome="hangs", error="OverTime", message=f"waited for {4 * SECONDS:.0f} s")
            os._exit(99)


def name_of(nodeid):
    return nodeid.split("::", 1)[1]


def pytest_collection_modifyitems(config, items):
    with open(os.environ["SUITE_SELECTION"], encoding="utf-8") as file:
        selection = json.load(file)
    left_out = [(re.compile(pattern), reason) for pattern, reason in selection["left out"]]
    counts, kept = {}, []
    for item in items:
        name = name_of(item.nodeid)
        reason = next((reason for pattern, reason in left_out if pattern.search(name)), None)
        if reason is not None:
            counts[reason] = counts.get(reason, 0) + 1
        elif selection["only"] is None or name in selection["only"]:
            kept.append(item)
    if selection["sample"] and len(kept) > selection["sample"]:
        picked = set(random.Random(0).sample(range(len(kept)), selection["sample"]))
        kept = [item for number, item in enumerate(kept) if number in picked]
    number, parts = selection["part"]
    kept = kept[number::parts]
    done = set(selection["done"])
    record(info="collected", total=len(items), left_out=counts, selected=len(kept))
    items[:] = [item for item in kept if name_of(item.nodeid) not in done]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    current.update(test=name_of(item.nodeid), since=time.time())
    record(start=current["test"])
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    current["test"] = None
    if time.time() - started > BUDGET:
        item.session.shouldstop = "the file's time is over"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when != "call" and report.passed:
        return
    fields = {"test": name_of(item.nodeid), "outcome": report.outcome, "seconds": round(call.duration, 2)}
    if call.excinfo is not None and report.failed:
        frames = traceback.extract_tb(call.excinfo.tb)
        own = [frame for frame in frames if os.path.realpath(frame.filename) == FILE]
        fields.update(error=call.excinfo.type.__name__, message=str(call.excinfo.value)[:1000], inner="\n".join(traceback.format_list(frames[-3:]))[-900:])
        if own:
            fields.update(line=own[-1].lineno, code=own[-1].line)
    elif report.failed:
        fields.update(error="UnexpectedSuccess", message=str(report.longrepr)[:300])
    elif report.skipped:
        fields.update(message=str(report.longrepr)[-200:])
    record(**fields)
