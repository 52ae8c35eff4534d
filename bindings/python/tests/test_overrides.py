"""``__torch_function__``, modes, subclasses, ops of one's own, the meta device, storages."""

import copy
import os
import pickle

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.overrides import TorchFunctionMode, handle_torch_function, has_torch_function, resolve_name
from rushlight.utils._python_dispatch import TorchDispatchMode

F = nn.functional


class Tagged(torch.Tensor):
    """A subclass that changes nothing."""


def test_a_subclass_keeps_its_class():
    x = torch.randn(3, 4).as_subclass(Tagged)
    for y in (x + 1, 1 - x, -x, x[0], x.sum(), torch.relu(x), F.softmax(x, -1), x.T, x.detach(), x.float(), torch.cat([x, x]), x.max(0).values, x.data, x @ x.T):
        assert type(y) is Tagged
    assert type(nn.Linear(4, 2)(x)) is Tagged and type(x.shape) is torch.Size and type(x.tolist()) is list
    weight = torch.ones(2, requires_grad=True)
    y = weight.as_subclass(Tagged) * 2
    y.sum().backward()
    assert weight.grad.tolist() == [2, 2]
    again = pickle.loads(pickle.dumps(x))
    assert type(again) is Tagged and torch.equal(again, x)


class Diagonal:
    """No tensor, but answers in place of one."""

    HANDLED = {}

    def __init__(self, n, value):
        self.n, self.value = n, value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in cls.HANDLED:
            return NotImplemented
        return cls.HANDLED[func](*args, **(kwargs or {}))


Diagonal.HANDLED[torch.mean] = lambda d: d.value / d.n
Diagonal.HANDLED[torch.Tensor.matmul] = lambda t, d: t * d.value
Diagonal.HANDLED[torch.einsum] = lambda text, *operands: "einsum"


def test_other_classes_answer():
    d = Diagonal(4, 2.0)
    assert torch.mean(d) == 0.5 and (torch.ones(2) @ d).tolist() == [2, 2] and torch.einsum("ii", d) == "einsum"
    with pytest.raises(TypeError, match="no implementation found for.*exp.*Diagonal"):
        torch.exp(d)

    def double(x):
        if has_torch_function((x,)):
            return handle_torch_function(double, (x,), x)
        return x * 2

    Diagonal.HANDLED[double] = lambda d: Diagonal(d.n, d.value * 2)
    assert double(d).value == 4 and double(torch.ones(1)) == 2
    assert resolve_name(torch.relu) == "torch.relu" and torch.overrides.is_tensor_like(d)


class Log(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_modes_see_every_call():
    outer, inner = Log(), Log()
    with outer, inner:
        y = F.linear(torch.ones(2, 3), torch.ones(4, 3)) + 1
        y[0].sum()
    assert inner.names == ["ones", "ones", "linear", "add", "__getitem__", "sum"] == outer.names
    torch.ones(1)
    assert len(inner.names) == 6
    with pytest.raises(ZeroDivisionError):
        with outer:
            raise ZeroDivisionError
    torch.ones(1)
    assert len(outer.names) == 6

    class Count(TorchDispatchMode):
        ops = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.ops.append(str(func))
            return func(*args, **(kwargs or {}))

    with Count() as count:
        torch.ones(2, 2).mm(torch.ones(2, 2)).relu()
    assert count.ops == ["aten.ones.default", "aten.ones.default", "aten.mm.default", "aten.relu.default"]


def test_flops():
    from rushlight.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 5))
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(2, 3, 8, 8)).sum().backward()
    conv, linear = 2 * 2 * 36 * 4 * 27, 2 * 2 * 144 * 5
    # The image needs no gradient.
    assert counter.get_total_flops() == 2 * conv + 3 * linear
    assert sum(counter.get_flop_counts()["Sequential.0"].values()) == 2 * conv and "Sequential.2" in counter.get_table()


