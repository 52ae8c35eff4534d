"""Checkpointed functions give what they give without."""

import pytest

import rushlight as torch
from rushlight.utils.checkpoint import checkpoint, checkpoint_sequential


def gradients(run, leaves):
    for leaf in leaves:
        leaf.grad = None
    torch.manual_seed(3)
    run().sum().backward()
    return [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradients_are_the_same_also_of_what_is_captured(use_reentrant):
    w = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(3, 4, requires_grad=True)
    calls = []

    def block(a, scale):
        calls.append(torch.is_grad_enabled())
        return torch.nn.functional.dropout((a @ w).tanh(), 0.5) * scale

    plain = gradients(lambda: block(x, 2) * 3, [w, x])
    calls.clear()
    again = gradients(lambda: checkpoint(block, x, 2, use_reentrant=use_reentrant) * 3, [w, x])
    assert len(calls) == 2 and calls[1]
    for a, b in zip(plain, again):
        assert torch.allclose(a, b)


def test_inputs_that_need_no_gradient_and_nested_values():
    w = torch.randn(3, requires_grad=True)

    def block(inputs, *, factor):
        return {"out": inputs["x"] * w * factor, "same": inputs["x"], "text": "kept"}

    result = checkpoint(block, {"x": torch.ones(3)}, factor=2.0, use_reentrant=False)
    assert result["text"] == "kept" and not result["same"].requires_grad and result["out"].requires_grad
    result["out"].sum().backward()
    assert w.grad.tolist() == [2.0, 2.0, 2.0]
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not checkpoint(lambda x: x * w, torch.ones(3), use_reentrant=True).requires_grad
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(lambda x: x * w, torch.ones(3, requires_grad=True))
    with pytest.raises(ValueError, match="Unexpected keyword arguments: factor"):
        checkpoint(block, {}, factor=1.0, use_reentrant=True)
    with torch.no_grad():
        assert not checkpoint(lambda x: x * w, torch.ones(3), use_reentrant=False).requires_grad


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_sequences(use_reentrant):
    weights = [torch.randn(4, 4, requires_grad=True) for _ in range(5)]
    functions = [lambda x, w=w: (x @ w).tanh() for w in weights]
    x = torch.randn(2, 4, requires_grad=True)

    def plain():
        y = x
        for f in functions:
            y = f(y)
        return y

    expected = gradients(plain, [x, *weights])
    for segments in (1, 2, 3, 5, 7):
        found = gradients(lambda: checkpoint_sequential(functions, segments, x, use_reentrant=use_reentrant), [x, *weights])
        assert all(torch.allclose(a, b) for a, b in zip(expected, found))


def test_a_function_that_changes_is_an_error():
    sizes = iter([2, 3])
    x = torch.ones(3, requires_grad=True)
    y = checkpoint(lambda a: a[: next(sizes)], x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="must not depend on changing state"):
        y.sum().backward()


def test_other_parts_of_utils():
    x = torch.arange(3.0)
    assert torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
    with pytest.raises(NotImplementedError, match="torch.load"):
        torch.utils.model_zoo.load_url("file")
    with pytest.raises(AttributeError, match="nothing_like_it"):
        torch.utils.nothing_like_it
