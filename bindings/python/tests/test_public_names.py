"""PyTorch's public names under ``install()``: every one can be imported, and one that is absent says so when it is used."""

import pathlib
import subprocess
import sys

import rushlight

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import public_names  # noqa: E402


def run(program):
    place = str(pathlib.Path(rushlight.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {place!r})\n{program}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_public_name_can_be_imported():
    listed = public_names.read(public_names.LIST)
    assert len(listed) > 800 and sum(map(len, listed.values())) > 6500
    found = public_names.imports(listed)
    assert not found["modules"] and not found["failed"]
    # Absent names raise when they are used, with the reason.
    assert not found["silent"] and sum(map(len, found["absent"].values())) > 500


def test_absent_names_are_absent_until_they_are_imported():
    lines = run("""
import rushlight
rushlight.install()
import torch, torch.nn.functional as F
from torch.nn.functional import scaled_mm
print(hasattr(F, "scaled_mm"), hasattr(torch, "ScriptModuleSerializer"))
for use in (scaled_mm, lambda: exec("from torch.ao.pruning import BaseSparsifier; BaseSparsifier()")):
    try:
        use()
    except NotImplementedError as error:
        print(error)
try:
    from torch import no_such_name
except ImportError as error:
    print(type(error).__name__)
""")
    assert lines[0] == "False False" and "torch.nn.functional.scaled_mm" in lines[1] and "quantised" in lines[2] and lines[3] == "ImportError"


def test_names_say_torch():
    lines = run("""
import pickle
import rushlight
rushlight.install()
import torch, torch.backends.cudnn, torchvision.transforms
print(torch.__name__, torch.Tensor.__module__, torch.nn.Linear.__module__, torch.backends.cudnn.__name__, torchvision.transforms.__name__)
print(torch.Tensor, torch.nn.Linear, torch.float32.__class__, torch.optim.AdamW, torch.distributions.Gamma.__module__)
print(pickle.loads(pickle.dumps(torch.nn.Linear)) is torch.nn.Linear, b"rushlight" in pickle.dumps(torch.nn.Linear(2, 2)))
print(type(torch.nn.Linear(2, 2)(torch.ones(1, 2)).grad_fn).__module__)
rushlight._install.uninstall()
print(rushlight.__name__, rushlight.Tensor.__module__, rushlight.nn.Linear.__module__)
""")
    assert lines[0] == "torch torch torch.nn.modules.linear torch.backends.cudnn torchvision.transforms"
    assert lines[1] == "<class 'torch.Tensor'> <class 'torch.nn.modules.linear.Linear'> <class 'torch.dtype'> <class 'torch.optim.adamw.AdamW'> torch.distributions.gamma"
    assert lines[2] == "True False"
    assert lines[4] == "rushlight rushlight rushlight.nn.modules.linear"


def test_a_missing_name_is_found_quickly_and_named_when_asked():
    class Counted(str):
        asked = 0

    import rushlight._functions as functions

    before, functions._closest = functions._closest, lambda name, names: setattr(Counted, "asked", Counted.asked + 1) or before(name, names)
    try:
        assert not hasattr(rushlight, "relux") and Counted.asked == 0
        try:
            rushlight.relux
        except AttributeError as error:
            assert "Did you mean: 'relu'" in str(error)
        assert Counted.asked == 1
    finally:
        functions._closest = before


def test_names_that_libraries_ask_for():
    from rushlight.utils._contextlib import _DecoratorContextManager, context_decorator
    from rushlight.utils._foreach_utils import _group_tensors_by_device_and_dtype

    torch = rushlight
    flat = torch._utils._flatten_dense_tensors([torch.ones(2, 3), torch.zeros(4)])
    assert [tuple(t.shape) for t in torch._utils._unflatten_dense_tensors(flat, [torch.ones(2, 3), torch.zeros(4)])] == [(2, 3), (4,)]
    sizes = [[t.numel() for t in kept] for kept in torch._utils._take_tensors([torch.ones(n) for n in (3, 1, 9, 2)], 16)]
    assert sizes == [[3, 1], [9], [2]]

    class Counting(_DecoratorContextManager):
        entered = 0

        def __enter__(self):
            Counting.entered += 1

        def __exit__(self, *exception):
            return None

    @Counting()
    def work():
        return 3

    assert work() + work() == 6 and Counting.entered == 2 and context_decorator(Counting, lambda: 4)() == 4
    groups = _group_tensors_by_device_and_dtype([[torch.ones(1), torch.ones(1).double(), torch.ones(2)], []], with_indices=True)
    assert [indices for _, indices in groups.values()] == [[0, 2], [1]]
    for check, error in ((torch._check, RuntimeError), (torch._check_value, ValueError), (torch._check_type, TypeError), (torch._check_index, IndexError)):
        check(True)
        try:
            check(False, lambda: "mine")
        except error as raised:
            assert str(raised) == "mine"
    assert torch.nn.ConstantPad2d(1, 2.0)(torch.zeros(1, 1)).sum() == 16 and isinstance(torch.nn.ZeroPad1d(1), torch.nn.modules.padding._ConstantPadNd)
    assert torch.optim.adamw.AdamW is torch.optim.AdamW and torch.functional.einsum is torch.einsum and torch._C._functorch.is_batchedtensor(torch.ones(1)) is False


def test_functions_say_where_pytorch_has_them():
    lines = run("""
import pickle
import rushlight
rushlight.install()
import torch, torch.nn.functional as F, torch._VF
for f in (torch.add, torch.einsum, torch.save, torch.tensor, torch.cdist, F.conv2d, F.gelu, F.relu, torch.nn.Linear.forward, torch.special.erf, torch.iinfo):
    print(f.__name__, f.__module__, pickle.loads(pickle.dumps(f)) is f, b"rushlight" in pickle.dumps(f))
# As PyTorch's own pickles name it.
print(pickle.loads(b"cbuiltins\\ngetattr\\n(ctorch._C\\n_VariableFunctionsClass\\nVadd\\ntR.") is torch.add is torch._VF.add is torch._C._VariableFunctions.add)
for f in (torch.norm, torch.linalg.svd, torch.cuda.is_available, torch.Tensor.stft, torch.Tensor.backward):
    print(pickle.loads(pickle.dumps(f)) is f)
""")
    homes = "torch torch.functional torch torch torch.functional torch torch._C._nn torch.nn.functional torch.nn.modules.linear torch._C._special torch"
    assert [line.split()[1:] for line in lines[:11]] == [[home, "True", "False"] for home in homes.split()]
    assert lines[11:] == ["True"] * 6


def test_names_of_several_modules_are_one():
    lines = run("""
import warnings
warnings.simplefilter("error")
import pickle
import rushlight
rushlight.install()
import torch, torchvision
from torch.autograd.variable import Variable
from torch.cuda.memory import MemPool, memory_allocated
from torch.cuda.random import manual_seed_all
from torch.nn.parallel.replicate import replicate
from torch.optim.lr_scheduler import Optimizer
from torch.profiler.profiler import profile
print(Variable is torch.autograd.Variable, memory_allocated is torch.cuda.memory_allocated, manual_seed_all is torch.cuda.manual_seed_all)
print(replicate is torch.nn.parallel.replicate, profile is torch.profiler.profile, Optimizer is torch.optim.Optimizer)
print(MemPool._absent, hasattr(torch.optim, "no_such_module"), pickle.loads(pickle.dumps(memory_allocated)) is memory_allocated)
print(repr(torch)[:14], repr(torch.nn.functional)[:28], repr(torchvision)[:20], torch.nn.__spec__.name, torch.nn.__package__)
import importlib
print(importlib.reload(torch.nn.init) is torch.nn.init, torch.nn.init.__name__, repr(torch.nn.init)[:23])
rushlight._install.uninstall()
print(repr(rushlight)[:18], repr(rushlight.nn.functional)[:32])
""")
    assert lines[:3] == ["True True True", "True True True", "True False True"]
    assert lines[3] == "<module 'torch <module 'torch.nn.functional <module 'torchvision torch.nn rushlight.nn"
    assert lines[4] == "True torch.nn.init <module 'torch.nn.init'"
    assert lines[5] == "<module 'rushlight <module 'rushlight.nn.functional"


def test_older_modules_of_devices():
    torch = rushlight
    from rushlight.cpu.amp import autocast
    from rushlight.cuda import comm, nvtx

    with autocast(), nvtx.range("step"), torch.no_grad():
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.bfloat16 and nvtx.range_push("part") == 0 == nvtx.range_pop()
    assert issubclass(torch.cpu.amp.GradScaler, torch.amp.GradScaler) and torch.cpu.StreamContext is not None
    x = torch.arange(6.0).reshape(3, 2)
    parts = comm.scatter(x, ["cpu", "cpu"], chunk_sizes=[1, 2])
    assert [p.shape[0] for p in parts] == [1, 2] and torch.equal(comm.gather(parts, 0, "cpu"), x)
    assert torch.equal(comm.reduce_add([x, x], "cpu"), 2 * x) and len(comm.broadcast(x, ["cpu", -1])) == 2
    assert [t[2, 1].item() for t in comm.reduce_add_coalesced([[x, x], [x, 2 * x]], -1)] == [10, 15]
    assert torch.equal(comm.broadcast_coalesced([x], ["cpu"])[0][0], x)
    out = torch.zeros(6, 2)
    assert comm.gather([x, x], out=out) is out and out[5, 1] == 5
    for call in (lambda: comm.reduce_add([x, x[0]]), lambda: comm.broadcast(x)):
        try:
            call()
            raise AssertionError
        except (ValueError, RuntimeError) as error:
            assert "invalid size" in str(error) or "Exactly one" in str(error)
    assert torch.autograd.Variable._execution_engine.is_checkpoint_valid()
