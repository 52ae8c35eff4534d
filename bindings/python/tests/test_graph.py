"""The recorded graph as Python sees it: nodes, contexts of functions, retained gradients, the object of a tensor."""

import gc
import sys
import weakref

import pytest

import rushlight as torch
from rushlight import nn


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.note = "kept"
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


def walk(node, seen):
    """Names of all nodes, as torchviz walks them."""
    if node is None or node in seen:
        return seen
    seen[node] = type(node).__name__
    for parent, _ in node.next_functions:
        walk(parent, seen)
    return seen


def test_a_model_can_be_walked():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    seen = walk(model(torch.ones(2, 3)).sum().grad_fn, {})
    leaves = {id(node.variable) for node in seen if hasattr(node, "variable")}
    assert leaves == {id(p) for p in model.parameters()}
    assert "SumBackward0" in seen.values() and "ReluBackward0" in seen.values()
    assert "grad_fn=<" in repr(model(torch.ones(2, 3))) and "Backward0>" in repr(model(torch.ones(2, 3)))


def test_the_node_of_a_function_is_its_context():
    x = torch.tensor(2.0, requires_grad=True)
    y = Cube.apply(x)
    assert y.grad_fn.name() == "CubeBackward" and y.grad_fn.note == "kept" and y.grad_fn.saved_tensors[0] is x
    assert x.exp().grad_fn._saved_result.item() == x.exp().item()
    assert not hasattr(x.exp().grad_fn, "_saved_dim")
    with pytest.raises(AttributeError, match="keeps _saved_result"):
        x.exp().grad_fn._saved_self_sizes


def test_nodes_keep_metadata_and_free_their_graph():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.grad_fn.metadata["key"] = 1
    gc.collect()
    assert y.grad_fn.metadata == {"key": 1}
    freed = weakref.ref(y)
    del y
    gc.collect()
    assert freed() is None


def test_hooks_of_nodes_raise_and_are_removed():
    x = torch.ones(2, requires_grad=True)
    y = x * 2

    def fail(*gradients):
        raise KeyError("mine")

    handle = y.grad_fn.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        y.sum().backward()
    y = x * 2
    with y.grad_fn.register_prehook(fail):
        pass
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]
    handle.remove()


def test_the_object_of_a_tensor_is_found_again():
    layer = nn.Linear(2, 2)
    assert layer.weight[0]._base is layer.weight and layer.weight.t()._base is layer.weight
    x = torch.arange(4.0)
    view = x[1:]
    before = sys.getrefcount(x)
    for _ in range(10):
        found = view._base is x
    after = sys.getrefcount(x)
    assert found and after == before
    del x
    gc.collect()
    # The base outlives its object; a new object stands for it.
    assert view._base.tolist() == [0, 1, 2, 3] and view._base is not view
    base = view._base
    assert view._base is base


def test_a_retained_gradient_follows_views():
    x = torch.ones(4, requires_grad=True)
    y = x * 1
    part = y[:2]
    part.retain_grad()
    y.mul_(3)
    (part * torch.tensor([1.0, 10.0])).sum().backward()
    assert part.grad.tolist() == [1, 10] and x.grad.tolist() == [3, 30, 0, 0]


def test_edges():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    edge = torch.autograd.graph.get_gradient_edge(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    (found,) = torch.autograd.grad((y * 3).sum(), edge)
    assert found.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="needs its gradient"):
        torch.autograd.grad(edge, x)


def test_a_pass_for_some_gradients_computes_no_others():
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    y, seen = x @ w, []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append([g is None for g in inputs]))
    torch.autograd.grad(y.sum(), x, retain_graph=True)
    torch.autograd.grad(y.sum(), w, retain_graph=True)
    y.sum().backward()
    assert seen == [[False, True], [True, False], [False, False]]
