"""The smaller packages: checkpoints of activations, ``func``, mixed precision, devices, the profiler, random state."""

import json
import pickle
import types
import warnings
import zipfile

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.utils.checkpoint import checkpoint, checkpoint_sequential


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1))


def test_checkpoint_gives_the_same_gradients():
    plain, kept = net(), net()
    x = torch.randn(5, 4)
    torch.manual_seed(7)
    plain(x).sum().backward()
    torch.manual_seed(7)
    checkpoint(kept, x, use_reentrant=False).sum().backward()
    for a, b in zip(plain.parameters(), kept.parameters()):
        assert torch.allclose(a.grad, b.grad)
    kept.zero_grad()
    torch.manual_seed(7)
    checkpoint_sequential(kept, 2, x.requires_grad_()).sum().backward()
    for a, b in zip(plain.parameters(), kept.parameters()):
        assert torch.allclose(a.grad, b.grad)
    with torch.no_grad():
        assert not checkpoint(kept, x).requires_grad


def test_func():
    assert torch.func.grad(lambda x: (x**3).sum())(torch.tensor([2.0])).tolist() == [12]
    gradient, value = torch.func.grad_and_value(lambda p: (p["w"] ** 2).sum())({"w": torch.tensor([3.0])})
    assert gradient["w"].tolist() == [6] and value == 9
    second = torch.func.grad(torch.func.grad(lambda x: x**3))(torch.tensor(2.0))
    assert second == 12
    assert torch.func.jacrev(lambda x: x**2)(torch.tensor([1.0, 2.0])).tolist() == [[2, 0], [0, 4]]
    layer = nn.Linear(2, 1)
    out = torch.func.functional_call(layer, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, (torch.tensor([1.0, 2.0]),))
    assert out.item() == 3 and layer.weight.requires_grad
    with pytest.raises(RuntimeError, match="nope"):
        torch.func.functional_call(layer, {"nope": torch.ones(1)}, (torch.ones(2),), strict=True)
    value, slope = torch.func.jvp(lambda x: x.sin(), (torch.tensor([0.5]),), (torch.tensor([2.0]),))
    assert torch.allclose(value, torch.tensor([0.5]).sin()) and torch.allclose(slope, 2 * torch.tensor([0.5]).cos())
    parameters, _ = torch.func.stack_module_state([nn.Linear(2, 1) for _ in range(3)])
    assert parameters["weight"].shape == (3, 1, 2)


def test_functions_over_batches():
    x, w = torch.arange(6.0).view(3, 2), torch.tensor([1.0, -1.0])
    assert torch.equal(torch.vmap(torch.dot, in_dims=(0, None))(x, w), x @ w)
    assert torch.equal(torch.func.vmap(torch.func.grad(lambda v: (v**3).sum()))(x), 3 * x**2)
    # Gradients of each sample, as programs for differential privacy compute them.
    layer = nn.Linear(2, 1)
    state = {k: v.detach() for k, v in layer.named_parameters()}
    each = torch.func.vmap(torch.func.grad(lambda s, v: torch.func.functional_call(layer, s, (v,)).square().sum()), (None, 0))(state, x)
    assert each["weight"].shape == (3, 1, 2) and torch.allclose(each["weight"], (2 * layer(x) * x).unsqueeze(1))
    nested = torch.vmap(lambda d: {"sum": d["a"].sum(), "turned": d["a"].flip(0)}, out_dims={"sum": 0, "turned": 1})({"a": x})
    assert nested["sum"].tolist() == [1, 5, 9] and nested["turned"].tolist() == [[1, 3, 5], [0, 2, 4]]
    assert torch.vmap(lambda v: v.sum())(torch.zeros(0, 2)).shape == (0,)
    same = torch.vmap(lambda v: v + torch.rand(2), randomness="same")(torch.zeros(3, 2))
    assert torch.equal(same[0], same[2]) and not torch.equal(same[0], torch.vmap(lambda v: v + torch.rand(2), randomness="different")(same)[1])
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.vmap(lambda v: v + torch.rand(2))(x)
    with pytest.raises(ValueError, match="same size"):
        torch.vmap(torch.dot)(x, x[:2])
    with pytest.raises(ValueError, match="must only return Tensors"):
        torch.vmap(lambda v: 3)(x)


