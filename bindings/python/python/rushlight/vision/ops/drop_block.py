"""DropBlock: drops squares or cubes of feature maps."""

from ... import _C, nn

__all__ = ["DropBlock2d", "DropBlock3d", "drop_block2d", "drop_block3d"]


def _drop(input, p, block_size, inplace, eps, training, dims):
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}.")
    if input.ndim != dims + 2:
        raise ValueError(f"input should be {dims + 2} dimensional. Got {input.ndim} dimensions.")
    if not training or p == 0.0:
        return input
    sizes = list(input.shape[2:])
    side = min(block_size, *sizes)
    chance = p
    for n in sizes:
        chance *= n / (n - side + 1)
    chance /= side**dims
    centres = _C._torch.empty([*input.shape[:2], *(n - side + 1 for n in sizes)], dtype=input.dtype, device=input.device).bernoulli_(chance)
    centres = nn.functional.pad(centres, [side // 2] * (2 * dims), value=0)
    pool = nn.functional.max_pool2d if dims == 2 else nn.functional.max_pool3d
    kept = 1 - pool(centres, kernel_size=side, stride=1, padding=side // 2)
    kept = kept[(..., *(slice(0, n) for n in sizes))]
    scale = kept.numel() / (eps + kept.sum())
    return input.mul_(kept).mul_(scale) if inplace else input * kept * scale


def drop_block2d(input, p, block_size, inplace=False, eps=1e-06, training=True):
    """Drops squares of ``block_size`` of images, a fraction of about ``p`` in all."""
    return _drop(input, p, block_size, inplace, eps, training, 2)


def drop_block3d(input, p, block_size, inplace=False, eps=1e-06, training=True):
    """Drops cubes of ``block_size`` of volumes, a fraction of about ``p`` in all."""
    return _drop(input, p, block_size, inplace, eps, training, 3)


class DropBlock2d(nn.Module):
    """``drop_block2d`` as a module."""

    _function = staticmethod(drop_block2d)

    def __init__(self, p, block_size, inplace=False, eps=1e-06):
        super().__init__()
        self.p, self.block_size, self.inplace, self.eps = p, block_size, inplace, eps

    def forward(self, input):
        return self._function(input, self.p, self.block_size, self.inplace, self.eps, self.training)

    def __repr__(self):
        return f"{type(self).__name__}(p={self.p}, block_size={self.block_size}, inplace={self.inplace})"


class DropBlock3d(DropBlock2d):
    """``drop_block3d`` as a module."""

    _function = staticmethod(drop_block3d)
