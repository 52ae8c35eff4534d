"""``intel_extension_for_pytorch``: its ``optimize`` and the names that training scripts use. Kernels are tuned already."""

import functools

from . import _C, cpu, xpu  # noqa: F401
from ._version import __version__  # noqa: F401


#: Options that choose among IPEX's kernels and change no result.
_HINTS = (
    "auto_kernel_selection concat_linear conv_bn_folding fuse_update_step graph_mode linear_bn_folding optimize_lstm replace_dropout_with_identity "
    "sample_input split_master_weight_for_bf16 weights_prepack"
).split()


def optimize(model, dtype=None, optimizer=None, level="O1", inplace=False, **kwargs):
    """The model, and the optimizer if one is given.

    With a ``dtype`` of bfloat16 or float16 and no optimizer the model is converted. With an optimizer its forward runs under autocast to that dtype:
    parameters stay in float32, as the master weights that IPEX keeps. The model itself is changed, as with ``inplace=True``.
    """
    unknown = sorted(set(kwargs) - set(_HINTS))
    if unknown:
        raise TypeError(f"optimize: unexpected arguments {', '.join(unknown)}; known ones beside dtype, optimizer, level and inplace are {', '.join(_HINTS)}")
    if dtype not in (None, _C.float32, _C.bfloat16, _C.float16):
        raise ValueError(f"optimize: dtype must be torch.bfloat16, torch.float16 or torch.float32, not {dtype}")
    low = dtype in (_C.bfloat16, _C.float16)
    if optimizer is None:
        return model.to(dtype) if low else model
    if low:
        _autocast_forward(model, dtype)
    return model, optimizer


def _autocast_forward(model, dtype):
    """Makes the model's forward run under autocast, on the device of its parameters."""
    from . import amp

    forward = model.forward

    @functools.wraps(forward)
    def lowered(*args, **kwargs):
        device = next((parameter.device.type for parameter in model.parameters()), "cpu")
        with amp.autocast(device, dtype=dtype):
            return forward(*args, **kwargs)

    model.forward = lowered


def set_fp32_math_mode(*args, **kwargs):
    """Accepted: products of float32 are exact."""