def test_jacobians_of_several_arguments():
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        (by_a, by_b), (sum_a, sum_b) = jacobian(lambda x, y: (x * y, x.sum()), argnums=(0, 1))(a, b)
        assert torch.equal(by_a, b.diag()) and torch.equal(by_b, a.diag()) and sum_a.tolist() == [1, 1] and sum_b.tolist() == [0, 0]
        value, aux = jacobian(lambda x: (x**2, x), has_aux=True)(a)
        assert torch.equal(value, (2 * a).diag()) and torch.equal(aux, a)
    assert torch.equal(torch.func.hessian(lambda x: (x**3).sum())(a), (6 * a).diag())
    # A derivative by what the function closes over.
    assert torch.func.grad(lambda y: torch.func.grad(lambda x: x * x * y)(torch.tensor(3.0)))(torch.tensor(2.0)) == 6
    value, along = torch.func.linearize(lambda x: x**2, a)
    assert torch.equal(value, a**2) and torch.equal(along(b), 2 * a * b)


def test_autocast_and_scaler():
    layer = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert layer(x).dtype == torch.float32
        assert torch.is_autocast_enabled()
    assert not torch.is_autocast_enabled() and layer(x).dtype == torch.float32

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward():
        return layer(x)

    assert forward().dtype == torch.bfloat16
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = layer.weight.clone()
    scaler.scale(layer(x).sum()).backward()
    layer.weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight, before) and scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale(layer(x).sum()).backward()
    scaler.unscale_(optimizer)
    assert torch.allclose(layer.bias.grad, torch.full((4,), 2.0))
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(layer.weight, before)
    assert torch.amp.GradScaler("cpu").load_state_dict(scaler.state_dict()) is None
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == scaler.state_dict()
    assert [type(part) for part in scaler.scale([x.sum(), (x.sum(),)])] == [torch.Tensor, tuple]
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    optimizer.zero_grad()
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.step(optimizer)
    scaler.scale(layer(x).sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called since the last update"):
        scaler.step(optimizer)


def test_ipex_optimize_lowers_the_forward():
    from rushlight import _ipex

    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    same, _ = _ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16, weights_prepack=False)
    out = same(torch.ones(2, 8))
    assert same is model and out.dtype == torch.bfloat16 and model.weight.dtype == torch.float32
    out.float().sum().backward()
    optimizer.step()
    assert model.weight.grad.dtype == torch.float32 and list(model.state_dict()) == ["weight", "bias"]
    assert _ipex.optimize(nn.Linear(2, 2), dtype=torch.float16).weight.dtype == torch.float16
    assert _ipex.optimize(model, optimizer=optimizer)[0] is model
    with pytest.raises(ValueError, match="int8"):
        _ipex.optimize(model, dtype=torch.int8)
    with pytest.raises(TypeError, match="weight_prepack"):
        _ipex.optimize(model, weight_prepack=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator: test_cuda.py")
def test_devices():
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.cuda.current_device() == 0 and torch.xpu.get_device_properties().name == torch.cuda.get_device_name()
    torch.cuda.manual_seed_all(1)
    torch.cuda.synchronize()
    assert torch.cpu.is_available() and torch.accelerator.current_accelerator() is None
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.ones(2, device="cuda").device.type == "cpu"
        assert nn.Linear(2, 2).to("xpu").weight.device.type == "cpu"
    with torch.device("cpu"):
        assert torch.ones(1).device.type == "cpu"
    x = torch.zeros(1 << 20)
    assert torch.cpu.memory_allocated() >= 4 << 20 and x.numel() == 1 << 20


def test_random_state():
    state = torch.get_rng_state()
    first = torch.rand(3)
    torch.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
    with torch.random.fork_rng():
        torch.rand(5)
    torch.manual_seed(4)
    a = torch.randn(2), torch.randint(0, 9, (3,)), torch.randperm(5), torch.nn.functional.dropout(torch.ones(5))
    torch.manual_seed(4)
    b = torch.randn(2), torch.randint(0, 9, (3,)), torch.randperm(5), torch.nn.functional.dropout(torch.ones(5))
    assert all(torch.equal(x, y) for x, y in zip(a, b))
    with pytest.raises(RuntimeError):
        torch.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    one, two = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for draw in (torch.rand, torch.randn):
        assert torch.equal(draw(4, generator=one), draw(4, generator=two))
    assert torch.equal(torch.multinomial(torch.ones(9), 4, generator=one), torch.multinomial(torch.ones(9), 4, generator=two))
    assert torch.multinomial(torch.ones(0, 3), 2).shape == torch.multinomial(torch.ones(0, 3), 2, True).shape == (0, 2)


def test_distributions_of_random_numbers():
    n = 20000
    draws = {
        "uniform": (torch.empty(n).uniform_(-1, 3), 1.0, 4 / 12**0.5),
        "normal": (torch.normal(2.0, 3.0, (n,)), 2.0, 3.0),
        "exponential": (torch.empty(n).exponential_(0.5), 2.0, 2.0),
        "geometric": (torch.empty(n).geometric_(0.25), 4.0, 12**0.5),
        "bernoulli": (torch.bernoulli(torch.full((n,), 0.3)), 0.3, 0.21**0.5),
        "poisson": (torch.poisson(torch.full((n,), 40.0)), 40.0, 40**0.5),
        "randint": (torch.randint(0, 10, (n,)).float(), 4.5, 8.25**0.5),
        "random_": (torch.empty(n).random_(10), 4.5, 8.25**0.5),
        "gumbel": (torch.nn.functional.gumbel_softmax(torch.zeros(n, 2), hard=True)[:, 0], 0.5, 0.5),
    }
    for name, (drawn, mean, std) in draws.items():
        assert abs(drawn.mean().item() - mean) < 6 * std / n**0.5, name
        assert abs(drawn.std().item() - std) < 0.1 * std, name


def test_scripted_functions_run_as_they_are():
    @torch.jit.script
    def swish(x):
        return x * x.sigmoid()

    assert swish(torch.zeros(1)).item() == 0 and not torch.jit.is_scripting()

    class Marked(nn.Module):
        @torch.jit.export
        def forward(self, x):
            return self.helper(x)

        @torch.jit.ignore
        def helper(self, x):
            return x + 1

    assert torch.jit.script(Marked())(torch.zeros(1)).item() == 1


def test_modules_of_distributions():
    from rushlight.distributions.categorical import Categorical
    from rushlight.distributions.kl import kl_divergence
    from rushlight.distributions.normal import Normal

    assert Normal is torch.distributions.Normal and kl_divergence(Normal(0.0, 1.0), Normal(0.0, 1.0)) == 0
    assert Categorical(torch.ones(2)).sample().item() in (0, 1)


def test_testing():
    torch.testing.assert_close(torch.ones(2), torch.ones(2) + 1e-7)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(torch.ones(2), torch.zeros(2))
    with pytest.raises(AssertionError, match="dtype"):
        torch.testing.assert_close(torch.ones(2), torch.ones(2, dtype=torch.float64))


def test_checkpoint_leaves_other_gradients_alone():
    layer, x = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    scale = layer.bias * 2  # captured, and part of another graph
    out = checkpoint(lambda t: layer(t).tanh() * scale, x, use_reentrant=False)
    plain = layer(x).tanh() * scale
    (found,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
    (expected,) = torch.autograd.grad(plain.sum(), x, retain_graph=True)
    assert torch.allclose(found, expected) and layer.weight.grad is None and layer.bias.grad is None
    found = torch.autograd.grad(out.sum(), list(layer.parameters()))
    expected = torch.autograd.grad(plain.sum(), list(layer.parameters()))
    for a, b in zip(found, expected):
        assert torch.allclose(a, b)
    called = []
    layer.weight.register_post_accumulate_grad_hook(lambda p: called.append(p.grad is not None))
    checkpoint(layer, x.detach(), use_reentrant=False).sum().backward()
    assert called == [True]


def test_backends_are_modules():
    import importlib

    for name in ("cudnn", "cuda", "mps", "mkl", "mkldnn", "openmp", "cpu"):
        assert importlib.import_module(f"rushlight.backends.{name}") is getattr(torch.backends, name)
    with torch.backends.cudnn.flags(allow_tf32=False, benchmark=True):
        assert not torch.backends.cudnn.allow_tf32 and torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.allow_tf32 and not torch.backends.cudnn.benchmark
    assert torch.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")


def test_what_is_not_there_says_so():
    calls = (
        (torch.jit.trace_module, "torch.jit.trace"), (torch.distributed.rpc.RRef, "distributed"), (torch.sparse_bsr_tensor, "blocks"),
    )
    for call, words in calls:
        with pytest.raises(NotImplementedError, match=words):
            call()
    with pytest.raises(AttributeError, match="DLPack"):
        torch.cuda.ExternalStream
    with pytest.raises(TypeError, match="LinearCrossEntropyOptions"):
        nn.functional.linear_cross_entropy(torch.ones(1, 2), torch.ones(2, 2), torch.tensor([1]), options=object())


class Kept(nn.Module):
    """A model that is saved whole."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.names = {"a", "b"}

    def forward(self, x):
        return self.layer(x).relu()


def test_files_may_name_what_is_declared_safe(tmp_path):
    import pickle

    model, path = Kept(), tmp_path / "model.pt"
    torch.save(model, path)
    with pytest.raises(pickle.UnpicklingError, match="Kept"):
        torch.load(path)
    with torch.serialization.safe_globals([Kept]):
        with pytest.raises(pickle.UnpicklingError, match="Unsupported global: GLOBAL torch.nn.modules.linear.Linear"):
            torch.load(path)
    with torch.serialization.safe_globals([Kept, nn.Linear]):
        found = torch.load(path)
        with open(path, "rb") as file:
            assert torch.load(file).names == {"a", "b"}
    assert torch.equal(found.layer.weight, model.layer.weight) and found(torch.ones(2)).shape == (1,)
    assert not torch.serialization.get_safe_globals()
    seen = []
    torch.load(path, weights_only=False, map_location=lambda storage, location: seen.append(location))
    assert seen == ["cpu", "cpu"]
    with pytest.raises(ValueError, match="mmap"), open(path, "rb") as file:
        torch.load(file, mmap=True)
    with pytest.raises(AttributeError, match="Pickler"):
        torch.save(model, path, pickle_module=json)


class _Counted(pickle.Pickler):
    used = 0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _Counted.used += 1


class _CountedBack(pickle.Unpickler):
    used = 0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _CountedBack.used += 1


def test_another_pickle_module_writes_and_reads(tmp_path):
    path, module = tmp_path / "x.pt", types.SimpleNamespace(Pickler=_Counted, Unpickler=_CountedBack, __name__="counted")
    shared = torch.arange(6.0).reshape(2, 3)
    torch.save({"layer": torch.nn.Linear(3, 2), "row": shared[1], "whole": shared}, path, pickle_module=module)
    found = torch.load(path, pickle_module=module)
    assert _Counted.used == 1 and _CountedBack.used == 1
    assert type(found["layer"]) is torch.nn.Linear and found["row"].tolist() == [3.0, 4.0, 5.0]
    assert found["row"].untyped_storage().data_ptr() == found["whole"].untyped_storage().data_ptr()
    # Names in the file are PyTorch's.
    with zipfile.ZipFile(path) as archive:
        body = archive.read("archive/data.pkl")
    assert b"rushlight" not in body and b"torch\nFloatStorage\n" in body
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        torch.load(path, pickle_module=module, weights_only=True)
    with pytest.raises(TypeError, match="nonsense"):
        torch.load(path, weights_only=False, nonsense=1)


def test_arguments_that_matter_have_an_effect():
    for name in ("Laplace", "Normal"):
        with pytest.raises(ValueError, match="GreaterThan"):
            getattr(torch.distributions, name)(0.0, -1.0)
        getattr(torch.distributions, name)(0.0, -1.0, validate_args=False)
    with pytest.raises(ValueError, match="Interval"):
        torch.distributions.Bernoulli(1.5)
    assert not torch.testing.make_tensor(2, 4, dtype=torch.float32, noncontiguous=True).is_contiguous()
    assert torch.testing.make_tensor(3, dtype=torch.bool, requires_grad=False).dtype == torch.bool
    with pytest.raises(AssertionError, match="stride"):
        torch.testing.assert_close(torch.ones(2, 3), torch.ones(3, 2).t(), check_stride=True)
    assert torch.ones(1, 2, 3, 4).resize_(1, 2, 3, 4, memory_format=torch.channels_last).stride() == (24, 1, 8, 2)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        assert not torch.is_anomaly_enabled()
    with pytest.raises(RuntimeError, match="does not match"):
        torch.ones(2).repeat_interleave(2, output_size=5)
    with pytest.raises(RuntimeError, match="driver"):
        torch.linalg.lstsq(torch.eye(2), torch.ones(2, 1), driver="best")
    with pytest.raises(RuntimeError, match="compute_mode"):
        torch.cdist(torch.ones(1, 2), torch.ones(1, 2), compute_mode="fast")


def test_compilers_are_not_needed():
    torch._dynamo.reset()
    torch._dynamo.config.suppress_errors = True
    torch._inductor.config.triton.cudagraphs = True
    assert torch._dynamo.config.suppress_errors and torch._inductor.config.triton.cudagraphs and not torch._dynamo.config.verbose
    assert not torch.compiler.is_compiling()


@pytest.mark.parametrize("name", ("Gamma", "Beta", "Dirichlet", "Poisson", "OneHotCategorical", "MultivariateNormal", "LogNormal", "HalfNormal", "Gumbel"))
def test_draws_have_the_moments_of_their_distribution(name):
    one, two = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 3.0])
    given = {
        "Dirichlet": (two,), "Poisson": (two,), "OneHotCategorical": (two,), "HalfNormal": (two,),
        "MultivariateNormal": (one, torch.tensor([[2.0, 0.3], [0.3, 1.0]])), "LogNormal": (one, one / 4),
    }.get(name, (one, two))
    law = getattr(torch.distributions, name)(*given)
    drawn = law.sample((20000,))
    assert drawn.shape == (20000, 2) and not drawn.requires_grad
    assert ((drawn.mean(0) - law.mean).abs() < 5 * (law.variance / 20000).sqrt() + 1e-6).all()
    assert ((drawn.var(0) - law.variance).abs() < 0.2 * law.variance).all()
    if not law.has_rsample:
        with pytest.raises(NotImplementedError, match="not differentiable"):
            law.rsample()


def test_trees_and_timers():
    from rushlight.utils import _pytree, benchmark

    tree = {"a": [1, (2, 3)], "b": torch.Size([4])}
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves[:3] == [1, 2, 3] and _pytree.tree_unflatten(leaves, spec) == tree and spec == _pytree.tree_structure(tree)
    assert _pytree.tree_map(lambda a, b: a + b, [1, {"x": 2}], [10, {"x": 20}]) == [11, {"x": 22}]
    assert _pytree.tree_map_only(int, str, [1, "b", (2.0,)]) == ["1", "b", (2.0,)]
    with pytest.raises(ValueError, match="has length 1"):
        _pytree.tree_unflatten([1], spec)
    timer = benchmark.Timer("x.sum()", globals={"x": torch.ones(4)}, label="sum")
    assert timer.timeit(10).mean > 0 and "sum" in repr(timer.blocked_autorange(min_run_time=0.001))
    assert "CPU capability" in torch.__config__.show() and str(torch.get_num_threads()) in torch.__config__.parallel_info()
    with torch.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False):
        pass
