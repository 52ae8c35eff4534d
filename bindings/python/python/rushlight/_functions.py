"""Functions of ``torch`` that are written in Python: multi-operand functions, queries, type information."""

from . import _C
from ._settings import (  # noqa: F401
    are_deterministic_algorithms_enabled, autocast, compile, default_generator, get_autocast_dtype,
    get_deterministic_debug_mode, get_device_module, get_file_path, get_float32_matmul_precision,
    get_num_interop_threads, is_anomaly_enabled, is_autocast_available, is_autocast_enabled,
    is_deterministic_algorithms_warn_only_enabled, is_warn_always_enabled, manual_seed, set_default_tensor_type,
    set_deterministic_debug_mode, set_float32_matmul_precision, set_flush_denormal, set_num_interop_threads,
    set_vital, set_warn_always, use_deterministic_algorithms,
)
from ._size import Size

Tensor = _C.Tensor
_torch = _C._torch

__all__ = [
    "_assert", "_scaled_mm", "_softmax_backward_data", "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FatalError", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
    "ShortTensor", "are_deterministic_algorithms_enabled", "asarray", "atleast_1d", "atleast_2d", "atleast_3d", "autocast",
    "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "chain_matmul", "compile", "default_generator", "detach", "orgqr", "ormqr",
    "einsum", "finfo", "from_dlpack", "get_autocast_dtype", "get_deterministic_debug_mode", "get_device_module", "get_file_path",
    "get_float32_matmul_precision", "get_num_interop_threads", "gradient", "histogram", "histogramdd", "iinfo", "index_put", "is_anomaly_enabled",
    "is_autocast_available", "is_autocast_enabled", "is_complex", "is_conj", "is_deterministic_algorithms_warn_only_enabled",
    "is_floating_point", "is_inference", "is_neg", "is_same_size", "is_storage", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min",
    "sym_not", "sym_sum", "is_signed", "is_tensor", "is_warn_always_enabled", "load",
    "manual_seed", "meshgrid", "numel", "result_type", "save", "set_default_tensor_type", "set_deterministic_debug_mode",
    "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads", "set_vital", "set_warn_always", "tensordot", "typename",
    "unravel_index", "use_deterministic_algorithms",
]


def _closest(name, names):
    import difflib

    found = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], 1)
    return f". Did you mean: '{found[0]}'?" if found else ""


class _MissingName(AttributeError):
    """A name that a module does not have. The closest name is searched when the message is read: ``hasattr`` does not pay for it."""

    def __init__(self, module, name):
        super().__init__(f"module '{module}' has no attribute '{name}'")
        self._module, self._name = module, name

    def __str__(self):
        import sys

        return f"{self.args[0]}{_closest(self._name, dir(sys.modules.get(self._module)))}"

    def __reduce__(self):
        return _MissingName, (self._module, self._name)


_MissingName.__name__ = _MissingName.__qualname__ = "AttributeError"


def _missing(module, name):
    """Raises the error for a name that a module does not have."""
    if name.startswith("__"):
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    raise _MissingName(module, name)


# Several operands.


