"""Images and targets as detectors take them: normalised, resized, padded to one size; and results in the images' own sizes."""

import math

from .... import _C, nn
from .image_list import ImageList
from .roi_heads import paste_masks_in_image

_torch = _C._torch
_resize = nn.functional.interpolate


def _ratios(original_size, new_size, like):
    return [_C.tensor(float(n), dtype=like.dtype, device=like.device) / float(o) for n, o in zip(new_size, original_size)]


def resize_boxes(boxes, original_size, new_size):
    """Boxes of an image that has been resized."""
    height, width = _ratios(original_size, new_size, boxes)
    return boxes * _torch.stack([width, height, width, height])


def resize_keypoints(keypoints, original_size, new_size):
    """Key points of an image that has been resized."""
    height, width = _ratios(original_size, new_size, keypoints)
    return keypoints * _torch.stack([width, height, _torch.ones_like(width)])


class GeneralizedRCNNTransform(nn.Module):
    """Normalises and resizes images so that the short side is ``min_size`` and the long side at most ``max_size``, or to a fixed size."""

    def __init__(self, min_size, max_size, image_mean, image_std, size_divisible=32, fixed_size=None, **kwargs):
        super().__init__()
        self.min_size = tuple(min_size) if isinstance(min_size, (list, tuple)) else (min_size,)
        self.max_size, self.image_mean, self.image_std = max_size, image_mean, image_std
        self.size_divisible, self.fixed_size = size_divisible, fixed_size
        self._skip_resize = kwargs.pop("_skip_resize", False)
        if kwargs:
            raise TypeError(f"GeneralizedRCNNTransform() got unexpected arguments {', '.join(kwargs)}")

    def forward(self, images, targets=None):
        images = list(images)
        targets = None if targets is None else [dict(t) for t in targets]
        for at, image in enumerate(images):
            if image.dim() != 3:
                raise ValueError(f"images is expected to be a list of 3d tensors of shape [C, H, W], got {image.shape}")
            image, target = self.resize(self.normalize(image), None if targets is None else targets[at])
            images[at] = image
            if targets is not None and target is not None:
                targets[at] = target
        sizes = [tuple(image.shape[-2:]) for image in images]
        return ImageList(self.batch_images(images, self.size_divisible), sizes), targets

    def normalize(self, image):
        if not image.is_floating_point():
            raise TypeError(f"Expected input images to be of floating type (in range [0, 1]), but found type {image.dtype} instead")
        mean, std = (_C.tensor(v, dtype=image.dtype, device=image.device)[:, None, None] for v in (self.image_mean, self.image_std))
        return (image - mean) / std

    def torch_choice(self, k):
        """One of a list at random, by the generator of tensors."""
        return k[int(_torch.empty(1).uniform_(0.0, float(len(k))).item())]

    def resize(self, image, target=None):
        height, width = image.shape[-2:]
        if self.training:
            if self._skip_resize:
                return image, target
            short = self.torch_choice(self.min_size)
        else:
            short = self.min_size[-1]
        if self.fixed_size is not None:
            how = {"size": (self.fixed_size[1], self.fixed_size[0])}
        else:
            # PyTorch computes the factor in single precision.
            sides = _C.tensor([float(height), float(width)])
            how = {"scale_factor": min(short / sides.min(), self.max_size / sides.max()).item(), "recompute_scale_factor": True}
        image = _resize(image[None], mode="bilinear", align_corners=False, **how)[0]
        if target is None:
            return image, target
        if "masks" in target:
            target["masks"] = _resize(target["masks"][:, None].float(), **how)[:, 0].to(_C.uint8)
        target["boxes"] = resize_boxes(target["boxes"], (height, width), image.shape[-2:])
        if "keypoints" in target:
            target["keypoints"] = resize_keypoints(target["keypoints"], (height, width), image.shape[-2:])
        return image, target

    def max_by_axis(self, the_list):
        return [max(values) for values in zip(*the_list)]

    def batch_images(self, images, size_divisible=32):
        """One tensor of all images, padded with zeros."""
        channels, *sides = self.max_by_axis([list(image.shape) for image in images])
        sides = [int(math.ceil(side / size_divisible) * size_divisible) for side in sides]
        batch = _torch.zeros((len(images), channels, *sides), dtype=images[0].dtype, device=images[0].device)
        for at, image in enumerate(images):
            batch[at, :, : image.shape[1], : image.shape[2]] = image
        return batch

    def postprocess(self, result, image_shapes, original_image_sizes):
        if self.training:
            return result
        for found, size, original in zip(result, image_shapes, original_image_sizes):
            found["boxes"] = resize_boxes(found["boxes"], size, original)
            if "masks" in found:
                found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], original)
            if "keypoints" in found:
                found["keypoints"] = resize_keypoints(found["keypoints"], size, original)
        return result

    def __repr__(self):
        size = f"Resize(min_size={self.min_size}, max_size={self.max_size}, mode='bilinear')"
        return f"GeneralizedRCNNTransform(\n    Normalize(mean={self.image_mean}, std={self.image_std})\n    {size}\n)"
