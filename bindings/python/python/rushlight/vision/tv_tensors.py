"""``torchvision.tv_tensors``, whose classes are absent: no tensor is one of them."""

from .._absent import absent_class

__all__ = ["BoundingBoxes", "BoundingBoxFormat", "Image", "KeyPoints", "Mask", "TVTensor", "Video", "set_return_type", "wrap"]


def __getattr__(name):
    if name not in __all__ or name in ("set_return_type", "wrap"):
        raise AttributeError(f"module 'torchvision.tv_tensors' has no attribute {name!r}")
    made = absent_class(f"torchvision.tv_tensors.{name}", "transforms are those of plain tensors and images of PIL")
    globals()[name] = made
    return made


def wrap(wrappee, *, like, **kwargs):
    """A tensor of the class of another: itself, as there are no other classes."""
    return wrappee


def set_return_type(return_type):
    """Does nothing: results are plain tensors."""
