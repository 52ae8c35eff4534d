"""Recording, hooks, functions written in Python."""

import threading

import pytest

import rushlight as torch


def test_grad_is_one_object_until_it_changes():
    x = torch.ones(3, requires_grad=True)
    x.sum().backward()
    first = x.grad
    assert x.grad is first
    x.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    x.grad = None
    assert x.grad is None
    given = torch.zeros(3)
    x.grad = given
    assert x.grad is given
    with pytest.raises(RuntimeError):
        x.grad = torch.zeros(4)
    with pytest.raises(TypeError):
        x.grad = 3


def test_modes():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad

    @torch.no_grad()
    def quiet():
        return (x * 2).requires_grad

    @torch.no_grad
    def bare():
        return (x * 2).requires_grad

    assert not quiet() and not bare() and torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    with torch.inference_mode():
        made = x * 2
    assert made.is_inference()
    with pytest.raises(RuntimeError):
        (made * x).sum().backward()

    @torch.no_grad()
    def generator():
        while True:
            yield torch.is_grad_enabled()

    running = generator()
    assert not next(running) and torch.is_grad_enabled() and not next(running)
    try:
        with torch.no_grad():
            raise KeyError
    except KeyError:
        pass
    assert torch.is_grad_enabled()


def test_modes_belong_to_threads():
    seen = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_threads_add_to_one_leaf():
    # Large enough that an addition takes longer than the threads' starts lie apart.
    x = torch.ones(3_000_000, requires_grad=True)
    for _ in range(20):
        x.grad = None
        start = threading.Barrier(4)

        def work(factor):
            start.wait()
            (x * factor).sum().backward()

        threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (x.grad == 10).all()


def test_hooks_of_threads_may_touch_the_gradient():
    x = torch.ones(1000, requires_grad=True)
    seen = []

    def hook(p):
        seen.append(p.grad is not None)
        p.grad = p.grad

    x.register_post_accumulate_grad_hook(hook)
    threads = [threading.Thread(target=lambda: (x * 2).sum().backward()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [True] * 4 and not any(thread.is_alive() for thread in threads)


def test_hooks():
    x = torch.ones(2, requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    doubled = x.register_hook(lambda g: g * 2)
    (x * 3).sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [6, 6]
    handle.remove()
    doubled.remove()
    x.grad = None
    (x * 3).sum().backward()
    assert len(seen) == 1 and x.grad.tolist() == [3, 3]
    after = []
    x.register_post_accumulate_grad_hook(lambda p: after.append(p is x))
    (x * 3).sum().backward()
    assert after == [True]
    with pytest.raises(RuntimeError):
        torch.ones(2).register_hook(print)


def test_exceptions_pass_through_backward():
    class Mine(Exception):
        pass

    def fail(gradient):
        raise Mine("here")

    x = torch.ones(2, requires_grad=True)
    x.register_hook(fail)
    with pytest.raises(Mine, match="here"):
        (x * 2).sum().backward()


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, other):
        ctx.save_for_backward(x, None, other)
        ctx.low = low
        return x.clamp(min=low), (x > low)

    @staticmethod
    def backward(ctx, grad, ignored):
        x, nothing, other = ctx.saved_tensors
        assert nothing is None
        return grad * (x > ctx.low) * other, None, None


def test_functions():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    y, mask = Clipped.apply(x, 0.0, torch.tensor(3.0))
    assert y.requires_grad and not mask.requires_grad
    assert "Clipped" in y.grad_fn.name()
    y.sum().backward()
    assert x.grad.tolist() == [0, 3]
    with torch.no_grad():
        assert not Clipped.apply(x, 0.0, torch.tensor(3.0))[0].requires_grad
    with pytest.raises(RuntimeError):
        Clipped()(x)


def test_functions_differentiate_twice():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Square.apply, x)
    assert torch.autograd.gradgradcheck(Square.apply, x)

    class Wrong(Square):
        @staticmethod
        def backward(ctx, grad):
            return grad

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Wrong.apply, x)


