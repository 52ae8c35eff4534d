"""``torch.nn.functional``: the functions behind layers. Most are rows of the compiled op table."""

import warnings

from .. import _C
from ._attention import multi_head_attention_forward  # noqa: F401
from ._bags import embedding, embedding_bag  # noqa: F401
from ._pooling import *  # noqa: F401,F403

_nn, _torch = _C._nn, _C._torch
globals().update({name: f for name, f in vars(_nn).items() if not name.startswith("__") and name != "embedding"})

Tensor = _C.Tensor
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}


def native_channel_shuffle(input, groups):
    """``channel_shuffle``."""
    return _nn.channel_shuffle(input, groups)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """The triplet margin loss with any distance."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _torch.minimum(far, distance(positive, negative))
    loss = (margin + near - far).clamp(min=0)
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()


def _corners(call):
    warnings.warn(
        "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if the old behavior "
        f"is desired. See the documentation of {call} for details.",
        stacklevel=3,
    )


def affine_grid(theta, size, align_corners=None):
    """The sampling grid of affine maps for an output of the given size: ``[batch, 2, 3]`` for images, ``[batch, 3, 4]`` for volumes."""
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size " + str(tuple(size))
        )
    d = len(size) - 2
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (d, d + 1):
        raise ValueError(f"Expected a batch of {d}D affine matrices of shape Nx{d}x{d + 1} for size {list(size)}. Got {theta.shape}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    if align_corners is None:
        _corners("affine_grid")
    return _nn._affine_grid(theta, list(size), bool(align_corners))


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Pixels of images, or voxels of volumes, at places between -1 and 1."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    if align_corners is None:
        _corners("grid_sample")
    return _nn._grid_sample(input, grid, mode, padding_mode, bool(align_corners))


def upsample_nearest(input, size=None, scale_factor=None):
    """``interpolate`` by nearest neighbours."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """Linear ``interpolate`` with aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def linear_cross_entropy(
    input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None, label_smoothing=0.0, options=None
):
    """The cross entropy of logits that a linear layer with weights ``[classes, ..., features]`` makes of the input; in chunks if ``options`` are given."""
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    classes, *inner, features = linear_weight.shape
    if input.shape[-1] != features:
        raise RuntimeError(
            f"expected equal input and linear_weight last dimensions (in_features), got {input.shape[-1]} and {features}, respectively"
        )
    if linear_bias is not None:
        if tuple(linear_bias.shape) != (classes, *inner):
            raise RuntimeError(f"expected linear_bias shape {(classes, *inner)}, got {tuple(linear_bias.shape)}")
        linear_bias = linear_bias.reshape(-1)
    if inner and input.dim() == 1:
        raise RuntimeError(f"a loss of several dimensions, of weights {tuple(linear_weight.shape)}, requires batched input, got {tuple(input.shape)}")
    shape = (*input.shape[:-1], classes, *inner)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if options is not None:
        from ._linear_loss import LinearCrossEntropyOptions, in_portions

        if not isinstance(options, LinearCrossEntropyOptions):
            raise TypeError(f"linear_cross_entropy: options must be LinearCrossEntropyOptions or None, not {type(options).__name__}")
        if input.dim() == 2 and not inner and reduction in ("none", "mean", "sum") and not (target.is_floating_point() and target.requires_grad):
            kept = -100 if ignore_index is None else ignore_index
            return in_portions(options, input, linear_weight, target, linear_bias, weight, reduction, kept, label_smoothing)

        warnings.warn("linear_cross_entropy: this input is not processed in chunks: all logits are computed at once", stacklevel=2)
    logits = linear(input, linear_weight.reshape(-1, features), linear_bias).reshape(shape)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight=weight, reduction=reduction, ignore_index=ignored, label_smoothing=label_smoothing)


from ..overrides import handle_torch_function, has_torch_function, has_torch_function_unary, has_torch_function_variadic, make_overridable, overridable  # noqa: E402,F401

make_overridable(globals(), [name for name in dir() if not name.startswith("_") and "function" not in name and not name.endswith("overridable")])

#: Functions that are compiled in PyTorch as well. The others are Python functions there: libraries set attributes on
#: them.
_COMPILED = frozenset(
    "adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid one_hot pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ "
    "scaled_dot_product_attention selu_ softplus softshrink threshold_".split()
)
#: Those of them that PyTorch has in ``torch._C._nn``; the others are the functions of ``torch``.
_LAYERS = frozenset(
    "avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear logsigmoid one_hot scaled_dot_product_attention softplus softshrink".split()
)
globals().update({name: getattr(_C._torch, name) for name in _COMPILED - _LAYERS if hasattr(_C._torch, name)})
globals().update({name: overridable(f, __name__) for name, f in vars(_nn).items() if not name.startswith("_") and name not in _COMPILED and globals().get(name) is f})


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Sets whole channels of sequences to zero."""
    if has_torch_function_unary(input):
        return handle_torch_function(dropout1d, (input,), input, p=p, training=training, inplace=inplace)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d exists to provide channel-wise dropout on inputs "
            "with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _C._nn.dropout1d(input, p, training, inplace)


def _warn_of_dropout(name, input, spatial):
    warnings.warn(
        f"{name}: Received a {input.dim()}-D input to {name}, which is deprecated and will result in an error in a future release. To retain the behavior and "
        f"silence this warning, please use dropout instead. Note that {name} exists to provide channel-wise dropout on inputs with {spatial} spatial dimensions, a "
        f"channel dimension, and an optional batch dimension (i.e. {spatial + 1}D or {spatial + 2}D inputs).", stacklevel=3,
    )


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Sets whole channels of images to zero."""
    if has_torch_function_unary(input):
        return handle_torch_function(dropout2d, (input,), input, p=p, training=training, inplace=inplace)
    if input.dim() == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is interpreted as shape (N, C, L), "
            "where C is the channel dim. This behavior will change in a future release to interpret the input as one without a batch dimension, i.e. shape "
            "(C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead.", stacklevel=2,
        )
    elif input.dim() != 4:
        _warn_of_dropout("dropout2d", input, 2)
    return _C._nn.dropout2d(input, p, training, inplace)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Sets whole channels of volumes to zero."""
    if has_torch_function_unary(input):
        return handle_torch_function(dropout3d, (input,), input, p=p, training=training, inplace=inplace)
    if input.dim() not in (4, 5):
        _warn_of_dropout("dropout3d", input, 3)
    return _C._nn.dropout3d(input, p, training, inplace)


def conv_tbc(input, weight, bias, pad=0):
    """A convolution over the first dimension of ``[time, batch, channels]``, with a weight of ``[kernel, channels, outputs]``."""
    found = _C._nn.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad)
    return found.permute(2, 0, 1)


def __getattr__(name):
    if name == "grad":
        import importlib

        return importlib.import_module("..grad", __name__)
    from .._functions import _missing

    return _missing(__name__, name)
