"""Ops of ``torch.ops.aten`` whose arguments differ from those of the functions of ``torch``, or that ``torch`` does not have as functions.

Reductions of losses are numbers, embeddings take the weight first, layers give their statistics, and derivatives are ops of their own: those run the forward
function and autograd.
"""

from . import _C

_torch, _nn, _linalg = _C._torch, _C._nn, _C._linalg
Tensor = _C.Tensor


def _F():
    from .nn import functional

    return functional


def _package():
    import sys

    return sys.modules[__name__.rpartition(".")[0]]


# Views, copies and indices.


def slice_(input, dim=0, start=None, end=None, step=1):
    return input[(slice(None),) * (dim % max(input.dim(), 1)) + (slice(start, end, step),)]


def index(input, indices):
    return input[tuple(slice(None) if i is None else i for i in indices)]


def to_copy(input, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    made = input.to(device if device is not None else input.device, dtype or input.dtype, non_blocking=non_blocking, copy=True)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


def index_put(input, indices, values, accumulate=False):
    return input.index_put([slice(None) if i is None else i for i in indices], values, accumulate)


def index_put_(input, indices, values, accumulate=False, unsafe=False):
    return input.index_put_([slice(None) if i is None else i for i in indices], values, accumulate)


def copied(view):
    """A view's op that gives memory of its own."""

    def run(input, *args, **kwargs):
        made = view(input, *args, **kwargs)
        return made.clone() if isinstance(made, Tensor) else [part.clone() for part in made]

    return run


def _method(name):
    return lambda input, *args, **kwargs: getattr(input, name)(*args, **kwargs)


def _as_strided(input, size, stride, storage_offset=None):
    return input.as_strided(size, stride, storage_offset)


def _size(input, dim=None):
    return input.shape if dim is None else input.shape[dim]


def _stride(input, dim=None):
    return input.stride() if dim is None else input.stride()[dim]


def scalar_tensor(value, *, dtype=None, layout=None, device=None, pin_memory=None):
    return _C.tensor(value, dtype=dtype or _C.get_default_dtype(), device=device)


def copy(input, source, non_blocking=False):
    return source.to(input.device, input.dtype, copy=True).expand(input.shape).clone()


# Layers.


def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return _F().embedding(indices, weight, None if padding_idx < 0 else padding_idx, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def softmax_of(name):
    return lambda input, dim, half_to_float=False: getattr(_nn, name)(input.float() if half_to_float else input, dim)


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    kind = f"conv{'_transpose' if transposed else ''}{weight.dim() - 2}d"
    further = (output_padding, groups, dilation) if transposed else (dilation, groups)
    return getattr(_nn, kind)(input, weight, bias, stride, padding, *further)


def _pool_with_indices(dims):
    def run(input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        function = getattr(_F(), f"max_pool{dims}d")
        sizes = (size if isinstance(size, int) else list(size) or None for size in (kernel_size, stride))
        return function(input, *sizes, padding, dilation, ceil_mode=ceil_mode, return_indices=True)

    return run


def _average_pool(dims):
    def run(input, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        further = (divisor_override,) if dims > 1 else ()
        stride = [stride] * dims if isinstance(stride, int) else list(stride)
        return getattr(_F(), f"avg_pool{dims}d")(input, kernel_size, stride or None, padding, ceil_mode, count_include_pad, *further)

    return run


def _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    from ._native import native_batch_norm

    return native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


def _batch_norm_legit(input, weight, bias, *rest):
    if len(rest) == 3:
        return _batch_norm(input, weight, bias, None, None, *rest)
    return _batch_norm(input, weight, bias, *rest)


def _no_training(input, weight, bias, running_mean, running_var, momentum, eps):
    return _batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def _pad(mode):
    return lambda input, padding: _F().pad(input, list(padding), mode)


def constant_pad_nd(input, pad, value=0):
    return _F().pad(input, list(pad), "constant", value)


def _upsample(mode):
    """Both forms: sizes with a factor for each dimension, and sizes or factors as lists (``vec``)."""
    corners = mode in ("linear", "bilinear", "bicubic", "trilinear")

    def run(input, output_size, *rest, align_corners=None, scale_factors=None, **scales):
        rest = list(rest)
        if corners and align_corners is None and rest:
            align_corners = rest.pop(0)
        if rest and isinstance(rest[0], (list, tuple)):
            scale_factors = rest[0]
        options = {"align_corners": bool(align_corners)} if corners else {}
        size = None if output_size is None else list(output_size)
        return _F().interpolate(input, size, list(scale_factors) if size is None else None, mode, **options)

    return run


# Losses.

_REDUCTIONS = ("none", "mean", "sum")


def _loss(name, place):
    """A loss whose reduction is a number, at a place among its arguments."""

    def run(*args, reduction=1, **kwargs):
        args = list(args)
        if len(args) > place:
            reduction = args.pop(place)
        reduction = _REDUCTIONS[reduction] if isinstance(reduction, int) else reduction
        return _LOSSES[name](args, reduction, kwargs)

    return run


def _plain_loss(name, *further):
    def run(args, reduction, kwargs):
        return getattr(_F(), name)(args[0], args[1], reduction=reduction, **dict(zip(further, args[2:])), **kwargs)

    return run


def _class_loss(name):
    further = ("weight", "ignore_index", "label_smoothing")

    def run(args, reduction, kwargs):
        options = {**dict(zip(further, args[2:])), **kwargs}
        return getattr(_F(), name)(args[0], args[1], reduction=reduction, **options)

    return run


_LOSSES = {
    "mse_loss": _plain_loss("mse_loss"), "l1_loss": _plain_loss("l1_loss"), "smooth_l1_loss": _plain_loss("smooth_l1_loss", "beta"),
    "huber_loss": _plain_loss("huber_loss", "delta"), "soft_margin_loss": _plain_loss("soft_margin_loss"), "kl_div": _plain_loss("kl_div", "log_target"),
    "binary_cross_entropy": _plain_loss("binary_cross_entropy", "weight"),
    "binary_cross_entropy_with_logits": _plain_loss("binary_cross_entropy_with_logits", "weight", "pos_weight"),
    "cross_entropy_loss": _class_loss("cross_entropy"), "nll_loss": _class_loss("nll_loss"), "nll_loss_nd": _class_loss("nll_loss"), "nll_loss2d": _class_loss("nll_loss"),
}
_PLACES = {"binary_cross_entropy": 3, "binary_cross_entropy_with_logits": 4, "cross_entropy_loss": 3, "nll_loss": 3, "nll_loss_nd": 3, "nll_loss2d": 3}


def nll_loss_forward(input, target, weight, reduction, ignore_index):
    """The loss, and the sum of the weights it was divided by."""
    kept = target != ignore_index
    counted = _torch.where(kept, target, _torch.zeros_like(target))
    each = _torch.ones_like(counted, dtype=input.dtype) if weight is None else weight[counted]
    loss = _F().nll_loss(input, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])
    return loss, (each * kept.to(each.dtype)).sum() if reduction else input.new_zeros(())


# Attention.


def _scores(query, key, attn_mask, is_causal, scale):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    if is_causal:
        scores = scores.masked_fill(_torch.ones(scores.shape[-2:], dtype=_C.bool, device=scores.device).triu(1), float("-inf"))
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == _C.bool else scores + attn_mask
    return scores


def attention_math(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, dropout_mask=None, *, scale=None, enable_gqa=False):
    """Attention and its weights."""
    made = _nn.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return made, _torch.softmax(_scores(query, key, attn_mask, is_causal, scale), -1)


def attention_flash_cpu(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """Attention and the logarithm of the sum of its exponentials."""
    made = _nn.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    return made, _torch.logsumexp(_scores(query, key, attn_mask, is_causal, scale), -1)


def _activation(name):
    return lambda input, *args, **kwargs: getattr(_F(), name)(input, *args, **kwargs)


def log_sigmoid_forward(input):
    """The values, and an empty buffer that PyTorch's CPU kernel keeps."""
    return _F().logsigmoid(input), input.new_empty(0)


# Fourier transforms by kind; a number says the scaling: 0 none, 1 by the root, 2 by the count.


def _scaled(made, count, normalization):
    return made if normalization == 0 else made / (count ** 0.5 if normalization == 1 else count)


def _count(input, dims):
    count = 1
    for d in dims:
        count *= input.shape[d]
    return count


def fft_c2c(input, dim, normalization, forward):
    from . import fft

    dim = list(dim)
    made = fft.fftn(input, dim=dim, norm="backward") if forward else fft.ifftn(input, dim=dim, norm="forward")
    return _scaled(made, _count(input, dim), normalization)


def fft_r2c(input, dim, normalization, onesided):
    from . import fft

    dim = list(dim)
    made = fft.rfftn(input, dim=dim, norm="backward") if onesided else fft.fftn(input, dim=dim, norm="backward")
    return _scaled(made, _count(input, dim), normalization)


def fft_c2r(input, dim, normalization, last_dim_size):
    from . import fft

    dim = list(dim)
    sizes = [input.shape[d] for d in dim[:-1]] + [last_dim_size]
    made = fft.irfftn(input, s=sizes, dim=dim, norm="forward")
    count = 1
    for n in sizes:
        count *= n
    return _scaled(made, count, normalization)


def _native(name):
    def run(*args, **kwargs):
        from . import _native

        return getattr(_native, name)(*args, **kwargs)

    return run


def native_dropout(input, p, train=None):
    return _torch.native_dropout(input, p, train) if hasattr(_torch, "native_dropout") else _dropout(input, p, train)


def _dropout(input, p, train):
    if train is False or p == 0:
        return input.clone(), _torch.ones_like(input, dtype=_C.bool)
    kept = _torch.rand_like(input) >= p
    return input * kept.to(input.dtype) / (1 - p), kept


def _efficient(query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    """Attention, the logarithm of its sums, and the seed and offset of dropout."""
    made, sums = attention_flash_cpu(query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale)
    return made, sums if compute_log_sumexp else sums[..., :0], _C.tensor(0), _C.tensor(0)


def _convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *settings):
    return convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _plain_convolution(input, weight, kernel_size, bias=None, stride=1, padding=0, dilation=1):
    return getattr(_nn, f"conv{weight.dim() - 2}d")(input, weight, bias, stride, padding, dilation)


def bags_of(indices, offsets, include_last_offset):
    """The bag of each index, the size of each bag, and zeros."""
    starts = offsets[:-1] if include_last_offset else offsets
    bags = _torch.searchsorted(starts, _torch.arange(indices.shape[0], device=indices.device), right=True) - 1
    sizes = _torch.bincount(bags, minlength=starts.shape[0])
    return bags, sizes, _torch.zeros_like(sizes)


def _embedding_bag(weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=-1):
    """The bags, and what PyTorch's derivative reads: the bag of each index, and the size of each bag."""
    made = _F().embedding_bag(
        indices, weight, offsets, mode=("sum", "mean", "max")[mode], per_sample_weights=per_sample_weights, include_last_offset=include_last_offset,
        padding_idx=None if padding_idx < 0 else padding_idx,
    )
    return made, *bags_of(indices, offsets, include_last_offset)


def _masked_softmax(input, mask, dim=None, mask_type=None):
    """Weights of the elements whose mask is False; rows without any give zeros."""
    made = _torch.softmax(input.masked_fill(mask, float("-inf")), input.dim() - 1 if dim is None else dim)
    return made.masked_fill(mask, 0.0)


def _safe_softmax(input, dim, dtype=None):
    """A softmax that gives zeros for rows of minus infinity."""
    made = _nn.softmax(input, dim, dtype=dtype)
    return made.masked_fill((input == float("-inf")).all(dim, keepdim=True), 0.0)


def _trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim=1):
    for dims, operand in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for d in dims:
            i1, i2, i3 = (t.unsqueeze(d) if k == operand else t for k, t in enumerate((i1, i2, i3)))
    return (i1 * i2 * i3).sum(list(sumdim))


def _unfolded(input, kernel_size, dilation, padding, stride):
    return _F().unfold(input, kernel_size, dilation, padding, stride)


def _folded(input, output_size, kernel_size, dilation, padding, stride):
    return _F().fold(input, output_size, kernel_size, dilation, padding, stride)


def _weight_norm(v, g, dim=0):
    return v * (g / _norm_except(v, 2, dim))


def _norm_except(v, pow=2, dim=0):
    return _linalg.vector_norm(v, pow, [d for d in range(v.dim()) if d != dim % v.dim()], True)


def _unique2(input, sorted=True, return_inverse=False, return_counts=False):
    values, inverse, counts = _torch.unique(input, return_inverse=True, return_counts=True)
    empty = input.new_empty(0, dtype=_C.int64)
    return values, inverse if return_inverse or return_counts else empty, counts if return_counts else empty


def _unique_dim(input, dim, sorted=True, return_inverse=False, return_counts=False):
    return _torch.unique(input, return_inverse=True, return_counts=True, dim=dim)


def _linalg_of(name, **options):
    def run(*args, **kwargs):
        from . import linalg

        return getattr(linalg, name)(*args, **options, **kwargs)

    return run


def _with_factors(name):
    """A determinant, with the factors and pivots that its derivative reads."""

    def run(A):
        from . import linalg

        made = getattr(linalg, name)(A)
        LU, pivots = linalg.lu_factor(A.detach())
        return (*(made if isinstance(made, tuple) else (made,)), LU, pivots)

    return run


def _packed(input, lengths, batch_first):
    made = _package().nn.utils.rnn.pack_padded_sequence(input, lengths, batch_first)
    return made.data, made.batch_sizes


_FURTHER = {
    "_scaled_dot_product_efficient_attention": _efficient, "_convolution": _convolution, "thnn_conv2d": _plain_convolution, "slow_conv3d": _plain_convolution,
    "slow_conv_dilated2d": _plain_convolution, "slow_conv_dilated3d": _plain_convolution, "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag, "_masked_softmax": _masked_softmax, "_safe_softmax": _safe_softmax, "_trilinear": _trilinear, "im2col": _unfolded,
    "col2im": _folded, "_weight_norm": _weight_norm, "norm_except_dim": _norm_except, "_unique2": _unique2, "unique_dim": _unique_dim,
    "_unique": lambda input, sorted=True, return_inverse=False: _unique2(input, sorted, return_inverse)[:2], "_masked_scale": lambda input, mask, scale: input * mask * scale,
    "_linalg_det": _with_factors("det"), "_linalg_slogdet": _with_factors("slogdet"), "_linalg_eigh": lambda A, UPLO="L", compute_v=True: _linalg_of("eigh")(A, UPLO),
    "_linalg_svd": lambda A, full_matrices=False, compute_uv=True, *, driver=None: _linalg_of("svd")(A, full_matrices), "_linalg_eigvals": _linalg_of("eigvals"),
    "_linalg_solve_ex": _linalg_of("solve_ex"), "_cholesky_solve_helper": lambda input, A, upper: _torch.cholesky_solve(input, A, upper), "_pack_padded_sequence": _packed,
    **{f"_cast_{name}": (lambda dtype: lambda input, non_blocking=False: input.to(dtype))(dtype) for name, dtype in (
        ("Byte", _C.uint8), ("Char", _C.int8), ("Double", _C.float64), ("Float", _C.float32), ("Half", _C.float16), ("Int", _C.int32), ("Long", _C.int64), ("Short", _C.int16))},
    "_aminmax": lambda input, dim=None, keepdim=False: tuple(_torch.aminmax(input, dim=dim, keepdim=keepdim)), "_conj_physical": lambda input: input.conj().clone(),
    "_conj_copy": lambda input: input.conj().clone(), "_neg_view_copy": lambda input: -input, "_stack": lambda tensors, dim=0: _torch.stack(tensors, dim),
    "_cdist_forward": lambda x1, x2, p, compute_mode=None: _torch.cdist(x1, x2, p), "_euclidean_dist": lambda x1, x2: _torch.cdist(x1, x2),
    "_pdist_forward": lambda input, p=2: _F().pdist(input, p), "_int_mm": lambda a, b: a.to(_C.int32) @ b.to(_C.int32), "_prelu_kernel": lambda input, weight: _torch.where(input > 0, input, weight * input),
    "_logcumsumexp": lambda input, dim: _torch.logcumsumexp(input, dim), "_add_relu": lambda a, b, *, alpha=1: (a + b * alpha).relu(), "numpy_T": lambda input: input.T,
    "_addmm_activation": lambda input, a, b, *, beta=1, alpha=1, use_gelu=False: (lambda y: _nn.gelu(y, approximate="tanh") if use_gelu else y.relu())(_torch.addmm(input, a, b, beta=beta, alpha=alpha)),
    "mT": lambda input: input.mT, "mH": lambda input: input.mH, "matrix_H": lambda input: input.mH, "_pin_memory": lambda input, device=None: input.pin_memory(),
    "frobenius_norm": lambda input, dim=None, keepdim=False: _linalg.vector_norm(input, 2, dim or None, keepdim), "_weight_norm_interface": lambda v, g, dim=0: (_weight_norm(v, g, dim), _norm_except(v, 2, dim)),
    "nuclear_norm": lambda input, dim=(-2, -1), keepdim=False: _linalg.matrix_norm(input, "nuc", dim or (-2, -1), keepdim),
    "affine_grid_generator": lambda theta, size, align_corners: _F().affine_grid(theta, list(size), align_corners), "sym_is_contiguous": lambda input, memory_format=None: input.is_contiguous(),
    "pad_sequence": lambda sequences, batch_first=False, padding_value=0.0, padding_side="right": _package().nn.utils.rnn.pad_sequence(
        list(sequences), batch_first, padding_value, padding_side), "_list_to_tensor": lambda values: _C.tensor(values), "_tensor_to_list": lambda input: input.tolist(),
    "_to_dense": lambda input, dtype=None, masked_grad=None: input.to_dense(dtype),
    "retains_grad": lambda input: input.retains_grad, "is_leaf": lambda input: input.is_leaf, "data": lambda input: input.detach(), "_version": lambda input: input._version,
    "_segment_reduce": _torch.segment_reduce,
    "_grouped_mm": lambda input, mat2, offs=None, bias=None, out_dtype=None: _nn.grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype),
}


def _antialiased(mode):
    def upsample(input, output_size, align_corners, scale_factors=None, *scales, **kwargs):
        size = None if output_size is None else list(output_size)
        factors = list(scale_factors) if size is None else None
        return _nn.interpolate(input, size=size, scale_factor=factors, mode=mode, align_corners=align_corners, antialias=True)

    return upsample


_COPIES = "expand permute squeeze t transpose unsqueeze view unfold diagonal split split_with_sizes unbind detach select view_as_real view_as_complex".split()

#: The ops of ``aten``, by name.
ATEN = {
    "slice": slice_, "index": index, "_unsafe_index": index, "index_put": index_put, "_unsafe_index_put": index_put, "index_put_": index_put_,
    "_index_put_impl_": index_put_, "_to_copy": to_copy, "_unsafe_view": lambda input, size: input.reshape(size), "alias": lambda input: input[...],
    "_reshape_alias": _as_strided, "lift": lambda input: input, "lift_fresh": lambda input: input, "lift_fresh_copy": lambda input: input.clone(),
    "_reshape_copy": lambda input, size: input.reshape(size).clone(),
    **{f"{name}_copy": copied(_method(name)) for name in _COPIES}, "slice_copy": copied(slice_), "alias_copy": lambda input: input.clone(), "as_strided_copy": copied(_as_strided),
    "as_strided": _as_strided, "copy": copy, "scalar_tensor": scalar_tensor, "_local_scalar_dense": lambda input: input.item(), "item": lambda input: input.item(),
    "sym_size": _size, "size": _size, "sym_stride": _stride, "stride": _stride, "sym_numel": lambda input: input.numel(),
    "sym_storage_offset": lambda input: input.storage_offset(), "_has_same_storage_numel": lambda a, b: a.untyped_storage().nbytes() == b.untyped_storage().nbytes(),
    "_assert_async": lambda input, message="": _torch._assert_async(input, message) if hasattr(_torch, "_assert_async") else _assert(input, message),
    "embedding": embedding, "_softmax": softmax_of("softmax"), "_log_softmax": softmax_of("log_softmax"), "convolution": convolution,
    "convolution_overrideable": convolution, "max_pool1d_with_indices": _pool_with_indices(1), "max_pool2d_with_indices": _pool_with_indices(2),
    "max_pool3d_with_indices": _pool_with_indices(3), "avg_pool1d": _average_pool(1), "avg_pool2d": _average_pool(2), "avg_pool3d": _average_pool(3),
    "_adaptive_avg_pool2d": _activation("adaptive_avg_pool2d"), "_adaptive_avg_pool3d": _activation("adaptive_avg_pool3d"),
    "native_batch_norm": _batch_norm, "_native_batch_norm_legit": _batch_norm_legit, "_native_batch_norm_legit_no_training": _no_training,
    "native_layer_norm": _native("native_layer_norm"), "native_group_norm": _native("native_group_norm"), "native_dropout": native_dropout,
    "native_dropout_backward": _native("native_dropout_backward"), "grid_sampler_2d": _native("grid_sampler_2d"), "grid_sampler_3d": _native("grid_sampler_3d"),
    "grid_sampler": _native("grid_sampler"), "constant_pad_nd": constant_pad_nd, **{f"reflection_pad{n}d": _pad("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _pad("replicate") for n in (1, 2, 3)},
    "upsample_nearest1d": _upsample("nearest"), "upsample_nearest2d": _upsample("nearest"), "upsample_nearest3d": _upsample("nearest"),
    "_upsample_nearest_exact1d": _upsample("nearest-exact"), "_upsample_nearest_exact2d": _upsample("nearest-exact"), "_upsample_nearest_exact3d": _upsample("nearest-exact"),
    "upsample_linear1d": _upsample("linear"), "upsample_bilinear2d": _upsample("bilinear"), "upsample_bicubic2d": _upsample("bicubic"), "upsample_trilinear3d": _upsample("trilinear"),
    **{name: _loss(name, _PLACES.get(name, 2)) for name in _LOSSES}, "nll_loss_forward": nll_loss_forward, "nll_loss2d_forward": nll_loss_forward,
    "_scaled_dot_product_attention_math": attention_math, "_scaled_dot_product_flash_attention_for_cpu": attention_flash_cpu,
    "log_sigmoid_forward": log_sigmoid_forward,
    "_fft_c2c": fft_c2c, "_fft_r2c": fft_r2c, "_fft_c2r": fft_c2r, "_conj": lambda input: input.conj(), "_neg_view": lambda input: -input,
    "linear": lambda input, weight, bias=None: _nn.linear(input, weight, bias), "is_nonzero": bool, "_shape_as_tensor": lambda input: _C.tensor(list(input.shape)),
    "_is_all_true": lambda input: input.all(), "_is_any_true": lambda input: input.any(), "__and__": lambda a, b: a & b, "__or__": lambda a, b: a | b, "__xor__": lambda a, b: a ^ b,
    "__lshift__": lambda a, b: a << b, "__rshift__": lambda a, b: a >> b, "bernoulli": lambda input, p=None, *, generator=None: _bernoulli(input, p, generator),
    "uniform": lambda input, low=0.0, high=1.0, *, generator=None: input.clone().uniform_(low, high, generator=generator),
    "silu": _activation("silu"), "mish": _activation("mish"), "elu": lambda input, alpha=1, scale=1, input_scale=1: _elu(input, alpha, scale, input_scale),
    "hardtanh": _activation("hardtanh"), "hardswish": _activation("hardswish"), "hardsigmoid": _activation("hardsigmoid"), "leaky_relu": _activation("leaky_relu"),
    "_upsample_bilinear2d_aa": _antialiased("bilinear"), "_upsample_bicubic2d_aa": _antialiased("bicubic"),
    "_upsample_lanczos2d_aa": _antialiased("lanczos"),
    "linalg_vector_norm": lambda input, ord=2, dim=None, keepdim=False, *, dtype=None: _linalg.vector_norm(input, ord, dim, keepdim, dtype=dtype),
    "log_sigmoid": _activation("logsigmoid"), "scaled_dot_product_attention": _activation("scaled_dot_product_attention"), **_FURTHER,
}


def _assert(input, message):
    if not input.all().item():
        raise RuntimeError(message or "Expected Tensor with all elements True")


def _bernoulli(input, p, generator):
    return _torch.bernoulli(input, generator=generator) if p is None else input.clone().bernoulli_(p, generator=generator)


def _elu(input, alpha, scale, input_scale):
    made = _torch.where(input > 0, input, alpha * _torch.expm1(input * input_scale))
    return made if scale == 1 else made * scale


#: Names that ``aten`` puts a package's name in front of.
_PREFIXES = {"linalg_": "linalg", "special_": "special", "fft_": "fft"}


#: Functions of ``sparse`` with names of their own in ``aten``.
_SPARSE = frozenset(
    "_sparse_compressed_tensor_with_dims _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _validate_compressed_sparse_indices".split()
)


def find(name):
    """The function of this package that an op of ``aten`` is; None if there is none."""
    if name in ATEN:
        return ATEN[name]
    for space in (_C._torch, _C._nn, _C._linalg, _C._special):
        if hasattr(space, name):
            return getattr(space, name)
    found = getattr(Tensor, name, None)
    if callable(found):
        return found
    import importlib

    package = __name__.rpartition(".")[0]
    for prefix, module in _PREFIXES.items():
        if name.startswith(prefix):
            found = _public(importlib.import_module(f"{package}.{module}"), name[len(prefix):])
            if found is not None:
                return found
    if name.startswith("_"):
        return getattr(importlib.import_module(f"{package}.sparse"), name) if name in _SPARSE else None
    changed = getattr(Tensor, name + "_", None)
    if callable(changed):
        # The op that gives a tensor of its own where Tensor has only the change in place.
        return lambda input, *args, **kwargs: changed(input.clone(), *args, **kwargs)
    if name.endswith("_") and find(name[:-1]) is not None:
        return lambda input, *args, **kwargs: input.copy_(find(name[:-1])(input, *args, **kwargs))
    for module in (package, f"{package}.nn.functional"):
        found = _public(importlib.import_module(module), name)
        if found is not None:
            return found
    return None


def _public(module, name):
    """A function of a module; None for names that are absent and for other objects."""
    found = None if name.startswith("_") else getattr(module, name, None)
    return found if callable(found) and not isinstance(found, type) and not getattr(found, "_absent", False) else None


from ._aten_backward import DERIVATIVES  # noqa: E402  (they run the functions above)

ATEN.update(DERIVATIVES)
