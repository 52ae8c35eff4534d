"""``torch.distributed.tensor._random``: random numbers of distributed tensors. Each rank draws the whole from the generator of its process and keeps its part."""

from ... import _C

__all__ = ["is_rng_supported_mesh", "manual_seed"]


def is_rng_supported_mesh(device_mesh):
    """Whether a mesh's tensors can be filled at random."""
    return True


def manual_seed(seed, device_mesh):
    """Seeds the generator. Ranks that share tensors need the same seed."""
    if not isinstance(seed, int):
        raise TypeError(f"manual_seed: the seed should be an int, not {type(seed).__name__}")
    _C._manual_seed(seed)
