"""Functions of ``torch`` that are aliases of others, created on first use."""

from . import _C

#: Functions of ``torch.nn.functional`` that ``torch`` has, too.
_FUNCTIONAL = frozenset("alpha_dropout celu_ conv_tbc feature_alpha_dropout rrelu rrelu_ threshold_".split())
#: Copying variants of functions that return views.
_COPIES = frozenset(
    "alias as_strided ccol_indices col_indices crow_indices detach diagonal expand indices permute row_indices select slice split split_with_sizes squeeze t transpose "
    "unbind unfold unsqueeze values view view_as_complex view_as_real".split()
)
#: Functions of ``torch.special``, by their names in ``torch``.
_SPECIAL = {"i0": "i0", "igamma": "gammainc", "igammac": "gammaincc"}
_METHODS = frozenset("_lazy_clone clamp_max_ clamp_min_ index_put_ nonzero_static".split())
_STORAGES = frozenset("BoolStorage ByteStorage CharStorage DoubleStorage FloatStorage HalfStorage IntStorage LongStorage ShortStorage BFloat16Storage ComplexFloatStorage ComplexDoubleStorage Storage".split())

NAMES = frozenset().union(_FUNCTIONAL, (f"{name}_copy" for name in _COPIES), _METHODS, _STORAGES, _SPECIAL) | {
    "DeviceObjType", "GradScaler", "TensorType", "alpha_dropout_", "clear_autocast_cache", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "i0_", "to_dlpack", "constant_pad_nd", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "has_lapack", "has_mkl", "has_openmp", "has_spectral", "kaiser_window", "native_channel_shuffle",
    "_addmm_activation", "_from_blob", "_int_mm", "imag", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_vulkan_available", "lobpcg", "set_anomaly_enabled", "spmm", "unsafe_chunk", "unsafe_split",
}


def _selected(input, dim, index):
    if -input.dim() <= dim < input.dim() and not -input.shape[dim] <= index < input.shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {dim}")
    return input.select(dim, index)


def _copy(name):
    def copied(input, *args, out=None, **kwargs):
        if name == "alias":
            made = input
        elif name == "select":
            made = _selected(input, *args, **kwargs)
        elif hasattr(input, name):
            made = getattr(input, name)(*args, **kwargs)
        else:
            made = getattr(_C._torch, name)(input, *args, **kwargs)
        if out is not None:
            for part, given in zip(made, out) if isinstance(made, (tuple, list)) else [(made, out)]:
                given.resize_(part.shape).copy_(part)
            return None if isinstance(made, (tuple, list)) else out
        return tuple(part.clone(memory_format=_C.contiguous_format) for part in made) if isinstance(made, (tuple, list)) else made.clone(memory_format=_C.contiguous_format)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"``{name}``, with elements of its own."
    return copied


def _from_blob(ptr, sizes, strides=None, *, dtype=None, device=None):
    """A tensor over memory of the host at an address, which the caller keeps alive."""
    import ctypes

    if device is not None and _C.device(device).type != "cpu":
        raise NotImplementedError("_from_blob: only memory of the host")
    dtype = _C.get_default_dtype() if dtype is None else dtype
    sizes = list(sizes)
    if strides is None:
        strides, step = [], 1
        for size in reversed(sizes):
            strides.insert(0, step)
            step *= size
    if not all(sizes):
        return _C._torch.empty(sizes, dtype=dtype)
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    flat = _C.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(ptr), dtype=dtype)
    return flat.as_strided(sizes, list(strides), 0)


def find(name):
    """The object for one of the names."""
    if name in _FUNCTIONAL:
        from .nn import functional

        return getattr(functional, name)
    if name in _SPECIAL:
        from . import special

        return getattr(special, _SPECIAL[name])
    if name in _METHODS:
        return getattr(_C.Tensor, name)
    if name in _STORAGES:
        from . import storage

        return getattr(storage, name)
    if name.endswith("_copy"):
        return _copy(name[:-5])
    if name in ("_addmm_activation", "_from_blob", "_int_mm"):
        return globals()[name]
    if name == "GradScaler":
        from .amp import GradScaler

        return GradScaler
    if name in ("DeviceObjType", "TensorType"):
        from ._absent import absent_class

        # Programs name them in annotations.
        class_ = {"DeviceObjType": "torch.device is the class of devices", "TensorType": "torch.Tensor is the class of tensors"}[name]
        return absent_class(f"torch.{name}", f"it is a type of TorchScript's compiler; {class_}")
    return globals()[f"_{name}"]


def _int_mm(input, mat2, *, out=None):
    """The product of two matrices of 8-bit integers, in 32 bits."""
    for name, given in (("self", input), ("mat2", mat2)):
        if given.dim() != 2:
            raise RuntimeError(f"Expected {name} to be of dimension 2 but got {given.dim()}")
        if given.dtype not in ((_C.int8, _C.uint8) if name == "self" else (_C.int8,)):
            raise RuntimeError(f"expected scalar type Char but found {given.dtype}")
    made = _C._torch.mm(input.to(_C.int32), mat2.to(_C.int32))
    if out is None:
        return made
    if out.dtype != _C.int32:
        raise RuntimeError(f"Expected result dtype to be of type kInt but got {str(out.dtype)[6:]}")
    for at in (0, 1):
        if out.dim() != 2 or out.shape[at] != made.shape[at]:
            raise RuntimeError(f"Expected result.size({at}) to be {made.shape[at]} but got {out.shape[at]}")
    return out.copy_(made)


