"""``torch.nn.functional``: the functions that layers are made of. Most are rows of the compiled op table."""

from .. import _C
from ._attention import multi_head_attention_forward  # noqa: F401
from ._bags import embedding_bag  # noqa: F401
from ._pooling import *  # noqa: F401,F403

_nn, _torch = _C._nn, _C._torch
globals().update({name: f for name, f in vars(_nn).items() if not name.startswith("__")})

Tensor = _C.Tensor
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """An anchor nearer to one than to another, by any distance."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _torch.minimum(far, distance(positive, negative))
    loss = (margin + near - far).clamp(min=0)
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()


def affine_grid(theta, size, align_corners=None):
    """Where the pixels of an output of the given size come from under affine maps ``[batch, 2, 3]``."""
    if len(size) != 4:
        raise NotImplementedError("affine_grid: only images (sizes of four) are supported")
    batch, _, height, width = size

    def line(n):
        made = {"dtype": theta.dtype, "device": theta.device}
        at = _torch.linspace(-1, 1, n, **made) if n > 1 else _torch.zeros(1, **made)
        return at if align_corners else at * (n - 1) / n

    ys, xs = _torch._meshgrid([line(height), line(width)], indexing="ij")
    points = _torch.stack([xs, ys, _torch.ones_like(xs)], -1).reshape(1, -1, 3)
    return (points @ theta.transpose(1, 2)).reshape(batch, height, width, 2)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Pixels of images at places between -1 and 1."""
    if input.dim() != 4:
        raise NotImplementedError("grid_sample: only images (tensors of four dimensions) are supported")
    if mode not in ("bilinear", "nearest"):
        raise NotImplementedError(f"grid_sample: mode '{mode}' is not supported; use 'bilinear' or 'nearest'")
    batch, channels, height, width = input.shape

    def pixels(at, n):
        at = (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2
        if padding_mode == "border":
            return at.clamp(0, n - 1)
        if padding_mode == "reflection":
            low, span = (0.0, n - 1) if align_corners else (-0.5, n)
            if span == 0:
                return at * 0
            distance = (at - low).abs()
            turns, rest = (distance / span).floor(), distance % span
            return (_torch.where(turns % 2 == 0, rest, span - rest) + low).clamp(0, n - 1)
        return at

    xs, ys = pixels(grid[..., 0], width), pixels(grid[..., 1], height)
    flat = input.reshape(batch, channels, -1)

    def take(x, y):
        inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
        index = y.clamp(0, height - 1).long() * width + x.clamp(0, width - 1).long()
        index = index.reshape(batch, 1, -1).expand(batch, channels, -1)
        return flat.gather(2, index).reshape(batch, channels, *x.shape[1:]) * inside.unsqueeze(1).to(input.dtype)

    if mode == "nearest":
        return take(xs.round(), ys.round())
    left, top = xs.floor(), ys.floor()
    right_part, lower_part = (xs - left).unsqueeze(1), (ys - top).unsqueeze(1)
    upper = take(left, top) * (1 - right_part) + take(left + 1, top) * right_part
    lower = take(left, top + 1) * (1 - right_part) + take(left + 1, top + 1) * right_part
    return upper * (1 - lower_part) + lower * lower_part


def upsample_nearest(input, size=None, scale_factor=None):
    """``interpolate`` by nearest neighbours."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """``interpolate`` by straight lines, corners aligned."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def linear_cross_entropy(
    input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None, label_smoothing=0.0, options=None
):
    """The cross entropy of logits that a linear layer with weights ``[classes, ..., features]`` makes of the input; in portions if ``options`` are given."""
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
        import warnings

        warnings.warn("linear_cross_entropy: this input is not gone through in portions: all logits are made at once", stacklevel=2)
    logits = linear(input, linear_weight.reshape(-1, features), linear_bias).reshape(shape)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight=weight, reduction=reduction, ignore_index=ignored, label_smoothing=label_smoothing)


from ..overrides import handle_torch_function, has_torch_function, has_torch_function_unary, has_torch_function_variadic, make_overridable, overridable  # noqa: E402,F401

make_overridable(globals(), [name for name in dir() if not name.startswith("_") and "function" not in name and name != "make_overridable"])

#: Functions that are compiled in PyTorch, too. The others are Python's there, and libraries set attributes on them.
_COMPILED = frozenset(
    "adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid one_hot pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ "
    "scaled_dot_product_attention selu_ softplus softshrink threshold_".split()
)
globals().update({name: overridable(f, __name__) for name, f in vars(_nn).items() if not name.startswith("_") and name not in _COMPILED and globals().get(name) is f})


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
