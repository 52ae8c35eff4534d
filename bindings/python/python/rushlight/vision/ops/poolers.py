"""RoIAlign over the levels of a pyramid."""

import math

from ... import _C, nn
from .boxes import box_area
from .regions import roi_align

__all__ = ["LevelMapper", "MultiScaleRoIAlign"]


class LevelMapper:
    """The level of a pyramid for a box, from its area: equation 1 of the paper on feature pyramids."""

    def __init__(self, k_min, k_max, canonical_scale=224, canonical_level=4, eps=1e-6):
        self.k_min, self.k_max, self.s0, self.lvl0, self.eps = k_min, k_max, canonical_scale, canonical_level, eps

    def __call__(self, boxlists):
        sides = _C._torch.cat([box_area(boxes) for boxes in boxlists]).sqrt()
        levels = (self.lvl0 + (sides / self.s0).log2() + self.eps).floor()
        return levels.clamp(min=self.k_min, max=self.k_max).to(_C.int64) - self.k_min


class MultiScaleRoIAlign(nn.Module):
    """``roi_align`` on the map of a pyramid that fits each box."""

    def __init__(self, featmap_names, output_size, sampling_ratio, *, canonical_scale=224, canonical_level=4):
        super().__init__()
        self.featmap_names, self.sampling_ratio = featmap_names, sampling_ratio
        self.output_size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
        self.scales = self.map_levels = None
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level

    def _setup(self, maps, image_shapes):
        size = [max(shape[d] for shape in image_shapes) for d in (0, 1)]
        # Maps are smaller than images by powers of two.
        self.scales = [2.0 ** round(math.log2(m.shape[-2] / size[0])) for m in maps]
        self.map_levels = LevelMapper(int(-math.log2(self.scales[0])), int(-math.log2(self.scales[-1])), self.canonical_scale, self.canonical_level)

    def forward(self, x, boxes, image_shapes):
        maps = [value for name, value in x.items() if name in self.featmap_names]
        if self.scales is None or self.map_levels is None:
            if not image_shapes:
                raise ValueError("images list should not be empty")
            self._setup(maps, image_shapes)
        numbers = [_C._torch.full((len(b), 1), float(at), dtype=b.dtype, device=b.device) for at, b in enumerate(boxes)]
        rois = _C._torch.cat([_C._torch.cat(numbers), _C._torch.cat(list(boxes))], 1)
        if len(maps) == 1:
            return roi_align(maps[0], rois, self.output_size, self.scales[0], self.sampling_ratio)
        levels = self.map_levels(boxes)
        found = _C._torch.zeros((len(rois), maps[0].shape[1], *self.output_size), dtype=maps[0].dtype, device=maps[0].device)
        for level, (one, scale) in enumerate(zip(maps, self.scales)):
            here = (levels == level).nonzero().squeeze(1)
            found = found.index_copy(0, here, roi_align(one, rois[here], self.output_size, scale, self.sampling_ratio))
        return found

    def __repr__(self):
        return f"MultiScaleRoIAlign(featmap_names={self.featmap_names}, output_size={self.output_size}, sampling_ratio={self.sampling_ratio})"
