"""``__torch_dispatch__``: wrapper classes that handle the ops of their tensors, and modes that count them."""

from collections import Counter

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from rushlight.utils._pytree import tree_map


class Two(torch.Tensor):
    """A pair of tensors as one."""

    log = []

    @staticmethod
    def __new__(cls, a, b, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.size(), strides=a.stride(), storage_offset=a.storage_offset(), dtype=a.dtype, layout=a.layout, device=a.device, requires_grad=requires_grad
        )

    def __init__(self, a, b, requires_grad=False):
        self.a, self.b = a, b

    def __repr__(self):
        return f"Two({self.a.tolist()}, {self.b.tolist()})"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Two(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.log.append(str(func))
        found = []
        for part in ("a", "b"):
            inner, named = tree_map(lambda t: getattr(t, part) if isinstance(t, Two) else t, (args, kwargs or {}))
            found.append(func(*inner, **named))
        return Two(*found) if isinstance(found[0], torch.Tensor) else tuple(Two(x, y) for x, y in zip(*found))


def pair(*shape):
    return Two(torch.arange(float(torch.Size(shape).numel())).reshape(shape), torch.ones(shape))


def test_a_wrapper_has_a_size_a_dtype_and_a_device():
    x = Two(torch.ones(2, 3, dtype=torch.float64).t(), torch.ones(3, 2, dtype=torch.float64))
    assert x.shape == (3, 2) and x.stride() == (1, 3) and x.dtype == torch.float64 and x.device.type == "cpu" and x.is_cpu and not x.is_meta
    assert not x.is_contiguous() and x.numel() == 6 and is_traceable_wrapper_subclass(x) and isinstance(x, torch.Tensor)
    with pytest.raises(RuntimeError, match="must define __torch_dispatch__"):
        torch.Tensor._make_wrapper_subclass(torch.Tensor, (2,))


@pytest.mark.parametrize(("call", "ops"), [
    (lambda x: x + 1, ["add.Tensor"]), (lambda x: 2 * x, ["mul.Tensor"]), (lambda x: x.exp(), ["exp.default"]), (lambda x: x**2, ["pow.Tensor_Scalar"]),
    (lambda x: x @ torch.ones(3, 2), ["mm.default"]), (lambda x: nn.functional.linear(x, torch.ones(4, 3), torch.zeros(4)), ["addmm.default"]),
    (lambda x: nn.functional.linear(torch.ones(4, 3), x), ["t.default", "mm.default"]), (lambda x: x[0, 1:], ["select.int", "slice.Tensor"]),
    (lambda x: x[None], ["unsqueeze.default"]), (lambda x: x[torch.tensor([1, 0])], ["index.Tensor"]), (lambda x: x[..., 0], ["select.int"]),
    (lambda x: x.reshape(3, 2), ["view.default"]), (lambda x: x.flatten(), ["view.default"]), (lambda x: x.sum(0), ["sum.dim_IntList"]),
    (lambda x: x.mean(), ["mean.default"]), (lambda x: x.double(), ["_to_copy.default"]), (lambda x: x.transpose(0, 1), ["transpose.int"]),
    (lambda x: torch.cat([x, x]), ["cat.default"]), (lambda x: x.softmax(-1), ["_softmax.default"]), (lambda x: nn.functional.relu(x), ["relu.default"]),
    (lambda x: x.expand(2, 2, 3), ["expand.default"]), (lambda x: x.detach(), ["detach.default"]), (lambda x: x.clone(), ["clone.default"]),
    (lambda x: x > 1, ["gt.Scalar"]), (lambda x: x.t().contiguous(), ["t.default", "clone.default"]), (lambda x: x.permute(1, 0), ["permute.default"]),
])
def test_calls_are_ops_of_aten(call, ops):
    x, Two.log = pair(2, 3), []
    made = call(x)
    assert Two.log == [f"aten.{op}" for op in ops]
    assert isinstance(made, Two) and made.a.tolist() == call(x.a).tolist() and made.b.tolist() == call(x.b).tolist() and made.shape == made.a.shape


def test_changes_in_place_and_several_results():
    x = pair(4)
    assert x.mul_(3) is not None and x.a.tolist() == [0, 3, 6, 9]
    parts = x.chunk(2)
    assert [p.a.tolist() for p in parts] == [[0, 3], [6, 9]] and all(isinstance(p, Two) for p in parts)


def test_parameters_of_a_module():
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(Two(torch.ones(2, 3), torch.zeros(2, 3)), requires_grad=False)
    assert isinstance(layer.weight, nn.Parameter) and isinstance(layer.weight, Two) and "weight" in dict(layer.named_parameters())
    assert not isinstance(pair(2), nn.Parameter)
    with torch.no_grad():
        out = layer(torch.ones(1, 3))
    assert isinstance(out, Two) and torch.allclose(out.a, 3 + layer.bias)


def test_gradients_are_objects_of_the_class():
    x = Two(torch.ones(2, 3), torch.full((2, 3), 2.0), requires_grad=True)
    w = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    (x * x @ w).sum().backward()
    assert isinstance(x.grad, Two) and x.grad.a.tolist() == [[2, 4, 6]] * 2 and x.grad.b.tolist() == [[4, 8, 12]] * 2
    (x * 2).sum().backward()
    assert x.grad.a.tolist() == [[4, 6, 8]] * 2 and isinstance(x.grad, Two)


@pytest.mark.parametrize("call", [
    lambda x: x + 1, lambda x: 3 - x, lambda x: x / 2, lambda x: 2 / x, lambda x: x**3, lambda x: x.exp(), lambda x: x.sigmoid(),
    lambda x: x.tanh(), lambda x: nn.functional.gelu(x), lambda x: nn.functional.silu(x), lambda x: x.softmax(-1), lambda x: x.log_softmax(0),
    lambda x: x.mean(), lambda x: x.sum(1, keepdim=True), lambda x: x.amax(1), lambda x: x[0, 1:], lambda x: x[torch.tensor([1, 0, 0])],
    lambda x: x.t(), lambda x: x.transpose(0, 1), lambda x: x.permute(1, 0), lambda x: x.reshape(3, 2), lambda x: x.unsqueeze(0), lambda x: x.expand(4, 2, 3),
    lambda x: torch.cat([x, x * 2]), lambda x: torch.stack([x, x]), lambda x: x.split(2, 1)[1], lambda x: x.unbind(0)[1], lambda x: x.cumsum(1),
    lambda x: x.clamp(0.5, 2.5), lambda x: x.masked_fill(torch.tensor([True, False, True]), 0.0), lambda x: x @ torch.ones(3, 2), lambda x: x.double(),
    lambda x: torch.where(torch.tensor([True, False, True]), x, x * 3), lambda x: x.index_select(0, torch.tensor([1, 1])), lambda x: x.sqrt(), lambda x: -x,
])
def test_rules_of_derivatives(call):
    value = torch.tensor([[0.3, 1.7, 2.9], [1.1, 0.8, 4.2]])
    x, plain = Two(value, value, requires_grad=True), value.clone().requires_grad_()
    weights = torch.arange(1.0, call(plain).numel() + 1).reshape(call(plain).shape)
    (call(x) * weights).sum().backward()
    (call(plain) * weights).sum().backward()
    assert torch.allclose(x.grad.a, plain.grad) and torch.allclose(x.grad.b, plain.grad)


def test_ops_without_a_rule_are_refused_by_name():
    x = Two(torch.ones(2), torch.ones(2), requires_grad=True)
    with pytest.raises(NotImplementedError, match="aten.erfinv.default.*no_grad"):
        x.erfinv()
    with torch.no_grad():
        assert isinstance(x.erfinv(), Two)
    assert isinstance(x.detach(), Two)
    y = torch.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="MulBackward0.*__torch_dispatch__"):
        (y * 2 + x).sum().backward()