def test_wrong_number_of_gradients():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad):
            return grad

    a = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Two.apply(a, a).sum().backward()


def test_anomaly_names_the_op():
    x = torch.zeros(1, requires_grad=True)
    with torch.autograd.detect_anomaly():
        with pytest.raises(RuntimeError, match="(?i)nan"):
            (x.sqrt() * 0).sum().backward()
    assert not torch.is_anomaly_enabled()


def test_changed_values_are_an_error():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="in place|inplace|modified"):
        y.sum().backward()


def test_data_and_subclass():
    class Parameter(torch.Tensor):
        def __new__(cls, data):
            return cls._make_subclass(data, True)

    data = torch.ones(2)
    p = Parameter(data)
    assert isinstance(p, torch.Tensor) and p.requires_grad and p.is_leaf
    # A subclass that does not say otherwise gives its class to results, as in PyTorch.
    assert type(p * 2) is Parameter and type(torch.nn.Parameter(data) * 2) is torch.Tensor
    with torch.no_grad():
        p.add_(1)
    assert data.tolist() == [2, 2]
    p.data = torch.zeros(3)
    assert p.shape == (3,) and p.requires_grad
    p.data.add_(5)
    assert p.tolist() == [5, 5, 5]
    assert repr(p).startswith("Parameter containing:\ntensor(")
    assert {p: 1}[p] == 1


def test_data_has_a_version_of_its_own():
    w = torch.tensor([2.0, 3.0], requires_grad=True)
    y = (w * w).sum()
    w.data.mul_(0.5)
    w.data[0].add_(1.0)
    y.backward()
    # Computed with the values of now, as in PyTorch.
    assert w.grad.tolist() == [4.0, 3.0]
    z = (w * w).sum()
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_custom_gradient_is_summed_to_the_inputs_size():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x)
            return x * factor

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return dy, dy * x

    x, factor = torch.ones(2, 3), torch.ones(3, requires_grad=True)
    Scale.apply(x, factor).sum().backward()
    assert factor.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("change", [lambda t: t.clamp_(max=2.0), lambda t: t.clamp_min_(0.5), lambda t: t.clip_(0.5, 2.0)])
def test_bounds_in_place_keep_what_backward_needs(change):
    x = torch.tensor([0.125, 0.75, 3.0], requires_grad=True)
    change(x * 2.0).mul_(3.0).sum().backward()
    changed = change((x * 2.0).detach())
    assert x.grad.tolist() == [6.0 if a == b else 0.0 for a, b in zip(changed.tolist(), (x * 2.0).tolist())]


def test_in_place_of_an_operand_that_requires_no_gradient():
    for name in ("atan2_", "xlogy_"):
        x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0], requires_grad=True)
        expected = getattr(torch, name[:-1])(x.clone(), y)
        getattr(x, name)(y)
        assert torch.equal(x, expected)
        x.sum().backward()
        (found,) = torch.autograd.grad(expected.sum(), y)
        assert torch.equal(y.grad, found)


def test_functional_gradient_is_no_graph():
    assert not torch.func.grad(lambda t: (t * t).sum())(torch.ones(2)).requires_grad
    assert torch.func.grad(lambda t: (t * t).sum())(torch.ones(2, requires_grad=True)).requires_grad


