"""Communication hooks of ``DistributedDataParallel``."""

from enum import Enum
from functools import partial

from . import default_hooks, post_localSGD_hook, powerSGD_hook


class DDPCommHookType(Enum):
    """The hooks by name."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    POWER_SGD = partial(powerSGD_hook.powerSGD_hook)
    BATCHED_POWER_SGD = partial(powerSGD_hook.batched_powerSGD_hook)
    POST_LOCAL_SGD = partial(post_localSGD_hook.post_localSGD_hook)
    NOOP = partial(default_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type, model, state=None):
    """Registers a hook by name."""
    model.register_comm_hook(state, comm_hook_type.value.func)
