"""``deepspeed.checkpointing``: activations computed again in the backward pass."""

from ..utils.checkpoint import checkpoint as _checkpoint

__all__ = ["checkpoint", "configure", "is_configured"]

_configured = False


def configure(
    mpu_=None, deepspeed_config=None, partition_activations=None, contiguous_checkpointing=None, num_checkpoints=None, checkpoint_in_cpu=None, synchronize=None,
    profile=None,
):
    """Accepts settings that change nothing; those that would are refused by name."""
    global _configured
    given = {"partition_activations": partition_activations, "contiguous_checkpointing": contiguous_checkpointing, "checkpoint_in_cpu": checkpoint_in_cpu}
    for name, value in given.items():
        if value:
            raise NotImplementedError(f"deepspeed.checkpointing.configure: {name} is not supported; activations stay where they are")
    _configured = True


def is_configured():
    """Whether ``configure`` was called."""
    return _configured


def checkpoint(function, *args):
    """Runs a function without keeping its activations: the backward pass computes them again."""
    return _checkpoint(function, *args, use_reentrant=False)