def test_a_class_with_elements_may_handle_ops():
    class Logged(torch.Tensor):
        seen = []

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(str(func))
            with torch._C._DisableTorchDispatch():
                return func(*args, **(kwargs or {}))

        __torch_function__ = torch._C._disabled_torch_function_impl

    x = torch.Tensor._make_subclass(Logged, torch.ones(2))
    assert (x + 1).tolist() == [2, 2] and Logged.seen == ["aten.add.Tensor"]
    assert type(torch.Tensor._make_subclass(nn.Parameter, torch.ones(1))) is nn.Parameter


def test_a_mode_counts_ops():
    class Count(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen[str(func)] += 1
            return func(*args, **(kwargs or {}))

    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(-1))
    x = torch.ones(5, 3)
    with Count() as mode:
        net(x).sum().backward()
    assert mode.seen == {
        "aten.t.default": 9, "aten.addmm.default": 2, "aten.relu.default": 1, "aten._softmax.default": 1, "aten.sum.default": 1, "aten.ones_like.default": 1,
        "aten.expand.default": 1, "aten._softmax_backward_data.default": 1, "aten.mm.default": 3, "aten.sum.dim_IntList": 2, "aten.view.default": 2,
        "aten.threshold_backward.default": 1, "aten.detach.default": 8,
    }
    assert net[0].weight.grad is not None and torch.ops.aten.addmm.default is torch.ops.aten.addmm.default


def test_backward_passes_under_a_mode_give_the_same_gradients():
    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 6), nn.LayerNorm(6), nn.GELU())
    attend, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(3, 2, 4, 4)

    def loss():
        made = net(x).unsqueeze(0)
        return attend(made, made, made)[0].square().mean() + made[0, :, 1:].exp().sum()

    parameters = [*net.parameters(), *attend.parameters()]
    loss().backward()
    expected = [p.grad.clone() for p in parameters]
    for _ in range(2):
        with Watch():
            made = loss()
            made.backward()
    assert all(torch.allclose(p.grad, 3 * g, atol=1e-5) for p, g in zip(parameters, expected))
    with Watch():
        y = torch.ones(3, requires_grad=True)
        (first,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), y)
    assert second.tolist() == [6.0, 6.0, 6.0]


def test_devices_that_no_engine_has():
    assert torch.device("hpu:1").type == "hpu" and torch.device("xla").index is None
    with pytest.raises(RuntimeError, match="no engine"):
        torch.ones(1, device="hpu")
    with pytest.raises(RuntimeError, match="Expected one of"):
        torch.device("nope")
