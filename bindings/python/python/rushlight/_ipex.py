"""``intel_extension_for_pytorch``: its ``optimize`` and the names that training scripts use. Kernels are tuned already."""

from . import _C, cpu, xpu  # noqa: F401
from ._version import __version__  # noqa: F401


def optimize(model, dtype=None, optimizer=None, level="O1", inplace=False, **kwargs):
    """The model (and the optimizer) as they are; in bfloat16 or float16 if a dtype is given and there is no optimizer."""
    if optimizer is not None:
        return model, optimizer
    if dtype in (_C.bfloat16, _C.float16):
        model = model.to(dtype)
    return model


def set_fp32_math_mode(*args, **kwargs):
    """Accepted: products of float32 are exact."""
