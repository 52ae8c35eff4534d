"""Pooling of regions of feature maps: RoIAlign, RoIPool and their position-sensitive kin."""

from ... import _C, nn

__all__ = ["PSRoIAlign", "PSRoIPool", "RoIAlign", "RoIPool", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"]


def _pair(value):
    return [int(value)] * 2 if isinstance(value, int) else [int(v) for v in value]


def _boxes(boxes):
    """Boxes ``[n, 5]`` that begin with the number of their image, from those or a list of boxes per image."""
    if isinstance(boxes, (list, tuple)):
        for one in boxes:
            if one.dim() != 2 or one.size(1) != 4:
                raise AssertionError("The shape of the tensor in the boxes list is not correct as List[Tensor[L, 4]]")
        numbers = [_C._torch.full((len(one), 1), float(at), dtype=one.dtype, device=one.device) for at, one in enumerate(boxes)]
        return _C._torch.cat([_C._torch.cat(numbers, 0), _C._torch.cat(list(boxes), 0)], 1)
    if not isinstance(boxes, _C.Tensor):
        raise AssertionError("boxes is expected to be a Tensor[L, 5] or a List[Tensor[K, 4]]")
    if boxes.dim() != 2 or boxes.size(1) != 5:
        raise AssertionError("The boxes tensor shape is not correct as Tensor[K, 5]")
    return boxes


def _pooled(input, boxes, output_size, pooling, scale, ratio=0, aligned=False, sensitive=False):
    return _C._nn._pool_regions(input, _boxes(boxes), _pair(output_size), pooling, float(scale), max(int(ratio), 0), aligned, sensitive)


def roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    """Means of bilinear samples of bins of regions."""
    return _pooled(input, boxes, output_size, "align", spatial_scale, sampling_ratio, bool(aligned))


def roi_pool(input, boxes, output_size, spatial_scale=1.0):
    """Maxima of bins of regions."""
    return _pooled(input, boxes, output_size, "max", spatial_scale)


def ps_roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1):
    """``roi_align`` where each bin reads channels of its own."""
    return _pooled(input, boxes, output_size, "align", spatial_scale, sampling_ratio, sensitive=True)


def ps_roi_pool(input, boxes, output_size, spatial_scale=1.0):
    """Means of bins of regions where each bin reads channels of its own."""
    return _pooled(input, boxes, output_size, "mean", spatial_scale, sensitive=True)


class _Pooling(nn.Module):
    """A pooling with its options."""

    _options = ("output_size", "spatial_scale")

    def __init__(self, *args, **kwargs):
        super().__init__()
        given = {**self._defaults, **dict(zip(self._options, args)), **kwargs}
        unknown = [name for name in given if name not in self._options]
        if unknown or len(args) > len(self._options) or len(given) < len(self._options):
            raise TypeError(f"{type(self).__name__}() takes the arguments {', '.join(self._options)}")
        for name in self._options:
            setattr(self, name, given[name])

    _defaults = {}

    def forward(self, input, rois):
        return self._function(input, rois, **{name: getattr(self, name) for name in self._options})

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in self._options)})"


class RoIAlign(_Pooling):
    """``roi_align`` as a module."""

    _function, _options, _defaults = staticmethod(roi_align), ("output_size", "spatial_scale", "sampling_ratio", "aligned"), {"aligned": False}


class RoIPool(_Pooling):
    """``roi_pool`` as a module."""

    _function = staticmethod(roi_pool)


class PSRoIAlign(_Pooling):
    """``ps_roi_align`` as a module."""

    _function, _options = staticmethod(ps_roi_align), ("output_size", "spatial_scale", "sampling_ratio")


class PSRoIPool(_Pooling):
    """``ps_roi_pool`` as a module."""

    _function = staticmethod(ps_roi_pool)