def test_checkpoint_as_a_decorator():
    from rushlight.utils.checkpoint import checkpoint

    class Block:
        @checkpoint(use_reentrant=False)
        def run(self, x):
            return x.exp()

    x = torch.zeros(2, requires_grad=True)
    Block().run(x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_views_follow_a_recorded_change_of_their_base():
    base, w = torch.zeros(2, 2), torch.ones(2, requires_grad=True)
    flat, row = base.view(-1), base[0]
    base.add_(w)
    assert flat.requires_grad and row.requires_grad
    (flat * 2).sum().backward()
    assert w.grad.tolist() == [4.0, 4.0]
    other = torch.zeros(3, 2)
    flat = other.view(-1)
    other.select(0, 1).sub_(w, alpha=3)
    assert other.requires_grad and flat.requires_grad


def test_saved_tensors_hooks():
    graph = torch.autograd.graph
    seen = []

    def pack(t):
        assert not t.requires_grad
        seen.append(tuple(t.shape))
        return t.tolist()

    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with graph.saved_tensors_hooks(pack, torch.tensor):
        y = (x.exp() * x).sum()
    assert seen and all(shape == (3,) for shape in seen)
    (g,) = torch.autograd.grad(y, [x], create_graph=True)
    assert torch.allclose(g, x.exp() * (1 + x))
    # What was unpacked is still on the tape.
    (h,) = torch.autograd.grad(g.sum(), [x])
    assert torch.allclose(h, x.exp() * (2 + x))

    with graph.save_on_cpu(pin_memory=True):
        z = x.exp().square().sum()
    z.backward()
    assert torch.allclose(x.grad, 2 * (2 * x.detach()).exp())

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return 2 * a

        @staticmethod
        def backward(ctx, dy):
            (a,) = ctx.saved_tensors
            return 2 * dy * a / a

    x.grad = None
    with graph.saved_tensors_hooks(pack, torch.tensor):
        out = Double.apply(x)
    out.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_saved_tensors_hooks_that_fail():
    graph = torch.autograd.graph
    x = torch.ones(3, requires_grad=True)

    def refuse(t):
        raise ValueError("no room")

    with graph.saved_tensors_hooks(refuse, lambda packed: packed):
        with pytest.raises(ValueError, match="no room"):
            x.exp()
    assert x.exp().requires_grad
    for wrong, error in [(lambda t: torch.ones(4), RuntimeError), (lambda t: None, TypeError), (lambda t: t.double(), RuntimeError)]:
        with graph.saved_tensors_hooks(lambda t: t, wrong):
            y = x.exp()
        with pytest.raises(error):
            y.sum().backward()
    with graph.disable_saved_tensors_hooks("none here"):
        with pytest.raises(RuntimeError, match="none here"):
            with graph.save_on_cpu():
                pass
    with graph.save_on_cpu():
        y = x.clone().exp()
        z = y.square()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()


def test_a_leaf_chooses_the_dtype_of_its_gradient():
    w = torch.ones(3, requires_grad=True)
    w.grad_dtype = torch.float64
    (w * 2).sum().backward()
    (w * 2).sum().backward()
    assert w.grad.dtype == torch.float64 and w.grad.tolist() == [4.0] * 3
    assert torch.autograd.grad((w * 2).sum(), w)[0].dtype == torch.float64
    with pytest.raises(RuntimeError, match="already a gradient"):
        w.grad_dtype = torch.float16


@pytest.mark.parametrize("changed", ["image", "grid"])
def test_sampling_notices_changes_before_backward(changed):
    image = torch.ones(1, 1, 2, 2, requires_grad=True) * 2
    grid = torch.zeros(1, 1, 1, 2)
    out = torch.nn.functional.grid_sample(image, grid, align_corners=False).sum()
    (image if changed == "image" else grid).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


@pytest.mark.parametrize(
    "pattern, sizes, shape",
    [
        ("b h w c -> b c h w", {}, (2, 3, 4, 6)),
        ("b (h k) w c -> (b k) h w c", {"k": 2}, (4, 2, 6, 3)),
        ("b ... c -> c ... b", {}, (3, 4, 6, 2)),
        ("... c -> (...) 1 c", {}, (48, 1, 3)),
    ],
)
def test_rearrange(pattern, sizes, shape):
    x = torch.arange(144).reshape(2, 4, 6, 3)
    out = torch.func.rearrange(x, pattern, **sizes)
    assert tuple(out.shape) == shape
    import einops

    assert out.tolist() == einops.rearrange(x.numpy(), pattern, **sizes).tolist()
    with pytest.raises(ValueError, match="rearrange"):
        torch.func.rearrange(x, pattern + " z")
