"""Hooks of modules: handles that remove them, and the graph nodes that backward hooks use."""

from __future__ import annotations

from collections import OrderedDict

from ... import _C
from ...autograd.function import Function
from ...utils.hooks import RemovableHandle

Tensor = _C.Tensor

def register(hooks: OrderedDict, hook, *, prepend: bool = False, flags: tuple = ()) -> RemovableHandle:
    """Appends or prepends a hook; ``flags`` are pairs: a dict of ids, and whether this hook belongs to it."""
    handle = RemovableHandle(hooks, extra_dict=[ids for ids, _ in flags])
    hooks[handle.id] = hook
    for ids, belongs in flags:
        if belongs:
            ids[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class _Boundary(Function):
    """Passes tensors through and calls a function with their gradients."""

    @staticmethod
    def forward(ctx, on_gradients, *tensors):
        ctx.on_gradients = on_gradients
        ctx.set_materialize_grads(False)
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        return (None, *ctx.on_gradients(gradients))


def _mark(values: tuple, on_gradients) -> tuple[tuple, bool]:
    """``values`` with their tensors behind a boundary, and whether one of them takes part in differentiation."""
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not (_C.is_grad_enabled() and any(values[i].requires_grad for i in places)):
        return values, False

    def called(gradients):
        whole = [None] * len(values)
        for place, gradient in zip(places, gradients):
            whole[place] = gradient
        found = on_gradients(tuple(whole))
        return tuple(found[i] for i in places)

    marked = list(values)
    # Tensors without gradients (indices, masks) are unchanged.
    places = [i for i in places if values[i].requires_grad]
    for place, tensor in zip(places, _Boundary.apply(called, *(values[i] for i in places))):
        marked[place] = tensor
    return tuple(marked), True


class BackwardHooks:
    """One call of a module with full backward hooks: ``inputs`` and ``outputs`` mark its inputs and outputs."""

    def __init__(self, module, pre_hooks: list, hooks: list):
        self.module, self.pre_hooks, self.hooks = module, pre_hooks, hooks
        self.grad_output = None
        self.inputs_differentiable = False
        self.input_count = 0

    def inputs(self, args: tuple) -> tuple:
        self.input_count = len(args)
        args, self.inputs_differentiable = _mark(args, self._input_gradients)
        return args

    def outputs(self, result):
        single = not isinstance(result, tuple)
        marked, differentiable = _mark((result,) if single else result, self._output_gradients)
        if not differentiable:
            return result
        if single:
            return marked[0]
        return type(result)(*marked) if hasattr(result, "_fields") else marked

    def _output_gradients(self, gradients: tuple) -> tuple:
        for hook in self.pre_hooks:
            changed = hook(self.module, gradients)
            if changed is not None:
                gradients = (changed,) if isinstance(changed, Tensor) else tuple(changed)
        self.grad_output = gradients
        if not self.inputs_differentiable:
            self._run((None,) * self.input_count)
        return gradients

    def _input_gradients(self, gradients: tuple) -> tuple:
        # Without gradients of the outputs (only a part was differentiated) hooks are not called.
        return gradients if self.grad_output is None else self._run(gradients)

    def _run(self, grad_input: tuple) -> tuple:
        for hook in self.hooks:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is None:
                continue
            changed = (changed,) if isinstance(changed, Tensor) else tuple(changed)
            if len(changed) != len(grad_input):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(changed)}, but expected {len(grad_input)}"
                )
            grad_input = changed
        return grad_input
