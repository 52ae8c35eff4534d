"""Anchors: boxes around each pixel of a feature map."""

import math

from .... import _C, nn
from ....functional import meshgrid

_torch = _C._torch


class AnchorGenerator(nn.Module):
    """Boxes of sizes and ratios (height over width) around each pixel, for each map."""

    def __init__(self, sizes=((128, 256, 512),), aspect_ratios=((0.5, 1.0, 2.0),)):
        super().__init__()
        if not isinstance(sizes[0], (list, tuple)):
            sizes = tuple((s,) for s in sizes)
        if not isinstance(aspect_ratios[0], (list, tuple)):
            aspect_ratios = (aspect_ratios,) * len(sizes)
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [self.generate_anchors(s, r) for s, r in zip(sizes, aspect_ratios)]

    def generate_anchors(self, scales, aspect_ratios, dtype=_C.float32, device=None):
        """Boxes around zero, in whole pixels."""
        scales, ratios = (_C.tensor(v, dtype=dtype, device=device) for v in (list(scales), list(aspect_ratios)))
        height = ratios.sqrt()
        sides = [(r[:, None] * scales[None]).view(-1) for r in (1 / height, height)]
        return (_torch.stack([-sides[0], -sides[1], sides[0], sides[1]], dim=1) / 2).round()

    def set_cell_anchors(self, dtype, device):
        self.cell_anchors = [cell.to(dtype=dtype, device=device) for cell in self.cell_anchors]

    def num_anchors_per_location(self):
        return [len(s) * len(r) for s, r in zip(self.sizes, self.aspect_ratios)]

    def grid_anchors(self, grid_sizes, strides):
        """The boxes of each map, row by row."""
        if not len(grid_sizes) == len(strides) == len(self.cell_anchors):
            raise AssertionError(
                "Anchors should be Tuple[Tuple[int]] because each feature map could potentially have different sizes and aspect ratios. There needs to be a match "
                "between the number of feature maps passed and the number of sizes / aspect ratios specified."
            )
        found = []
        for (height, width), (down, across), base in zip(grid_sizes, strides, self.cell_anchors):
            ys, xs = (_torch.arange(0, n, dtype=_C.int32, device=base.device) * s for n, s in ((height, down), (width, across)))
            y, x = (t.reshape(-1) for t in meshgrid(ys, xs, indexing="ij"))
            found.append((_torch.stack([x, y, x, y], dim=1).view(-1, 1, 4) + base.view(1, -1, 4)).reshape(-1, 4))
        return found

    def forward(self, image_list, feature_maps):
        sizes, image = [m.shape[-2:] for m in feature_maps], image_list.tensors.shape[-2:]
        strides = [[image[0] // g[0], image[1] // g[1]] for g in sizes]
        self.set_cell_anchors(feature_maps[0].dtype, feature_maps[0].device)
        boxes = _torch.cat(self.grid_anchors(sizes, strides))
        return [boxes for _ in image_list.image_sizes]


class DefaultBoxGenerator(nn.Module):
    """SSD's boxes: sizes relative to the image, for each map."""

    def __init__(self, aspect_ratios, min_ratio=0.15, max_ratio=0.9, scales=None, steps=None, clip=True):
        super().__init__()
        if steps is not None and len(aspect_ratios) != len(steps):
            raise ValueError("aspect_ratios and steps should have the same length")
        self.aspect_ratios, self.steps, self.clip = aspect_ratios, steps, clip
        count = len(aspect_ratios)
        if scales:
            self.scales = scales
        elif count > 1:
            self.scales = [min_ratio + (max_ratio - min_ratio) * k / (count - 1.0) for k in range(count)] + [1.0]
        else:
            self.scales = [min_ratio, max_ratio]
        self._wh_pairs = self._generate_wh_pairs(count)

    def _generate_wh_pairs(self, num_outputs, dtype=_C.float32, device=None):
        found = []
        for k in range(num_outputs):
            here, next_one = self.scales[k], math.sqrt(self.scales[k] * self.scales[k + 1])
            pairs = [[here, here], [next_one, next_one]]
            for ratio in self.aspect_ratios[k]:
                width, height = here * math.sqrt(ratio), here / math.sqrt(ratio)
                pairs += [[width, height], [height, width]]
            found.append(_C.tensor(pairs, dtype=dtype, device=device))
        return found

    def num_anchors_per_location(self):
        return [2 + 2 * len(r) for r in self.aspect_ratios]

    def _grid_default_boxes(self, grid_sizes, image_size, dtype=_C.float32):
        """Centres and sides, relative to the image."""
        found = []
        for k, (height, width) in enumerate(grid_sizes):
            across, down = (image_size[1] / self.steps[k], image_size[0] / self.steps[k]) if self.steps is not None else (width, height)
            xs, ys = (((_torch.arange(0, n) + 0.5) / f).to(dtype=dtype) for n, f in ((width, across), (height, down)))
            y, x = (t.reshape(-1) for t in meshgrid(ys, xs, indexing="ij"))
            pairs = self._wh_pairs[k].clamp(min=0, max=1) if self.clip else self._wh_pairs[k]
            places = _torch.stack([x, y], -1)[:, None].expand(-1, len(pairs), -1)
            found.append(_torch.cat([places, pairs[None].expand(len(places), -1, -1)], -1).reshape(-1, 4))
        return _torch.cat(found)

    def forward(self, image_list, feature_maps):
        image = image_list.tensors.shape[-2:]
        boxes = self._grid_default_boxes([m.shape[-2:] for m in feature_maps], image, dtype=feature_maps[0].dtype).to(feature_maps[0].device)
        size = _C.tensor([image[1], image[0]], dtype=boxes.dtype, device=boxes.device)
        half = 0.5 * boxes[:, 2:]
        boxes = _torch.cat([(boxes[:, :2] - half) * size, (boxes[:, :2] + half) * size], -1)
        return [boxes for _ in image_list.image_sizes]

    def __repr__(self):
        return f"DefaultBoxGenerator(aspect_ratios={self.aspect_ratios}, clip={self.clip}, scales={self.scales}, steps={self.steps})"