def _operands(tensors):
    """Tensors given one by one or as one list."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return list(tensors[0])
    return list(tensors)


def meshgrid(*tensors, indexing=None):
    """Coordinates of the grid that vectors span."""
    return _torch._meshgrid(_operands(tensors), indexing=indexing)


def broadcast_tensors(*tensors):
    """Tensors expanded to one size."""
    return _torch._broadcast_tensors(_operands(tensors))


def broadcast_shapes(*shapes):
    """The size that tensors of these sizes broadcast to."""
    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    rank = max(map(len, shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for at, size in enumerate(shape, rank - len(shape)):
            if size < 0:
                raise ValueError(f"Attempting to broadcast a dimension with negative length! Got {size} in {shape}")
            if size != 1:
                if out[at] not in (1, size):
                    raise RuntimeError(
                        f"Shape mismatch: objects cannot be broadcast to a single shape: {shapes}; with size {size} in {shape}, expected shape should be "
                        f"broadcastable to {out}"
                    )
                out[at] = size
    return Size(out)


def block_diag(*tensors):
    """Blocks on the diagonal of a matrix."""
    return _torch._block_diag(_operands(tensors))


def cartesian_prod(*tensors):
    """All combinations of entries of vectors."""
    return _torch._cartesian_prod(_operands(tensors))


def orgqr(input, tau):
    """The first columns of a product of Householder reflections: ``torch.linalg.householder_product``."""
    from .linalg import householder_product

    return householder_product(input, tau)


def ormqr(input, tau, other, left=True, transpose=False):
    """``Q @ other``, or ``other @ Q``, for the square Q that Householder reflections make; with its adjoint if asked for ``transpose``."""
    from .linalg import householder_product

    rows, count = input.shape[-2], tau.shape[-1]
    if count > rows or other.dim() != input.dim() or other.shape[-2 if left else -1] != rows:
        raise RuntimeError(
            f"ormqr: {count} reflections of {rows} rows do not fit a matrix of {tuple(other.shape)} on its {'left' if left else 'right'}"
        )
    vectors = _torch.zeros(*input.shape[:-1], rows, dtype=input.dtype, device=input.device)
    wide = _torch.cat([input[..., :count], vectors[..., count:]], -1)
    q = householder_product(wide, tau)
    q = q.mH if transpose else q
    return q @ other if left else other @ q


def chain_matmul(*matrices):
    """The product of matrices."""
    return _torch._chain_matmul(_operands(matrices))


def _at_least(name):
    row = getattr(_torch, "_" + name)

    def at_least(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return row([tensors[0]])[0]
        return row(_operands(tensors))

    at_least.__name__ = at_least.__qualname__ = name
    at_least.__doc__ = "Tensors with at least the number of dimensions in the name."
    return at_least


atleast_1d, atleast_2d, atleast_3d = (_at_least(f"atleast_{n}d") for n in (1, 2, 3))


def einsum(*args):
    """Sums of products by Einstein's notation: ``einsum("ij,jk->ik", a, b)``, or operands each followed by its list of letters."""
    if not args:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list")
    if isinstance(args[0], Tensor):

        def letters(numbers):
            return "".join("..." if n is Ellipsis else chr(ord("A") + n if n < 26 else ord("a") + n - 26) for n in numbers)

        equation = ",".join(letters(args[i]) for i in range(1, len(args), 2))
        operands = list(args[0 : len(args) // 2 * 2 : 2])
        if len(args) % 2:
            equation += "->" + letters(args[-1])
        return _torch._einsum(equation, operands)
    return _torch._einsum(args[0], _operands(args[1:]))


def _scaled_mm(input, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
    """The product of two matrices of 8-bit floats times their scales: one for each matrix, or one for each row of the first and column of the second.

    It is computed in ``float32``, so ``use_fast_accum`` changes nothing.
    """
    if scale_result is not None:
        raise NotImplementedError("_scaled_mm: scale_result is not implemented; ask for out_dtype=torch.float32 and scale the result")
    for name, matrix in (("mat1", input), ("mat2", mat2)):
        if matrix.dim() != 2:
            raise RuntimeError(f"_scaled_mm: {name} must be a matrix, got {matrix.dim()}-D tensor")
        if not str(matrix.dtype).startswith("torch.float8"):
            raise RuntimeError(f"Expected {name} to be Float8 matrix got {matrix.dtype}")
    (rows, depth), (other, columns) = input.shape, mat2.shape
    if depth != other:
        raise RuntimeError(f"_scaled_mm: mat1 and mat2 shapes cannot be multiplied ({rows}x{depth} and {other}x{columns})")
    single = scale_a.numel() == 1 and scale_b.numel() == 1
    if not single and (tuple(scale_a.shape) != (rows, 1) or tuple(scale_b.shape) != (1, columns)):
        raise ValueError(
            f"_scaled_mm: scales must have one element each, or shapes ({rows}, 1) and (1, {columns}), got {tuple(scale_a.shape)} and {tuple(scale_b.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (columns,):
        raise RuntimeError(f"Bias must be size {columns} but got {tuple(bias.shape)}")
    if single:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    out_dtype = input.dtype if out_dtype is None else out_dtype
    if not out_dtype.is_floating_point:
        raise RuntimeError(f"_scaled_mm: out_dtype must be a floating type, got {out_dtype}")
    product = (input.float() * scale_a.float()) @ (mat2.float() * scale_b.float())
    return (product if bias is None else product + bias.float()).to(out_dtype)


def tensordot(a, b, dims=2, out=None):
    """Products summed over dimensions: a number of last and first ones, or lists of them."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (list, tuple)):
        dims_a, dims_b = ([d] if isinstance(d, int) else list(d) for d in dims)
        made = _torch._tensordot(a, b, dims_a, dims_b)
    else:
        made = _torch._tensordot(a, b, dims)
    return made if out is None else out.copy_(made)


def histogram(input, bins, *, range=None, weight=None, density=False):
    """Number of elements between edges, and the edges."""
    from .return_types import of

    if isinstance(bins, Tensor):
        edges = bins
    else:
        low, high = (input.min().item(), input.max().item()) if range is None else range
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = _torch.linspace(low, high, bins + 1, dtype=input.dtype, device=input.device)
    flat = input.reshape(-1)
    place = _torch.bucketize(flat, edges, right=True) - 1
    place = _torch.where(flat == edges[-1], edges.numel() - 2, place)
    inside = (place >= 0) & (place < edges.numel() - 1)
    weights = _torch.ones_like(flat) if weight is None else weight.reshape(-1)
    counts = _torch.zeros(edges.numel() - 1, dtype=input.dtype, device=input.device).index_add(0, place[inside], weights[inside])
    if density:
        counts = counts / counts.sum() / edges.diff()
    return of("histogram", "hist bin_edges")((counts, edges))


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """Number of points in each cell of a grid, and the edges along each dimension. The last dimension of ``input`` holds coordinates."""
    from .return_types import of

    points = input.reshape(-1, input.shape[-1])
    width = points.shape[1]
    bins = [bins] * width if isinstance(bins, (int, Tensor)) else list(bins)
    if len(bins) != width:
        raise RuntimeError(f"histogramdd(): expected {width} sequences of bin edges for points of {width} coordinates, got {len(bins)}")
    edges, place, inside = [], None, None
    for d, count in enumerate(bins):
        x = points[:, d].contiguous()
        if isinstance(count, Tensor):
            edge = count
        else:
            low, high = (x.min().item(), x.max().item()) if range is None else (range[2 * d], range[2 * d + 1])
            low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
            edge = _torch.linspace(low, high, count + 1, dtype=input.dtype, device=input.device)
        at = _torch.where(x == edge[-1], edge.numel() - 2, _torch.bucketize(x, edge, right=True) - 1)
        within = (at >= 0) & (at < edge.numel() - 1)
        place = at if place is None else place * (edge.numel() - 1) + at
        inside = within if inside is None else inside & within
        edges.append(edge)
    sizes = [e.numel() - 1 for e in edges]
    weights = _torch.ones_like(points[:, 0]) if weight is None else weight.reshape(-1)
    cells = 1
    for n in sizes:
        cells *= n
    hist = _torch.zeros(cells, dtype=input.dtype, device=input.device).index_add(0, place[inside], weights[inside]).reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, edge in enumerate(edges):
            hist = hist / edge.diff().reshape([-1 if i == d else 1 for i in _builtin_range(width)])
    return of("histogramdd", "hist bin_edges")((hist, tuple(edges)))


_gradient_row = _torch.gradient
_builtin_range = range


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Estimates of a function's derivatives along dimensions, by central differences. ``spacing`` is a number, a number for each dimension, or
    the coordinates along each dimension."""
    spacing = 1 if spacing is None else spacing
    dims = list(_builtin_range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    places = [d % max(input.dim(), 1) for d in dims]
    if len(set(places)) != len(places):
        raise RuntimeError(f"dim {next(d for d in places if places.count(d) > 1)} appears multiple times in the list of dims")
    if not isinstance(spacing, (list, tuple)):
        spacing = [spacing] * len(dims)
    if len(spacing) != len(dims):
        raise RuntimeError(f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length {len(dims)}, but got a list of length {len(spacing)}")
    out = []
    for d, step in zip(dims, spacing):
        if isinstance(step, Tensor) and step.dim() == 1:
            out.append(_uneven_gradient(input, step, d, edge_order))
        elif edge_order == 2:
            dtype = input.dtype if input.is_floating_point() else _C.get_default_dtype()
            out.append(_uneven_gradient(input, _torch.arange(input.shape[d], dtype=dtype, device=input.device) * float(step), d, 2))
        else:
            out.append(_gradient_row(input, spacing=float(step), dim=d, edge_order=edge_order)[0])
    return tuple(out)


def _uneven_gradient(input, places, dim, edge_order):
    n = input.shape[dim]
    if places.numel() != n:
        raise RuntimeError(f"torch.gradient expected spacing for dimension {dim} to have {n} elements, but it has {places.numel()}")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if n < edge_order + 1:
        raise RuntimeError(f"torch.gradient expected each dimension size to be at least {edge_order + 1}")
    x = input.movedim(dim, -1)
    h = places.diff()
    a, b = h[:-1], h[1:]
    slopes = x.diff() / h
    inner = (b * slopes[..., :-1] + a * slopes[..., 1:]) / (a + b)
    first, last = slopes[..., :1], slopes[..., -1:]
    if edge_order == 2:
        first = first + (first - slopes[..., 1:2]) * h[:1] / (h[:1] + h[1:2])
        last = last + (last - slopes[..., -2:-1]) * h[-1:] / (h[-1:] + h[-2:-1])
    return _torch.cat([first, inner, last], -1).movedim(-1, dim).contiguous()


def index_put(input, indices, values, accumulate=False):
    """A copy with values written or added at indices."""
    return input.index_put(indices, values, accumulate)


def unravel_index(indices, shape):
    """Coordinates of row-major positions."""
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == _C.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    for size in shape:
        if not isinstance(size, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(size)}")
    if any(size < 0 for size in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {shape}")
    found = []
    for size in reversed(shape):
        found.append(indices % size)
        indices = indices // size
    # Views of one tensor, as PyTorch's.
    return _torch.stack(found[::-1], -1).unbind(-1) if found else ()


#: Methods that change their tensor, which PyTorch has as functions, too.
_CHANGING = (
    "addmv_ clip_ conj_physical_ deg2rad_ detach_ fill_ gcd_ lcm_ ldexp_ logit_ nan_to_num_ rad2deg_ round_ resize_as_ xlogy_ zero_ "
    "bernoulli_ fix_ neg_ square_"
).split()
globals().update({name: getattr(Tensor, name) for name in _CHANGING})
__all__ += _CHANGING

# Queries.


def _assert(condition, message):
    """Raises an AssertionError unless a condition holds. ``torch.fx`` graphs keep it as a node."""
    if not condition:
        raise AssertionError(message)


def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """The gradient by the input of a softmax, from that by its output."""
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


def is_storage(obj):
    """Whether an object is a storage."""
    from .storage import UntypedStorage

    return isinstance(obj, UntypedStorage)


def sym_int(a):
    """A number as an integer: sizes are never symbols."""
    return int(a)


def sym_float(a):
    """A number as a float."""
    return float(a)


def sym_not(a):
    """Whether a condition does not hold."""
    return not a


def sym_max(a, b):
    """The larger of two numbers."""
    return max(a, b)


def sym_min(a, b):
    """The smaller of two numbers."""
    return min(a, b)


def sym_sum(args):
    """The sum of numbers."""
    return sum(args)


def sym_ite(b, t, f):
    """One value or the other."""
    return t if b else f


def is_tensor(obj):
    """Whether an object is a tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input):
    """Whether a tensor's elements are floats."""
    return input.is_floating_point()


def is_complex(input):
    """Whether a tensor's elements are complex."""
    return input.is_complex()


def is_conj(input):
    """Whether a conjugation is pending: always False."""
    return False


def is_neg(input):
    """Whether a negation is pending: always False."""
    return False


def is_signed(input):
    """Whether a tensor's dtype has a sign."""
    return input.is_signed()


def is_inference(input):
    """Whether a tensor was made under inference_mode."""
    return input.is_inference()


def is_same_size(input, other):
    """Whether two tensors have equal sizes."""
    return input.is_same_size(other)


def numel(input):
    """The number of elements."""
    return input.numel()


def detach(input):
    """The same elements outside the graph."""
    return input.detach()


def typename(obj):
    """The name of an object's type."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", None) or "builtins"
    module = "torch" + module[len("rushlight"):] if module.split(".")[0] == "rushlight" else module
    return named.__qualname__ if module == "builtins" else f"{module}.{named.__qualname__}"


def result_type(tensor1, tensor2):
    """The promoted dtype of two operands."""
    dtypes = [o.dtype for o in (tensor1, tensor2) if isinstance(o, Tensor)]
    if any(dtype in _FLOAT8 for dtype in dtypes):
        # Only types are compared; numbers do not change the dtype of floats.
        return _C.promote_types(dtypes[0], dtypes[-1])
    probe = [o.detach().reshape(-1)[:0].reshape((0,) * max(o.dim(), 0)) if isinstance(o, Tensor) and o.dim() else o for o in (tensor1, tensor2)]
    if not any(isinstance(o, Tensor) for o in probe):
        probe[0] = _C.tensor(probe[0])
    return _torch.mul(*probe).dtype if not isinstance(probe[0], Tensor) else (probe[0] * probe[1]).dtype


_FLOAT8 = (_C.float8_e4m3fn, _C.float8_e5m2, _C.float8_e4m3fnuz, _C.float8_e5m2fnuz, _C.float8_e8m0fnu)


def _type_names(place="cpu"):
    """The names of the legacy tensor classes of a device type, by dtype."""
    names = {
        _C.float32: "FloatTensor", _C.float64: "DoubleTensor", _C.float16: "HalfTensor", _C.bfloat16: "BFloat16Tensor",
        _C.int64: "LongTensor", _C.int32: "IntTensor", _C.int16: "ShortTensor", _C.int8: "CharTensor", _C.uint8: "ByteTensor",
        _C.bool: "BoolTensor", _C.uint16: "UInt16Tensor", _C.uint32: "UInt32Tensor", _C.uint64: "UInt64Tensor",
    }
    names.update({dtype: f"F{str(dtype)[7:]}Tensor" for dtype in _FLOAT8})
    module = "torch" if place == "cpu" else f"torch.{place}"
    return {dtype: f"{module}.{name}" for dtype, name in names.items()}


class FatalError(Exception):
    """PyTorch's class for errors after which a process cannot continue. Nothing raises it here."""


class _TypedMeta(type):
    def __instancecheck__(cls, obj):
        return isinstance(obj, Tensor) and obj.dtype == cls.dtype and obj.is_cuda == (cls.place == "cuda")

    def __call__(cls, *args, **kwargs):
        return Tensor(*args, dtype=cls.dtype, **{"device": cls.place, **kwargs})


def typed(dtype, place="cpu"):
    """The legacy tensor class of a dtype: ``torch.FloatTensor``, or ``torch.cuda.FloatTensor``."""
    module, name = _type_names(place)[dtype].rsplit(".", 1)
    members = {"dtype": dtype, "place": place, "is_cuda": place == "cuda", "is_sparse": False}
    return _TypedMeta(name, (), {**members, "__module__": module, "__doc__": f"Makes tensors of dtype {dtype}."})


FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor = map(typed, (_C.float32, _C.float64, _C.float16, _C.bfloat16))
LongTensor, IntTensor, ShortTensor, CharTensor = map(typed, (_C.int64, _C.int32, _C.int16, _C.int8))
ByteTensor, BoolTensor = map(typed, (_C.uint8, _C.bool))


class finfo:
    """Limits of a floating-point dtype."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny")
    #: Bits, bits of the fraction, smallest exponent, largest finite number.
    _LIMITS = {
        "float64": (64, 52, -1022, 1.7976931348623157e308, 1e-15),
        "float32": (32, 23, -126, 3.4028234663852886e38, 1e-06),
        "float16": (16, 10, -14, 65504.0, 0.001),
        "bfloat16": (16, 7, -126, 3.3895313892515355e38, 0.01),
        "float8_e4m3fn": (8, 3, -6, 448.0, 1.0),
        "float8_e4m3fnuz": (8, 3, -7, 240.0, 1.0),
        "float8_e5m2": (8, 2, -14, 57344.0, 1.0),
        "float8_e5m2fnuz": (8, 2, -15, 57344.0, 1.0),
        "float8_e8m0fnu": (8, 0, -127, 2.0**127, 1.0),
    }

    def __init__(self, type=None):
        name = str(_C.get_default_dtype() if type is None else type)[6:]
        # Complex dtypes have the limits of their parts.
        name = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}.get(name, name)
        if name not in self._LIMITS:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        self.dtype = name
        self.bits, fraction, exponent, self.max, self.resolution = self._LIMITS[name]
        self.min, self.eps, self.tiny = -self.max, 2.0**-fraction, 2.0**exponent
        if name == "float8_e8m0fnu":
            self.min = self.tiny
        self.smallest_normal = self.tiny

    def __repr__(self):
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )

    def __eq__(self, other):
        return self.dtype == other.dtype if isinstance(other, finfo) else NotImplemented

    def __hash__(self):
        return hash(self.dtype)


class iinfo:
    """Limits of an integer dtype."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type):
        name = str(type)[6:]
        if name not in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"):
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        self.dtype, self.bits = name, type.itemsize * 8
        unsigned = name.startswith("uint")
        self.min = 0 if unsigned else -(2 ** (self.bits - 1))
        self.max = 2 ** (self.bits - (not unsigned)) - 1

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __eq__(self, other):
        return self.dtype == other.dtype if isinstance(other, iinfo) else NotImplemented

    def __hash__(self):
        return hash(self.dtype)


# Data from elsewhere.


#: Formats of Python's buffers.
_BUFFER_DTYPES = {
    "B": _C.uint8, "b": _C.int8, "h": _C.int16, "i": _C.int32, "l": _C.int64, "q": _C.int64, "e": _C.float16, "f": _C.float32, "d": _C.float64,
    "?": _C.bool, "H": _C.uint16, "I": _C.uint32, "L": _C.uint64, "Q": _C.uint64,
}


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None):
    """An object as a tensor, sharing memory unless ``copy`` says otherwise. A tensor keeps its history unless ``requires_grad`` is False."""
    if type(obj).__name__ == "PyCapsule":
        obj = from_dlpack(obj)
    if isinstance(obj, Tensor):
        made = obj.to(device=obj.device if device is None else device, dtype=obj.dtype if dtype is None else dtype)
        made = made.clone() if copy and made is obj else made
        if copy is False and made is not obj:
            raise ValueError("asarray: a copy is needed for this dtype or device, which copy=False forbids")
        if requires_grad and not made.requires_grad:
            return made.requires_grad_()
        return made.detach() if requires_grad is False and made.requires_grad else made
    if isinstance(obj, (memoryview, bytearray)) and not copy:
        view = memoryview(obj)
        known = _BUFFER_DTYPES.get(view.format)
        if known is not None and view.nbytes and view.c_contiguous:
            shared = _C.frombuffer(obj, dtype=known).reshape(view.shape)
            shared = _C.as_tensor(shared, dtype, device)
            return shared.requires_grad_() if requires_grad else shared
    if is_storage(obj):
        obj = obj._bytes if dtype in (None, _C.uint8) else obj._bytes.view(dtype)
    made = _C.tensor(obj, dtype=dtype, device=device) if copy else _C.as_tensor(obj, dtype, device)
    return made.requires_grad_() if requires_grad else made


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor over memory that another library lends by DLPack."""
    if hasattr(ext_tensor, "__dlpack__"):
        kind, index = ext_tensor.__dlpack_device__() if hasattr(ext_tensor, "__dlpack_device__") else (1, 0)
        # The producer makes the stream that will use the tensor wait for its work.
        order = {"stream": _C._Stream.current(index).handle} if kind == 2 and index < _C._device_count() else {}
        try:
            capsule = ext_tensor.__dlpack__(max_version=(1, 0), **order)
        except TypeError:
            capsule = ext_tensor.__dlpack__(**order)
    else:
        capsule = ext_tensor
    made = _C._from_dlpack(capsule)
    if device is not None and made.device != _C.as_tensor(0, device=device).device:
        if copy is False:
            raise ValueError(f"from_dlpack: the tensor is on {made.device}; on {device} it would be a copy, which copy=False forbids")
        return made.to(device)
    return made.clone() if copy else made


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True, _disable_byteorder_record=False):
    """Writes tensors and plain values in nested containers to a file that PyTorch reads, too."""
    from .serialization import save

    if not _use_new_zipfile_serialization:
        import warnings

        warnings.warn("rushlight: torch.save writes the zip format, which PyTorch reads since 1.6; the older one is not written", stacklevel=2)
    return save(obj, f, pickle_module, pickle_protocol)


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Reads a file of ``save`` or of PyTorch's ``torch.save``."""
    from .serialization import load

    return load(f, map_location, pickle_module, weights_only=weights_only, mmap=mmap, **pickle_load_args)
