"""``functorch``: what became ``torch.func``, and its older names."""

from .. import _C
from .._functions import _missing
from ..func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap  # noqa: F401
from ..nn import Module

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "make_functional", "make_functional_with_buffers", "stack_module_state", "vjp", "vmap",
]


class FunctionalModuleWithBuffers(Module):
    """A module whose parameters and buffers are arguments."""

    def __init__(self, model):
        super().__init__()
        # Not a submodule: it has no state of its own.
        object.__setattr__(self, "stateless_model", model)
        self.param_names = [name for name, _ in model.named_parameters()]
        self.buffer_names = [name for name, _ in model.named_buffers()]

    def forward(self, params, buffers, *args, **kwargs):
        state = {**dict(zip(self.param_names, params)), **dict(zip(self.buffer_names, buffers))}
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module whose parameters are arguments."""

    def forward(self, params, *args, **kwargs):
        return functional_call(self.stateless_model, dict(zip(self.param_names, params)), args, kwargs)


def make_functional(model, disable_autograd_tracking=False):
    """A function of parameters and inputs, and the parameters."""
    if any(True for _ in model.buffers()):
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    return FunctionalModule(model), _values(model.parameters(), disable_autograd_tracking)


def make_functional_with_buffers(model, disable_autograd_tracking=False):
    """A function of parameters, buffers and inputs; the parameters; the buffers."""
    return FunctionalModuleWithBuffers(model), _values(model.parameters(), disable_autograd_tracking), tuple(model.buffers())


def _values(parameters, frozen):
    return tuple(p.detach().requires_grad_(p.requires_grad and not frozen) for p in parameters)


def combine_state_for_ensemble(models):
    """A function for ``vmap`` over models of one kind, with their stacked parameters and buffers."""
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    made = [make_functional_with_buffers(model) for model in models]
    parameters, buffers = (tuple(_C._torch.stack(list(values)) for values in zip(*(one[at] for one in made))) for at in (1, 2))
    return made[0][0], parameters, buffers


def __getattr__(name):
    return _missing("functorch", name)