def _addmm_activation(input, mat1, mat2, *, beta=1, alpha=1, use_gelu=False, out=None):
    """``addmm`` followed by ReLU, or by GELU."""
    made = _C._torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    made = _C._nn.gelu(made) if use_gelu else _C._torch.relu(made)
    return made if out is None else out.resize_(made.shape).copy_(made)


def _in_place(name):
    def change(input, p, train):
        from .nn import functional

        return getattr(functional, name)(input, p, train, True)

    change.__name__ = change.__qualname__ = name
    change.__doc__ = f"``{name}`` in place."
    return change


_alpha_dropout_, _feature_alpha_dropout_ = _in_place("alpha_dropout"), _in_place("feature_alpha_dropout")


def _feature_dropout(input, p, train):
    """``dropout`` of whole channels."""
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    channels = _C._torch.ones(*input.shape[:2], *[1] * (input.dim() - 2), dtype=input.dtype, device=input.device)
    return input * _C._nn.dropout(channels, p, train)


def _feature_dropout_(input, p, train):
    """``feature_dropout`` in place."""
    return input.copy_(_feature_dropout(input, p, train))


def _i0_(input):
    """``torch.special.i0`` in place."""
    return input.copy_(find("i0")(input))


def _to_dlpack(tensor):
    """A tensor as a DLPack capsule."""
    from .utils.dlpack import to_dlpack

    return to_dlpack(tensor)


def _clear_autocast_cache():
    """Does nothing: cached conversions are dropped when a region ends."""


def _constant_pad_nd(input, pad, value=0):
    """``pad`` with a constant."""
    return _C._nn.pad(input, pad, value=value)


def _get_autocast_cpu_dtype():
    """The lower precision of autocast on the CPU."""
    return _C._autocast_dtype() or _C.bfloat16


def _get_autocast_gpu_dtype():
    """The lower precision of autocast on an accelerator."""
    return _C._autocast_dtype() or _C.float16


def _is_autocast_cpu_enabled():
    """Whether autocast is on for this thread."""
    return _C._autocast_dtype() is not None


def _is_autocast_cache_enabled():
    """Whether converted parameters may be cached within a region."""
    from .amp.autocast_mode import is_cache_enabled

    return is_cache_enabled()


def _is_vulkan_available():
    """Whether there is such a device: always False."""
    return False


def _imag(input):
    """The imaginary part: real tensors have none."""
    return input.imag


def _set_anomaly_enabled(mode, check_nan=True):
    """Switches the check for NaN in backward passes."""
    _C._set_detect_anomaly(mode)


def _kaiser_window(window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, requires_grad=False):
    """Kaiser window."""
    if layout is not None and layout is not _C.strided:
        raise RuntimeError(f"kaiser_window is not implemented for sparse types, got: layout={layout}")
    if dtype is not None and not dtype.is_floating_point:
        raise RuntimeError(f"kaiser_window expects floating point dtypes, got: {dtype}")
    count = window_length + 1 if periodic and window_length > 1 else window_length
    place = _C._torch.linspace(-1, 1, count, dtype=_C.float64, device=device) if count > 1 else _C._torch.zeros(count, dtype=_C.float64, device=device)
    i0 = find("i0")
    window = i0(beta * (1 - place * place).clamp(min=0).sqrt()) / i0(_C._torch.full((), beta, dtype=_C.float64, device=device))
    return window[:window_length].to(dtype or _C.get_default_dtype()).requires_grad_(requires_grad)


def _native_channel_shuffle(input, groups):
    """``channel_shuffle``."""
    from .nn.functional import channel_shuffle

    return channel_shuffle(input, groups)


def _unsafe_chunk(input, chunks, dim=0):
    """``chunk``."""
    return input.chunk(chunks, dim)


def _unsafe_split(tensor, split_size, dim=0):
    """``split``."""
    return tensor.split(split_size, dim)


def _spmm(input, mat2):
    """The product of two matrices, which are dense."""
    return input.mm(mat2)


_has_lapack, _has_openmp, _has_mkl, _has_spectral = True, True, False, False


def _lobpcg(A, k=None, B=None, X=None, n=None, iK=None, niter=None, tol=None, largest=None, method=None, tracker=None, ortho_iparams=None, ortho_fparams=None, ortho_bparams=None):
    """The ``k`` greatest (or smallest) eigenvalues of a symmetric matrix, or of the pair with ``B``, and their vectors.

    They are computed exactly, from all of them: options of the iteration (``iK``, ``niter``, ``tol``, ``method``) change nothing.
    """
    if tracker is not None:
        raise NotImplementedError("lobpcg: there is no iteration that a tracker could follow; the eigenvalues are computed at once")
    k = k if k is not None else X.shape[-1] if X is not None else 1
    k = k if n is None else min(k, n)
    linalg = _C._linalg
    if B is not None:
        factor = linalg.cholesky(B)
        A = linalg.solve_triangular(factor, linalg.solve_triangular(factor, A, upper=False).transpose(-2, -1), upper=False)
    values, vectors = linalg.eigh(A)
    if B is not None:
        vectors = linalg.solve_triangular(factor.transpose(-2, -1), vectors, upper=True)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :k], vectors[..., :k]
