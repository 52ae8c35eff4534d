"""``torch.nn.functional``: the functions behind layers. Most are rows of the compiled op table."""

import itertools as _itertools

from .. import _C
from ._attention import multi_head_attention_forward  # noqa: F401
from ._bags import embedding_bag  # noqa: F401
from ._pooling import *  # noqa: F401,F403

_nn, _torch = _C._nn, _C._torch
globals().update({name: f for name, f in vars(_nn).items() if not name.startswith("__")})

Tensor = _C.Tensor
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}


def native_channel_shuffle(input, groups):
    """``channel_shuffle``."""
    return _nn.channel_shuffle(input, groups)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """The triplet margin loss with any distance."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _torch.minimum(far, distance(positive, negative))
    loss = (margin + near - far).clamp(min=0)
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()


def affine_grid(theta, size, align_corners=None):
    """The sampling grid of affine maps for an output of the given size: ``[batch, 2, 3]`` for images, ``[batch, 3, 4]`` for volumes."""
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size " + str(tuple(size))
        )
    batch, _, *sizes = size
    d = len(sizes)
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (d, d + 1):
        raise ValueError(f"Expected a batch of {d}D affine matrices of shape Nx{d}x{d + 1} for size {list(size)}. Got {theta.shape}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")

    def line(n):
        made = {"dtype": theta.dtype, "device": theta.device}
        at = _torch.linspace(-1, 1, n, **made) if n > 1 else _torch.zeros(1, **made)
        return at if align_corners else at * (n - 1) / n

    # Coordinates are in the order of the matrices' columns: x, y, and z for volumes.
    places = _torch._meshgrid([line(n) for n in sizes], indexing="ij")[::-1]
    points = _torch.stack([*places, _torch.ones_like(places[0])], -1).reshape(1, -1, d + 1)
    return (points @ theta.transpose(1, 2)).reshape(batch, *sizes, d)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Pixels of images, or voxels of volumes, at places between -1 and 1."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    if input.dim() not in (4, 5) or grid.dim() != input.dim():
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got {input.dim()} and {grid.dim()}")
    batch, channels, *sizes = input.shape
    if grid.shape[0] != batch or grid.shape[-1] != len(sizes):
        raise RuntimeError(
            f"grid_sampler(): expected grid of batch size {batch} and {len(sizes)} coordinates in its last dimension, but got sizes {list(grid.shape)}"
        )
    if 0 in sizes:
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(input.shape)}")
    if mode == "bicubic" and len(sizes) == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    # As in PyTorch, where sampling is one op that saves both, the backward pass raises if either was changed in place.
    input, grid = _torch._watched(input, [grid]), _torch._watched(grid, [input])

    def pixels(at, n):
        return (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2

    def padded(at, n):
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

    flat = input.reshape(batch, channels, -1)

    def take(places, weight=None):
        """The elements at integer coordinates, times their weight; zero outside of the image."""
        inside, index = None, None
        for at, n in zip(places, sizes):
            here = (at >= 0) & (at <= n - 1)
            inside = here if inside is None else inside & here
            at = at.nan_to_num().clamp(0, n - 1).long()
            index = at if index is None else index * n + at
        index = index.reshape(batch, 1, -1).expand(batch, channels, -1)
        found = flat.gather(2, index).reshape(batch, channels, *inside.shape[1:])
        # Selected, not multiplied: the weight of an infinite coordinate is NaN, which must not reach the image's
        # gradient.
        found = _torch.where(inside.unsqueeze(1), found, 0)
        return found if weight is None else found * weight.to(input.dtype).unsqueeze(1)

    # The grid's last coordinate belongs to the first dimension.
    places = [pixels(grid[..., -1 - d], n) for d, n in enumerate(sizes)]
    if mode != "bicubic":
        places = [padded(at, n) for at, n in zip(places, sizes)]
    if mode == "nearest":
        out = take([at.round() for at in places])
        # The place does not matter to the value; PyTorch's gradient with respect to it is zero, not missing.
        return out + _torch.where(_torch.ones_like(places[0], dtype=_C.bool), 0, places[0]).unsqueeze(1) if grid.requires_grad else out
    whole = [at.floor() for at in places]
    parts = [at - low for at, low in zip(places, whole)]
    if mode == "bilinear":
        taps = [[(low, 1 - part), (low + 1, part)] for low, part in zip(whole, parts)]
    else:
        taps = [[(padded(low + k - 1, n), w) for k, w in enumerate(_cubic(part))] for low, part, n in zip(whole, parts, sizes)]
    out = None
    for corner in _itertools.product(*taps):
        weight = corner[0][1]
        for _, w in corner[1:]:
            weight = weight * w
        piece = take([at for at, _ in corner], weight)
        out = piece if out is None else out + piece
    return out


def _cubic(t, a=-0.75):
    """The weights of the four neighbours of a place that is ``t`` past the second."""
    near = lambda x: ((a + 2) * x - (a + 3)) * x * x + 1  # noqa: E731
    far = lambda x: ((a * x - 5 * a) * x + 8 * a) * x - 4 * a  # noqa: E731
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


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
        import warnings

        warnings.warn("linear_cross_entropy: this input is not processed in chunks: all logits are computed at once", stacklevel=2)
    logits = linear(input, linear_weight.reshape(-1, features), linear_bias).reshape(shape)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight=weight, reduction=reduction, ignore_index=ignored, label_smoothing=label_smoothing)


from ..overrides import handle_torch_function, has_torch_function, has_torch_function_unary, has_torch_function_variadic, make_overridable, overridable  # noqa: E402,F401

make_overridable(globals(), [name for name in dir() if not name.startswith("_") and "function" not in name and name != "make_overridable"])

#: Functions that are compiled in PyTorch as well. The others are Python functions there: libraries set attributes on
#: them.
_COMPILED = frozenset(
    "adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid one_hot pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ "
    "scaled_dot_product_attention selu_ softplus softshrink threshold_".split()
)
globals().update({name: overridable(f, __name__) for name, f in vars(_nn).items() if not name.startswith("_") and name not in _COMPILED and globals().get(name) is f})


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
