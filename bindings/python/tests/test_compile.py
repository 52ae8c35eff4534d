"""``torch.compile``: results and gradients are those of the function; what cannot be held runs as it is, and says why."""

import copy
import types

import pytest
import rushlight as torch
from rushlight import nn


def test_functions_are_recorded_for_each_kind_of_arguments():
    seen = types.SimpleNamespace(calls=[])

    @torch.compile
    def f(x, scale=1.0, *, flags=()):
        seen.calls.append(x.shape)
        y = x * scale + 1
        return {"y": y.relu(), "more": [y.sum(), scale, flags]}

    for shape in ((2, 3), (3, 2), (2, 3)):
        x = torch.randn(*shape)
        out = f(x, 2.0)
        assert torch.equal(out["y"], (x * 2 + 1).relu()) and out["more"][1:] == [2.0, ()]
    assert len(seen.calls) == 2 and f.recordings == 2
    assert f(torch.ones(2, 3), 3)["more"][1] == 3 and len(seen.calls) == 3
    assert f(torch.ones(2, 3), 3.0)["more"][1] == 3.0 and len(seen.calls) == 4
    f(torch.ones(2, 3), 3, flags=(1, "a"))
    assert f(torch.ones(2, 3), 3, flags=(1, "a"))["more"][2] == (1, "a") and len(seen.calls) == 5


def test_a_module_trains_as_without():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Tanh(), nn.Dropout(0.25), nn.Linear(16, 4))
    model = copy.deepcopy(plain)
    compiled = torch.compile(model)
    assert isinstance(compiled, torch._dynamo.OptimizedModule) and compiled._orig_mod is model
    assert list(compiled.state_dict())[0] == "_orig_mod.0.weight"

    def train(model):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(8):
            x, y = torch.randn(10, 8), torch.randn(10, 4)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert train(plain) == pytest.approx(train(compiled), rel=1e-6)
    assert compiled._compiled.recordings == 1, compiled._compiled.reasons
    assert any("fused" in text for text in compiled._compiled.programs)
    compiled.eval()
    plain.eval()
    x = torch.randn(10, 8)
    assert torch.allclose(compiled(x), plain(x), rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(compiled(x), plain(x), rtol=1e-6, atol=1e-6) and not compiled(x).requires_grad
    assert compiled._compiled.recordings == 3


def test_values_that_the_function_sees_are_guarded():
    factor = 2.0
    layer = nn.Linear(3, 3)
    layer.scale = 1.0

    @torch.compile
    def f(x):
        return layer(x) * factor * layer.scale

    x = torch.ones(2, 3)
    first = f(x)
    factor = 4.0
    assert torch.allclose(f(x), first * 2)
    layer.scale = 3.0
    assert torch.allclose(f(x), first * 6)
    with torch.no_grad():
        layer.weight.mul_(0.0)
        layer.bias.fill_(1.0)
    assert torch.equal(f(x), torch.full((2, 3), 12.0))
    layer.weight = nn.Parameter(torch.eye(3))
    assert torch.equal(f(x), torch.full((2, 3), 24.0))
    layer.weight.requires_grad_(False)
    f(x).sum().backward()
    assert layer.weight.grad is None


def test_what_cannot_be_held_runs_and_says_why():
    def f(x):
        return x * 2 if x.sum() > 0 else x * 3

    compiled = torch.compile(f)
    for value in (1.0, -1.0, 1.0):
        x = torch.full((2,), value, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [2.0 if value > 0 else 3.0] * 2
    assert compiled.recordings == 0 and "reads values on the host" in compiled.reasons[0]
    told = torch._dynamo.explain(f)(torch.ones(2))
    assert (told.graph_count, told.graph_break_count) == (0, 1) and "reads values" in str(told)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="reads values on the host"):
        torch.compile(f, fullgraph=True)(torch.ones(2))

    class Result:
        def __init__(self, x):
            self.x = x

    g = torch.compile(lambda x: Result(x + 1))
    assert g(torch.ones(2)).x.tolist() == g(torch.ones(2)).x.tolist() == [2.0, 2.0]
    assert g.reasons == ["it returns a Result"]


def test_disable_break_and_stance():
    count = types.SimpleNamespace(n=0)

    @torch.compiler.disable
    def outside(x):
        count.n += 1
        return x + 1

    f = torch.compile(lambda x: outside(x) * 2)
    assert [f(torch.ones(1)).item() for _ in range(3)] == [4.0] * 3 and count.n == 3
    assert "outside is marked by torch.compiler.disable" in f.reasons[0]

    seen = types.SimpleNamespace(calls=[])

    @torch.compile
    def g(x):
        seen.calls.append(torch.compiler.is_compiling())
        return x * 2 + 1

    g(torch.ones(2)), g(torch.ones(2))
    assert seen.calls == [True]
    with torch.compiler.set_stance("force_eager"):
        g(torch.ones(2))
    assert seen.calls == [True, False]
    torch._dynamo.reset()
    g(torch.ones(2))
    assert seen.calls == [True, False, True]
    torch.compiler.cudagraph_mark_step_begin()


def test_arguments_are_checked():
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        torch.compile(lambda x: x, mode="fast")
    with pytest.raises(RuntimeError, match="both can't be specified"):
        torch.compile(lambda x: x, mode="default", options={})
    with pytest.raises(NotImplementedError, match="backend 'tvm'"):
        torch.compile(lambda x: x, backend="tvm")
    assert torch.compile(len) is len

    def f(x):
        return x

    assert torch.compile(f, disable=True) is f and torch.compile(f, backend="eager") is f


def test_double_backward_is_an_error():
    f = torch.compile(lambda x: (x * x).exp())
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="differentiated once"):
            torch.autograd.grad(f(x).sum(), x, create_graph=True)


def test_batch_norm_and_inputs_changed_in_place():
    torch.manual_seed(0)
    plain = nn.BatchNorm1d(4)
    model = copy.deepcopy(plain)
    compiled = torch.compile(model)
    for i in range(4):
        x = torch.randn(6, 4)
        assert torch.allclose(plain(x), compiled(x), rtol=1e-6, atol=1e-6)
    assert torch.allclose(plain.running_var, model.running_var) and model.num_batches_tracked == 4

    @torch.compile
    def add_(x, y):
        x.add_(y)
        return x * 2

    x = torch.zeros(3)
    for i in range(3):
        assert add_(x, torch.ones(3)).tolist() == [2.0 * (i + 1)] * 3
    assert x.tolist() == [3.0] * 3
