"""Graphs of custom functions are freed: nothing in a node keeps the node alive."""

import gc
import weakref

import rushlight as torch


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[1]


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx, g):
        return g, g


class Marker:
    """Dies with the node that it was attached to."""


def dies(make):
    marker = Marker()
    gone = weakref.ref(marker)
    made = make()
    made.grad_fn.metadata["marker"] = marker
    del made, marker
    gc.collect()
    return gone() is None


def test_a_graph_without_backward_is_freed():
    x = torch.ones(3, requires_grad=True)
    assert dies(lambda: Exp.apply(x))
    assert dies(lambda: Exp.apply(Exp.apply(x)))
    assert dies(lambda: Add.apply(x * 1, x))


def test_a_view_that_was_changed_is_freed():
    x = torch.ones(3, requires_grad=True)

    def changed():
        y = x * 1
        Add.apply(y[:2], x[:2])
        return y

    assert dies(changed)


def test_arguments_do_not_live_as_long_as_the_graph():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            return x * factor.value

        @staticmethod
        def backward(ctx, g):
            return g, None

    class Factor:
        value = 2.0

    factor = Factor()
    gone = weakref.ref(factor)
    y = Scale.apply(torch.ones(2, requires_grad=True), factor)
    del factor
    gc.collect()
    assert gone() is None and y.requires_grad


def test_saved_tensors_are_freed_by_backward():
    x = torch.ones(3, requires_grad=True)
    y = Exp.apply(x)
    node = y.grad_fn
    assert node.saved_tensors[0] is x and node.saved_tensors[1].tolist() == y.tolist()
    y.sum().backward()
    try:
        node.saved_tensors
    except RuntimeError as error:
        assert "have already been freed" in str(error)
    else:
        raise AssertionError("saved tensors were kept")