def test_ops_of_ones_own():
    @torch.library.custom_op("tests::scaled", mutates_args=())
    def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return x * factor

    def keep(ctx, inputs, output):
        ctx.factor = inputs[1]

    scaled.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=keep)
    x = torch.ones(2, requires_grad=True)
    torch.ops.tests.scaled(x, 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3] and scaled(torch.ones(1)) == 2 and str(torch.ops.tests.scaled.default) == "tests.scaled.default"
    with pytest.raises(NotImplementedError, match="register_fake"):
        scaled(torch.ones(2, device="meta"))
    torch.library.register_fake("tests::scaled", lambda x, factor=2.0: torch.empty_like(x))
    assert scaled(torch.ones(2, device="meta")).is_meta
    library = torch.library.Library("tests", "FRAGMENT")
    library.define("plus(Tensor a, Tensor b) -> Tensor")
    library.impl("plus", lambda a, b: a + b, "CPU")
    assert torch.ops.tests.plus(torch.ones(1), torch.ones(1)) == 2
    assert torch.library.infer_schema(lambda: None, mutates_args=()) == "() -> ()"
    assert torch.ops.aten.add(torch.ones(1), 1) == 2


def test_meta():
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    assert {p.device.type for p in model.parameters()} == {"meta"} and model[0].weight.data_ptr() == 0
    out = model(torch.empty(2, 3, 8, 8, device="meta"))
    assert out.shape == (2, 5) and out.is_meta and not out.is_cuda and out.requires_grad
    assert repr(torch.empty(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
    for use in (lambda: out.sum().item(), lambda: out.tolist(), lambda: model.to("cpu"), lambda: out.nonzero(), lambda: torch.ones(2, 5).copy_(out)):
        with pytest.raises(NotImplementedError, match="meta tensor"):
            use()
    with pytest.raises(RuntimeError):
        torch.ones(2, 5) + out
    assert torch.ones(3).to("meta").shape == (3,) and (out + 1).is_meta
    real = model.to_empty(device="cpu")
    assert real[0].weight.device.type == "cpu"
    huge = torch.zeros(1 << 20, 1 << 20, device="meta")
    assert (huge @ huge).shape == (1 << 20, 1 << 20) and huge.untyped_storage().nbytes() == 1 << 42


def test_dtypes_that_have_no_tensors():
    assert torch.complex64.is_complex and torch.cfloat is torch.complex64 and torch.complex64.to_real() is torch.float32
    assert torch.float4_e2m1fn_x2.itemsize == 1 and isinstance(torch.float4_e2m1fn_x2, torch.dtype)
    assert pickle.loads(pickle.dumps(torch.complex64)) == torch.complex64 != torch.complex128
    for use in (lambda: torch.zeros(1, dtype=torch.quint8), lambda: torch.ones(1).to(torch.float4_e2m1fn_x2), lambda: torch.ones(1).to(torch.qint8)):
        with pytest.raises(NotImplementedError, match="not supported"):
            use()
    assert torch.ones(1).layout != torch.sparse_coo
    with pytest.raises(NotImplementedError, match="dense"):
        torch.ones(1, layout=torch.sparse_coo)


def test_storages(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(32)))
    mapped = torch.UntypedStorage.from_file(os.fspath(path), False, 32)
    part = torch.asarray(mapped[8:16], dtype=torch.uint8)
    assert part.tolist() == list(range(8, 16)) and mapped.nbytes() == 32 and part.data_ptr() == mapped.data_ptr() + 8
    mapped[0] = 9
    assert path.read_bytes()[0] == 0
    shared = torch.UntypedStorage.from_file(os.fspath(path), True, 32)
    shared[0] = 7
    assert path.read_bytes()[0] == 7
    x = torch.arange(4.0)
    made = torch.empty(0).set_(x.untyped_storage(), 1, (2,), (1,))
    made.fill_(5)
    assert x.tolist() == [0, 5, 5, 3] and x.untyped_storage() == made.untyped_storage() and x.storage().tolist() == x.tolist()
    assert copy.deepcopy(x.untyped_storage()) != x.untyped_storage() and torch.is_storage(x.untyped_storage())
