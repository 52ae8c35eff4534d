"""``checkpoint_wrapper``: a module whose activations are recomputed in backward, or kept on the CPU, with the names of the module within."""

import enum
import functools

from .... import nn
from ....autograd.graph import save_on_cpu
from ....utils.checkpoint import checkpoint
from ...fsdp import wrap

__all__ = ["ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing", "checkpoint_wrapper", "offload_wrapper"]

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(enum.Enum):
    """Whether ``checkpoint`` is reentrant."""

    REENTRANT, NO_REENTRANT = enum.auto(), enum.auto()


def _renamed(state, old, new):
    for key in [key for key in state if key.startswith(old)]:
        state[new + key[len(old):]] = state.pop(key)


class ActivationWrapper(nn.Module):
    """A module around another, without a part in the names of state dicts."""

    def __init__(self, mod):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(lambda module, state, prefix, *rest: _renamed(state, prefix + _CHECKPOINT_PREFIX, prefix))
        self.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: _renamed(state, prefix, prefix + _CHECKPOINT_PREFIX))

    def forward(self, *args, **kwargs):
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _CHECKPOINT_WRAPPED_MODULE:
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key):
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args, **kwargs):
        """The parameters by the names that they have without the wrapper."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter


class CheckpointWrapper(ActivationWrapper):
    """Recomputes the module in backward."""

    def __init__(self, mod, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = functools.partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args, **kwargs):
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:
            # Reentrant checkpoints take positional arguments only.
            names, count = list(kwargs), len(args)
            return self.checkpoint_fn(lambda *given: self._checkpoint_wrapped_module(*given[:count], **dict(zip(names, given[count:]))), *args, *kwargs.values())
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """Keeps the activations of the module in the memory of the CPU."""

    def forward(self, *args, **kwargs):
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(module, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
    """A module that recomputes its activations in backward. Further arguments are those of ``torch.utils.checkpoint.checkpoint``."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module):
    """A module whose activations are in the memory of the CPU between the passes."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda _: True, auto_wrap_policy=None):
    """Wraps the modules within a model that ``check_fn`` or a policy of FSDP chooses, in place. The model itself is not wrapped."""
    policy = auto_wrap_policy or functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=check_fn)
    chosen = []
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is not None and policy(module=child, recurse=False, nonwrapped_numel=sum(p.numel() for p in child.parameters())):
                chosen.append((parent, name, child))
    for parent, name, child in chosen:
        parent._modules[name] = checkpoint_wrapper_fn(child)
