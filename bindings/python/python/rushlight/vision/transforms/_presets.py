"""The transforms of images that published weights expect."""

from ... import _C, nn
from . import functional as F
from .functional import InterpolationMode

__all__ = ["ImageClassification", "ObjectDetection", "SemanticSegmentation", "VideoClassification"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _tensor(img):
    return img if isinstance(img, _C.Tensor) else F.pil_to_tensor(img)


class ObjectDetection(nn.Module):
    """Values between 0 and 1."""

    def forward(self, img):
        return F.convert_image_dtype(_tensor(img), _C.float32)


class ImageClassification(nn.Module):
    """Resized, cropped in the middle and normalised."""

    def __init__(self, *, crop_size, resize_size=256, mean=_MEAN, std=_STD, interpolation=InterpolationMode.BILINEAR, antialias=True):
        super().__init__()
        self.crop_size, self.resize_size = [crop_size], [resize_size]
        self.mean, self.std, self.interpolation, self.antialias = list(mean), list(std), interpolation, antialias

    def forward(self, img):
        img = F.resize(img, self.resize_size, interpolation=self.interpolation, antialias=self.antialias)
        img = F.convert_image_dtype(_tensor(F.center_crop(img, self.crop_size)), _C.float32)
        return F.normalize(img, mean=self.mean, std=self.std)


class SemanticSegmentation(nn.Module):
    """Resized and normalised."""

    def __init__(self, *, resize_size, mean=_MEAN, std=_STD, interpolation=InterpolationMode.BILINEAR, antialias=True):
        super().__init__()
        self.resize_size = None if resize_size is None else [resize_size]
        self.mean, self.std, self.interpolation, self.antialias = list(mean), list(std), interpolation, antialias

    def forward(self, img):
        if self.resize_size is not None:
            img = F.resize(img, self.resize_size, interpolation=self.interpolation, antialias=self.antialias)
        return F.normalize(F.convert_image_dtype(_tensor(img), _C.float32), mean=self.mean, std=self.std)


class VideoClassification(nn.Module):
    """Frames resized, cropped in the middle and normalised; time after channels."""

    def __init__(self, *, crop_size, resize_size, mean=(0.43216, 0.394666, 0.37645), std=(0.22803, 0.22145, 0.216989), interpolation=InterpolationMode.BILINEAR):
        super().__init__()
        self.crop_size, self.resize_size = list(crop_size), list(resize_size)
        self.mean, self.std, self.interpolation = list(mean), list(std), interpolation

    def forward(self, vid):
        single = vid.ndim < 5
        vid = vid.unsqueeze(0) if single else vid
        batch, frames, channels, height, width = vid.shape
        vid = F.resize(vid.view(-1, channels, height, width), self.resize_size, interpolation=self.interpolation, antialias=False)
        vid = F.convert_image_dtype(F.center_crop(vid, self.crop_size), _C.float32)
        vid = F.normalize(vid, mean=self.mean, std=self.std)
        vid = vid.view(batch, frames, channels, *self.crop_size).permute(0, 2, 1, 3, 4)
        return vid.squeeze(0) if single else vid
