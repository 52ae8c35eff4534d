"""Made by stubs.py from the op table."""

from typing import Any, Sequence, overload

Number = int | float | bool

class dtype:
    itemsize: int
    is_floating_point: bool
    is_complex: bool
    is_signed: bool
class device:
    type: str
    index: int | None
    def __init__(self, type: Any, index: int | None = None) -> None: ...
class layout: ...
class memory_format: ...
class Generator:
    def __init__(self, device: Any = None) -> None: ...
    def manual_seed(self, seed: int) -> Generator: ...
    def get_state(self) -> Tensor: ...
    def set_state(self, new_state: Tensor) -> Generator: ...
    def initial_seed(self) -> int: ...
    def seed(self) -> int: ...
class Size(tuple[int, ...]):
    def numel(self) -> int: ...
_dtype = dtype
_device = device
class Tensor:
    def __getitem__(self, index: Any) -> Tensor: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    @property
    def H(self) -> Any: ...
    @property
    def T(self) -> Any: ...
    def __abs__(self) -> Tensor: ...
    def __add__(self, other: Any) -> Tensor: ...
    def __and__(self, other: Any) -> Tensor: ...
    def __copy__(self): ...
    @property
    def __dict__(self) -> Any: ...
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None): ...
    def __dlpack_device__(self): ...
    def __floordiv__(self, other: Any) -> Tensor: ...
    def __ge__(self, other: Any) -> Tensor: ...
    def __gt__(self, other: Any) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __le__(self, other: Any) -> Tensor: ...
    def __lt__(self, other: Any) -> Tensor: ...
    def __matmul__(self, other: Any) -> Tensor: ...
    def __mod__(self, other: Any) -> Tensor: ...
    def __mul__(self, other: Any) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __or__(self, other: Any) -> Tensor: ...
    def __pow__(self, other: Any) -> Tensor: ...
    def __radd__(self, other: Any) -> Tensor: ...
    def __reduce_ex__(self, protocol): ...
    def __rmul__(self, other: Any) -> Tensor: ...
    def __rsub__(self, other: Any) -> Tensor: ...
    def __rtruediv__(self, other: Any) -> Tensor: ...
    def __sub__(self, other: Any) -> Tensor: ...
    def __truediv__(self, other: Any) -> Tensor: ...
    def __xor__(self, other: Any) -> Tensor: ...
    def addbmm_(self, batch1, batch2, *, beta=1, alpha=1) -> Any: ...
    def addmm_(self, mat1, mat2, *, beta=1, alpha=1) -> Any: ...
    def addmv_(self, mat, vec, *, beta=1, alpha=1) -> Any: ...
    def addr_(self, vec1, vec2, *, beta=1, alpha=1) -> Any: ...
    def apply_(self, callable): ...
    def arctan2_(self, other) -> Any: ...
    def as_strided_(input, size, stride, storage_offset=None): ...
    def as_strided_scatter(input, src, size, stride, storage_offset=None): ...
    def as_subclass(self, cls): ...
    def atan2_(self, other) -> Any: ...
    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> Any: ...
    def baddbmm_(self, batch1, batch2, *, beta=1, alpha=1) -> Any: ...
    def bfloat16(self, memory_format=None): ...
    def bitwise_and_(self, other) -> Any: ...
    def bitwise_left_shift_(self, other) -> Any: ...
    def bitwise_not_(self) -> Any: ...
    def bitwise_or_(self, other) -> Any: ...
    def bitwise_right_shift_(self, other) -> Any: ...
    def bitwise_xor_(self, other) -> Any: ...
    def bool(self, memory_format=None): ...
    def byte(self, memory_format=None): ...
    def cdouble(self, memory_format=torch.preserve_format): ...
    def cfloat(self, memory_format=torch.preserve_format): ...
    def chalf(self, memory_format=torch.preserve_format): ...
    def char(self, memory_format=None): ...
    def conj_physical_(self) -> Any: ...
    def copysign_(self, other) -> Any: ...
    def cpu(self, memory_format=None): ...
    def cuda(self, device=None, non_blocking=False, memory_format=None): ...
    def cumprod_(self, dim, *, dtype=None) -> Any: ...
    def cumsum_(self, dim, *, dtype=None) -> Any: ...
    @property
    def data(self) -> Any: ...
    def data_ptr(self) -> Any: ...
    def deg2rad_(self) -> Any: ...
    def detach(self) -> Any: ...
    def detach_(self) -> Any: ...
    @property
    def device(self) -> Any: ...
    def dim(self) -> Any: ...
    def dim_order(self, ambiguity_check=False): ...
    def divide_(self, *args: Any, **kwargs: Any) -> Any: ...
    def double(self, memory_format=None): ...
    @property
    def dtype(self) -> Any: ...
    def element_size(self) -> Any: ...
    def eq_(self, other) -> Any: ...
    def float(self, memory_format=None): ...
    def float_power_(self, exponent): ...
    def floor_divide_(self, *args: Any, **kwargs: Any) -> Any: ...
    def fmod_(self, other) -> Any: ...
    def gcd_(self, other) -> Any: ...
    def ge_(self, other) -> Any: ...
    @property
    def grad(self) -> Any: ...
    @property
    def grad_dtype(self) -> Any: ...
    @property
    def grad_fn(self) -> Any: ...
    def greater_(self, other) -> Any: ...
    def greater_equal_(self, other) -> Any: ...
    def gt_(self, other) -> Any: ...
    def half(self, memory_format=None): ...
    def heaviside_(self, values) -> Any: ...
    def hip(self, device=None, non_blocking=False, memory_format=None): ...
    def histogram(self, bins, *, range=None, weight=None, density=False): ...
    def hypot_(self, other) -> Any: ...
    def i0_(self) -> Any: ...
    def igamma(self, *args): ...
    def igamma_(self, *args): ...
    def igammac(self, *args): ...
    def igammac_(self, *args): ...
    @property
    def imag(self) -> Any: ...
    def index_put(self, indices, values, accumulate=False): ...
    def index_put_(self, indices, values, accumulate=False): ...
    def index_reduce_(self, dim, index, source, reduce, *, include_self=True) -> Any: ...
    def int(self, memory_format=None): ...
    def is_complex(self) -> Any: ...
    def is_conj(self): ...
    @property
    def is_cpu(self) -> Any: ...
    @property
    def is_cuda(self) -> Any: ...
    def is_distributed(self): ...
    def is_floating_point(self) -> Any: ...
    def is_inference(self) -> Any: ...
    @property
    def is_leaf(self) -> Any: ...
    @property
    def is_meta(self) -> Any: ...
    @property
    def is_mps(self) -> Any: ...
    def is_neg(self): ...
    @property
    def is_nested(self) -> Any: ...
    def is_pinned(self, device=None) -> Any: ...
    @property
    def is_quantized(self) -> Any: ...
    def is_same_size(self, other): ...
    def is_set_to(self, tensor): ...
    def is_shared(self): ...
    def is_signed(self) -> Any: ...
    @property
    def is_sparse(self) -> Any: ...
    @property
    def is_xpu(self) -> Any: ...
    def istft(self, *args, **kwargs): ...
    def item(self) -> Any: ...
    @property
    def itemsize(self) -> Any: ...
    @property
    def layout(self) -> Any: ...
    def lcm_(self, other) -> Any: ...
    def ldexp_(self, other) -> Any: ...
    def le_(self, other) -> Any: ...
    def lerp_(self, end, weight) -> Any: ...
    def less_(self, other) -> Any: ...
    def less_equal_(self, other) -> Any: ...
    def logical_and_(self, other) -> Any: ...
    def logical_not_(self) -> Any: ...
    def logical_or_(self, other) -> Any: ...
    def logical_xor_(self, other) -> Any: ...
    def logit_(self, eps=None) -> Any: ...
    def long(self, memory_format=None): ...
    def lt_(self, other) -> Any: ...
    @property
    def mH(self) -> Any: ...
    @property
    def mT(self) -> Any: ...
    def map_(self, tensor, callable): ...
    def module_load(self, other, assign=False): ...
    def multiply_(self, *args: Any, **kwargs: Any) -> Any: ...
    def mvlgamma_(self, p) -> Any: ...
    def nan_to_num_(self, nan=None, posinf=None, neginf=None) -> Any: ...
    @property
    def nbytes(self) -> Any: ...
    @property
    def ndim(self) -> Any: ...
    def ndimension(self) -> Any: ...
    def ne_(self, other) -> Any: ...
    def nelement(self) -> Any: ...
    def new(self, *args, **kwargs): ...
    def new_empty_strided(self, size, stride, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False): ...
    def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False): ...
    def nextafter_(self, other) -> Any: ...
    def nonzero_static(self, *, size, fill_value=-1): ...
    def not_equal_(self, other) -> Any: ...
    def numel(self) -> Any: ...
    def numpy(self, *, force=False) -> Any: ...
    @property
    def output_nr(self) -> Any: ...
    def pin_memory(self, device=None) -> Any: ...
    def polygamma(self, n): ...
    def polygamma_(self, n): ...
    def put_(self, index, source, accumulate=False): ...
    def rad2deg_(self) -> Any: ...
    @property
    def real(self) -> Any: ...
    def record_stream(self, stream): ...
    def register_hook(self, hook) -> Any: ...
    def register_post_accumulate_grad_hook(self, hook) -> Any: ...
    def remainder_(self, *args: Any, **kwargs: Any) -> Any: ...
    def renorm_(self, p, dim, maxnorm) -> Any: ...
    @property
    def requires_grad(self) -> Any: ...
    def requires_grad_(self, requires_grad=True) -> Any: ...
    def resize_(self, *sizes, memory_format=None): ...
    def resize_as_(self, other, memory_format=None): ...
    def retain_grad(self) -> Any: ...
    @property
    def retains_grad(self) -> Any: ...
    def round_(self, *, decimals=0) -> Any: ...
    def set_(self, source=None, *args): ...
    def sgn_(self) -> Any: ...
    @property
    def shape(self) -> Any: ...
    def share_memory_(self): ...
    def short(self, memory_format=None): ...
    def sign_(self) -> Any: ...
    def size(self, dim=None) -> Any: ...
    def squeeze_(self, *args, **kwargs): ...
    def stft(self, *args, **kwargs): ...
    def storage(self): ...
    def storage_offset(self) -> Any: ...
    def storage_type(self): ...
    def stride(self, dim=None) -> Any: ...
    def subtract_(self, *args: Any, **kwargs: Any) -> Any: ...
    def swapaxes_(self, *args, **kwargs): ...
    def swapdims_(self, *args, **kwargs): ...
    def t_(self, *args, **kwargs): ...
    def to_dense(self, dtype=None): ...
    def tolist(self) -> Any: ...
    def transpose_(self, *args, **kwargs): ...
    def tril_(self, diagonal=0) -> Any: ...
    def triu_(self, diagonal=0) -> Any: ...
    def true_divide_(self, *args: Any, **kwargs: Any) -> Any: ...
    def type(self, dtype=None, non_blocking=False, **kwargs): ...
    def type_as(self, other): ...
    def unsafe_chunk(self, chunks, dim=0): ...
    def unsafe_split(self, split_size, dim=0): ...
    def unsafe_split_with_sizes(self, split_sizes, dim=0): ...
    def unsqueeze_(self, *args, **kwargs): ...
    def untyped_storage(self): ...
    def xlogy_(self, *args: Any, **kwargs: Any) -> Any: ...
    def xpu(self, device=None, non_blocking=False, memory_format=None): ...
    def abs(self) -> Any:
        """Magnitude."""
    def abs_(self) -> Tensor:
        """In place."""
    def absolute(self) -> Any:
        """Magnitude."""
    def absolute_(self) -> Tensor:
        """In place."""
    def acos(self) -> Any:
        """Inverse cosine."""
    def acos_(self) -> Tensor:
        """In place."""
    def acosh(self) -> Any:
        """Inverse hyperbolic cosine."""
    def acosh_(self) -> Tensor:
        """In place."""
    @overload
    def add(self, other: Tensor | Number, *, alpha: Number = 1) -> Any:
        """Sum of two tensors, the second times `alpha`."""
    @overload
    def add(self, other: Tensor, *, alpha: Number = 1) -> Any:
        """Sum of two tensors, the second times `alpha`."""
    @overload
    def add(self, other: Number, *, alpha: Number = 1) -> Any:
        """Sum of two tensors, the second times `alpha`."""
    def add_(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """`add` in place."""
    def addbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
        """`beta * input + alpha * sum(batch1 @ batch2)`."""
    @overload
    def addcdiv(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Any:
        """`input + value * tensor1 / tensor2`."""
    @overload
    def addcdiv(self, value: Number, tensor1: Tensor, tensor2: Tensor) -> Any:
        """`input + value * tensor1 / tensor2`."""
    @overload
    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """`addcdiv` in place."""
    @overload
    def addcdiv_(self, value: Number, tensor1: Tensor, tensor2: Tensor) -> Tensor:
        """`addcdiv` in place."""
    @overload
    def addcmul(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Any:
        """`input + value * tensor1 * tensor2`."""
    @overload
    def addcmul(self, value: Number, tensor1: Tensor, tensor2: Tensor) -> Any:
        """`input + value * tensor1 * tensor2`."""
    @overload
    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """`addcmul` in place."""
    @overload
    def addcmul_(self, value: Number, tensor1: Tensor, tensor2: Tensor) -> Tensor:
        """`addcmul` in place."""
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
        """`beta * input + alpha * (mat1 @ mat2)`."""
    def addmv(self, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
        """`beta * input + alpha * (mat @ vec)`."""
    def addr(self, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
        """`beta * input + alpha * outer(vec1, vec2)`."""
    def adjoint(self) -> Any:
        """Transposes the last two dimensions."""
    def all(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False) -> Any:
        """Whether all elements are true."""
    def allclose(self, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
        """Whether all elements are close to another tensor's."""
    def amax(self, dim: int | Sequence[int | None] | None = (), keepdim: bool = False) -> Any:
        """The largest elements; equal elements share the gradient."""
    def amin(self, dim: int | Sequence[int | None] | None = (), keepdim: bool = False) -> Any:
        """The smallest elements; equal elements share the gradient."""
    def aminmax(self, *, dim: int | None = None, keepdim: bool = False) -> Any:
        """The smallest and the largest elements."""
    def angle(self) -> Any:
        """The angle of complex numbers; of real ones pi for negative ones, else zero."""
    def any(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False) -> Any:
        """Whether any element is true."""
    def arccos(self) -> Any:
        """Inverse cosine."""
    def arccos_(self) -> Tensor:
        """In place."""
    def arccosh(self) -> Any:
        """Inverse hyperbolic cosine."""
    def arccosh_(self) -> Tensor:
        """In place."""
    def arcsin(self) -> Any:
        """Inverse sine."""
    def arcsin_(self) -> Tensor:
        """In place."""
    def arcsinh(self) -> Any:
        """Inverse hyperbolic sine."""
    def arcsinh_(self) -> Tensor:
        """In place."""
    def arctan(self) -> Any:
        """Inverse tangent."""
    def arctan2(self, other: Tensor) -> Any:
        """Another name of `atan2`."""
    def arctan_(self) -> Tensor:
        """In place."""
    def arctanh(self) -> Any:
        """Inverse hyperbolic tangent."""
    def arctanh_(self) -> Tensor:
        """In place."""
    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Index of the largest element."""
    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Index of the smallest element."""
    @overload
    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
        """Indices that sort the elements."""
    @overload
    def argsort(self, *, stable: bool, dim: int = -1, descending: bool = False) -> Any:
        """Indices that sort the elements."""
    def argwhere(self) -> Any:
        """Indices of nonzero elements, as rows."""
    def as_strided(self, size: int | Sequence[int | None], stride: int | Sequence[int | None], storage_offset: int | None = None) -> Any:
        """A view by sizes and strides."""
    def asin(self) -> Any:
        """Inverse sine."""
    def asin_(self) -> Tensor:
        """In place."""
    def asinh(self) -> Any:
        """Inverse hyperbolic sine."""
    def asinh_(self) -> Tensor:
        """In place."""
    def atan(self) -> Any:
        """Inverse tangent."""
    def atan2(self, other: Tensor) -> Any:
        """Angle of the point `(other, input)`."""
    def atan_(self) -> Tensor:
        """In place."""
    def atanh(self) -> Any:
        """Inverse hyperbolic tangent."""
    def atanh_(self) -> Tensor:
        """In place."""
    def baddbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
        """`beta * input + alpha * (batch1 @ batch2)`."""
    def bernoulli(self, p: float | None = None, *, generator: Generator | None = None) -> Any:
        """Bernoulli samples with the elements as probabilities."""
    @overload
    def bernoulli_(self, p: float = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Bernoulli samples in place."""
    @overload
    def bernoulli_(self, p: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Bernoulli samples in place."""
    def bincount(self, weights: Tensor | None = None, minlength: int = 0) -> Any:
        """Counts of each number from zero on."""
    def bitwise_and(self, other: Tensor | Number) -> Any:
        """Bitwise and; logical for bool."""
    def bitwise_left_shift(self, other: Tensor | Number) -> Any:
        """Shift left."""
    def bitwise_not(self) -> Any:
        """Bitwise complement; logical for bool."""
    def bitwise_or(self, other: Tensor | Number) -> Any:
        """Bitwise or; logical for bool."""
    def bitwise_right_shift(self, other: Tensor | Number) -> Any:
        """Arithmetic shift right."""
    def bitwise_xor(self, other: Tensor | Number) -> Any:
        """Bitwise exclusive or; logical for bool."""
    def bmm(self, mat2: Tensor) -> Any:
        """Products of two batches of matrices."""
    def broadcast_to(self, size: int | Sequence[int | None]) -> Any:
        """Dimensions of size one repeated, without copying."""
    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Cauchy samples in place."""
    def ceil(self) -> Any:
        """Smallest integer not below each element."""
    def ceil_(self) -> Tensor:
        """In place."""
    def cholesky(self, upper: bool = False) -> Any:
        """Cholesky factor."""
    def cholesky_inverse(self, upper: bool = False) -> Any:
        """Inverse of a matrix whose Cholesky factor is known."""
    def cholesky_solve(self, L: Tensor, upper: bool = False) -> Any:
        """Solution of a system whose Cholesky factor is known."""
    def chunk(self, chunks: int, dim: int = 0) -> Any:
        """A number of parts."""
    @overload
    def clamp(self, min: Tensor | None = None, max: Tensor | None = None) -> Any:
        """Clamps elements between bounds; either bound may be missing."""
    @overload
    def clamp(self, min: Number | None = None, max: Number | None = None) -> Any:
        """Clamps elements between bounds; either bound may be missing."""
    @overload
    def clamp_(self, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
        """`clamp` in place."""
    @overload
    def clamp_(self, min: Number | None = None, max: Number | None = None) -> Tensor:
        """`clamp` in place."""
    def clamp_max(self, max: Tensor | Number) -> Any:
        """Elements not above a bound."""
    def clamp_max_(self, max: Tensor | Number) -> Tensor:
        """`clamp_max` in place."""
    def clamp_min(self, min: Tensor | Number) -> Any:
        """Elements not below a bound."""
    def clamp_min_(self, min: Tensor | Number) -> Tensor:
        """`clamp_min` in place."""
    @overload
    def clip(self, min: Tensor | None = None, max: Tensor | None = None) -> Any:
        """Another name of `clamp`."""
    @overload
    def clip(self, min: Number | None = None, max: Number | None = None) -> Any:
        """Another name of `clamp`."""
    @overload
    def clip_(self, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
        """`clip` in place."""
    @overload
    def clip_(self, min: Number | None = None, max: Number | None = None) -> Tensor:
        """`clip` in place."""
    def clone(self, *, memory_format: memory_format | None = None) -> Any:
        """A copy."""
    def conj(self) -> Any:
        """Complex conjugates; real elements as they are."""
    def conj_physical(self) -> Any:
        """Complex conjugates; real elements as they are."""
    def contiguous(self, memory_format: memory_format | None = None) -> Any:
        """The elements in row-major order, or in a memory format; the tensor itself if it has that order."""
    @overload
    def copy_(self, src: Tensor, non_blocking: bool = False) -> Tensor:
        """Copies another tensor's elements, or a number, into this one."""
    @overload
    def copy_(self, src: Number, non_blocking: bool = False) -> Tensor:
        """Copies another tensor's elements, or a number, into this one."""
    def copysign(self, other: Tensor | Number) -> Any:
        """Magnitude of the first operand with the sign of the second."""
    def corrcoef(self) -> Any:
        """Correlations of variables stored in rows."""
    def cos(self) -> Any:
        """Cosine."""
    def cos_(self) -> Tensor:
        """In place."""
    def cosh(self) -> Any:
        """Hyperbolic cosine."""
    def cosh_(self) -> Tensor:
        """In place."""
    def count_nonzero(self, dim: int | Sequence[int | None] | None = None) -> Any:
        """Number of nonzero elements."""
    def cov(self, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
        """Covariances of variables stored in rows."""
    def cross(self, other: Tensor, dim: int | None = None) -> Any:
        """Cross product of vectors of three."""
    def cummax(self, dim: int) -> Any:
        """Running maxima, and their indices."""
    def cummin(self, dim: int) -> Any:
        """Running minima, and their indices."""
    def cumprod(self, dim: int, *, dtype: _dtype | None = None) -> Any:
        """Running products."""
    def cumsum(self, dim: int, *, dtype: _dtype | None = None) -> Any:
        """Running sums."""
    def deg2rad(self) -> Any:
        """Degrees as radians."""
    def det(self) -> Any:
        """Determinant."""
    def diag(self, diagonal: int = 0) -> Any:
        """A matrix with a vector on a diagonal, or the diagonal of a matrix."""
    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
        """The elements as diagonals of new matrices."""
    def diagflat(self, offset: int = 0) -> Any:
        """All elements on the diagonal of a matrix."""
    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """The diagonal of two dimensions."""
    def diagonal_scatter(self, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """A copy with a diagonal replaced."""
    def diff(self, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Any:
        """Differences of neighbours."""
    def digamma(self) -> Any:
        """Derivative of `lgamma`."""
    def digamma_(self) -> Tensor:
        """In place."""
    def dist(self, other: Tensor, p: Number = 2) -> Any:
        """The p-norm of the difference."""
    @overload
    def div(self, other: Tensor | Number, *, rounding_mode: str | None = None) -> Any:
        """Quotient of two tensors, rounded by `rounding_mode`."""
    @overload
    def div(self, other: Tensor, *, rounding_mode: str | None = None) -> Any:
        """Quotient of two tensors, rounded by `rounding_mode`."""
    @overload
    def div(self, other: Number, *, rounding_mode: str | None = None) -> Any:
        """Quotient of two tensors, rounded by `rounding_mode`."""
    def div_(self, other: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
        """`div` in place."""
    @overload
    def divide(self, other: Tensor | Number, *, rounding_mode: str | None = None) -> Any:
        """Another name of `div`."""
    @overload
    def divide(self, other: Tensor | Number, *, rounding_mode: str | None = None) -> Any:
        """Another name of `div`."""
    def dot(self, tensor: Tensor) -> Any:
        """Product of two vectors."""
    @overload
    def dsplit(self, sections: int) -> Any:
        """Parts along the third dimension."""
    @overload
    def dsplit(self, indices: Sequence[int]) -> Any:
        """Parts along the third dimension."""
    def eq(self, other: Tensor | Number) -> Any:
        """Whether elements are equal."""
    def equal(self, other: Tensor) -> Any:
        """Whether two tensors have the same size and elements."""
    def erf(self) -> Any:
        """Error function."""
    def erf_(self) -> Tensor:
        """In place."""
    def erfc(self) -> Any:
        """`1 - erf(x)`."""
    def erfc_(self) -> Tensor:
        """In place."""
    def erfinv(self) -> Any:
        """Inverse error function."""
    def erfinv_(self) -> Tensor:
        """In place."""
    def exp(self) -> Any:
        """e to the power of each element."""
    def exp2(self) -> Any:
        """Two to the power of each element."""
    def exp2_(self) -> Tensor:
        """In place."""
    def exp_(self) -> Tensor:
        """In place."""
    def expand(self, *size: int | Sequence[int]) -> Any:
        """Dimensions of size one repeated, without copying."""
    def expand_as(self, other: Tensor) -> Any:
        """Expanded to another tensor's size."""
    def expm1(self) -> Any:
        """`exp(x) - 1`, exact near zero."""
    def expm1_(self) -> Tensor:
        """In place."""
    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Exponential samples in place."""
    @overload
    def fill_(self, value: Tensor) -> Tensor:
        """Fills with a number."""
    @overload
    def fill_(self, value: Number) -> Tensor:
        """Fills with a number."""
    def fill_diagonal_(self, fill_value: Number, wrap: bool = False) -> Tensor:
        """Fills the diagonal with a number."""
    def fix(self) -> Any:
        """Integer part."""
    def fix_(self) -> Tensor:
        """In place."""
    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Merges dimensions into one."""
    def flip(self, *dims: int | Sequence[int]) -> Any:
        """Reverses dimensions."""
    def fliplr(self) -> Any:
        """Reverses columns."""
    def flipud(self) -> Any:
        """Reverses rows."""
    @overload
    def float_power(self, exponent: Tensor | Number) -> Any:
        """`pow` in double precision."""
    @overload
    def float_power(self, exponent: Tensor) -> Any:
        """`pow` in double precision."""
    def floor(self) -> Any:
        """Largest integer not above each element."""
    def floor_(self) -> Tensor:
        """In place."""
    @overload
    def floor_divide(self, other: Tensor | Number) -> Any:
        """Quotient rounded down."""
    @overload
    def floor_divide(self, other: Tensor | Number) -> Any:
        """Quotient rounded down."""
    def fmax(self, other: Tensor) -> Any:
        """The larger of two elements, ignoring NaN."""
    def fmin(self, other: Tensor) -> Any:
        """The smaller of two elements, ignoring NaN."""
    def fmod(self, other: Tensor | Number) -> Any:
        """Remainder with the sign of the dividend, as C's `fmod`."""
    def frac(self) -> Any:
        """Fractional part."""
    def frac_(self) -> Tensor:
        """In place."""
    def frexp(self) -> Any:
        """Mantissa and exponent with `input = mantissa * 2**exponent`."""
    def gather(self, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
        """Elements by an index along one dimension."""
    def gcd(self, other: Tensor) -> Any:
        """Greatest common divisor."""
    def ge(self, other: Tensor | Number) -> Any:
        """Whether elements are greater or equal."""
    def geometric_(self, p: float, *, generator: Generator | None = None) -> Tensor:
        """Geometric samples in place."""
    def geqrf(self) -> Any:
        """Householder reflectors of a QR factorisation in LAPACK's packing, and their factors."""
    def ger(self, vec2: Tensor) -> Any:
        """All products of two vectors' elements."""
    def get_device(self) -> Any:
        """The number of the device, -1 for the CPU."""
    def greater(self, other: Tensor | Number) -> Any:
        """Whether elements are greater."""
    def greater_equal(self, other: Tensor | Number) -> Any:
        """Whether elements are greater or equal."""
    def gt(self, other: Tensor | Number) -> Any:
        """Whether elements are greater."""
    def hardshrink(self, lambd: Number = 0.5) -> Any:
        """Zero within `lambd` of zero."""
    def hash_tensor(self, dim: int | Sequence[int | None] | None = None, *, keepdim: bool = False, mode: int = 0) -> Any:
        """The exclusive or of the elements' 64 bits, as `uint64`."""
    def heaviside(self, values: Tensor) -> Any:
        """0 below zero, 1 above, `values` at zero."""
    def histc(self, bins: int = 100, min: Number = 0, max: Number = 0) -> Any:
        """Counts of elements between limits, in bins of equal width."""
    @overload
    def hsplit(self, sections: int) -> Any:
        """Parts along the columns."""
    @overload
    def hsplit(self, indices: Sequence[int]) -> Any:
        """Parts along the columns."""
    def hypot(self, other: Tensor) -> Any:
        """`sqrt(input^2 + other^2)`."""
    def i0(self) -> Any:
        """Modified Bessel function of the first kind of order 0."""
    def index_add(self, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Any:
        """Adds entries at indices of a dimension."""
    def index_add_(self, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
        """`index_add` in place."""
    def index_copy(self, dim: int, index: Tensor, source: Tensor) -> Any:
        """Writes entries at indices of a dimension."""
    def index_copy_(self, dim: int, index: Tensor, source: Tensor) -> Tensor:
        """`index_copy` in place."""
    def index_fill(self, dim: int, index: Tensor, value: Tensor | Number) -> Any:
        """Writes a number at indices of a dimension."""
    def index_fill_(self, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
        """`index_fill` in place."""
    def index_reduce(self, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
        """Reduces entries at indices of a dimension."""
    def index_select(self, dim: int, index: Tensor) -> Any:
        """Entries of a dimension by index."""
    def inner(self, other: Tensor) -> Any:
        """Products along the last dimensions."""
    def inverse(self) -> Any:
        """Inverse."""
    def is_contiguous(self, memory_format: memory_format | None = None) -> Any:
        """Whether the elements are in a memory format's order."""
    def is_nonzero(self) -> Any:
        """Whether the single element is not zero."""
    def isclose(self, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
        """Whether elements are close to another tensor's."""
    def isfinite(self) -> Any:
        """Whether elements are finite."""
    def isinf(self) -> Any:
        """Whether elements are infinite."""
    def isnan(self) -> Any:
        """Whether elements are NaN."""
    def isneginf(self) -> Any:
        """Whether elements are minus infinity."""
    def isposinf(self) -> Any:
        """Whether elements are plus infinity."""
    def isreal(self) -> Any:
        """Whether elements are real: their imaginary parts are zero."""
    def kron(self, other: Tensor) -> Any:
        """Kronecker product."""
    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> Any:
        """The k-th smallest elements."""
    def lcm(self, other: Tensor) -> Any:
        """Least common multiple."""
    def ldexp(self, other: Tensor) -> Any:
        """`input * 2**other`."""
    def le(self, other: Tensor | Number) -> Any:
        """Whether elements are less or equal."""
    def lerp(self, end: Tensor, weight: Tensor | Number) -> Any:
        """Linear interpolation: `input + weight * (end - input)`."""
    def less(self, other: Tensor | Number) -> Any:
        """Whether elements are less."""
    def less_equal(self, other: Tensor | Number) -> Any:
        """Whether elements are less or equal."""
    def lgamma(self) -> Any:
        """Logarithm of the gamma function's magnitude."""
    def lgamma_(self) -> Tensor:
        """In place."""
    def log(self) -> Any:
        """Natural logarithm."""
    def log10(self) -> Any:
        """Decimal logarithm."""
    def log10_(self) -> Tensor:
        """In place."""
    def log1p(self) -> Any:
        """`log(1 + x)`, exact near zero."""
    def log1p_(self) -> Tensor:
        """In place."""
    def log2(self) -> Any:
        """Binary logarithm."""
    def log2_(self) -> Tensor:
        """In place."""
    def log_(self) -> Tensor:
        """In place."""
    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
        """Log-normal samples in place."""
    def log_softmax(self, dim: int, dtype: _dtype | None = None) -> Any:
        """Logarithm of `softmax`."""
    def logaddexp(self, other: Tensor) -> Any:
        """`log(exp(input) + exp(other))`."""
    def logaddexp2(self, other: Tensor) -> Any:
        """`log2(2^input + 2^other)`."""
    def logcumsumexp(self, dim: int) -> Any:
        """Running logarithms of sums of exponentials."""
    def logdet(self) -> Any:
        """Logarithm of the determinant."""
    def logical_and(self, other: Tensor) -> Any:
        """Logical and."""
    def logical_not(self) -> Any:
        """Logical not."""
    def logical_or(self, other: Tensor) -> Any:
        """Logical or."""
    def logical_xor(self, other: Tensor) -> Any:
        """Logical exclusive or."""
    def logit(self, eps: float | None = None) -> Any:
        """Inverse of the logistic function."""
    def logsumexp(self, dim: int | Sequence[int | None], keepdim: bool = False) -> Any:
        """Logarithm of the sum of exponentials."""
    def lt(self, other: Tensor | Number) -> Any:
        """Whether elements are less."""
    def lu_solve(self, LU_data: Tensor, LU_pivots: Tensor) -> Any:
        """Solution of a system whose LU factors are known."""
    def masked_fill(self, mask: Tensor, value: Tensor | Number) -> Any:
        """Writes a number where a mask is true."""
    def masked_fill_(self, mask: Tensor, value: Tensor | Number) -> Tensor:
        """`masked_fill` in place."""
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Any:
        """Writes elements of a source, in order, where a mask is true."""
    def masked_scatter_(self, mask: Tensor, source: Tensor) -> Tensor:
        """`masked_scatter` in place."""
    def masked_select(self, mask: Tensor) -> Any:
        """Elements where a mask is true."""
    def matmul(self, other: Tensor) -> Any:
        """Matrix product, batched and broadcast."""
    def matrix_exp(self) -> Any:
        """Exponential of square matrices."""
    def matrix_power(self, n: int) -> Any:
        """Power of square matrices."""
    @overload
    def max(self) -> Any:
        """The largest element; with a dimension its indices too; of two tensors, the larger elements."""
    @overload
    def max(self, other: Tensor) -> Any:
        """The largest element; with a dimension its indices too; of two tensors, the larger elements."""
    @overload
    def max(self, dim: int, keepdim: bool = False) -> Any:
        """The largest element; with a dimension its indices too; of two tensors, the larger elements."""
    def maximum(self, other: Tensor) -> Any:
        """The larger of two elements; NaN if either is."""
    def mean(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
        """Mean of elements."""
    @overload
    def median(self) -> Any:
        """The median: the lower one of an even number of elements."""
    @overload
    def median(self, dim: int, keepdim: bool = False) -> Any:
        """The median: the lower one of an even number of elements."""
    @overload
    def min(self) -> Any:
        """The smallest element; with a dimension its indices too; of two tensors, the smaller elements."""
    @overload
    def min(self, other: Tensor) -> Any:
        """The smallest element; with a dimension its indices too; of two tensors, the smaller elements."""
    @overload
    def min(self, dim: int, keepdim: bool = False) -> Any:
        """The smallest element; with a dimension its indices too; of two tensors, the smaller elements."""
    def minimum(self, other: Tensor) -> Any:
        """The smaller of two elements; NaN if either is."""
    def mm(self, mat2: Tensor) -> Any:
        """Product of two matrices."""
    def mode(self, dim: int = -1, keepdim: bool = False) -> Any:
        """The most frequent element."""
    def moveaxis(self, source: int | Sequence[int | None], destination: int | Sequence[int | None]) -> Any:
        """Moves dimensions to other positions."""
    def movedim(self, source: int | Sequence[int | None], destination: int | Sequence[int | None]) -> Any:
        """Moves dimensions to other positions."""
    def msort(self) -> Any:
        """Sorts along the first dimension."""
    @overload
    def mul(self, other: Tensor | Number) -> Any:
        """Product of two tensors."""
    @overload
    def mul(self, other: Tensor) -> Any:
        """Product of two tensors."""
    @overload
    def mul(self, other: Number) -> Any:
        """Product of two tensors."""
    def mul_(self, other: Tensor | Number) -> Tensor:
        """`mul` in place."""
    def multinomial(self, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Any:
        """Samples indices with the elements as weights."""
    @overload
    def multiply(self, other: Tensor | Number) -> Any:
        """Another name of `mul`."""
    @overload
    def multiply(self, other: Tensor | Number) -> Any:
        """Another name of `mul`."""
    def mv(self, vec: Tensor) -> Any:
        """Product of a matrix and a vector."""
    def mvlgamma(self, p: int) -> Any:
        """Logarithm of the multivariate gamma function."""
    def nan_to_num(self, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
        """NaN and infinities replaced by numbers."""
    def nanmean(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
        """Mean of elements that are not NaN."""
    @overload
    def nanmedian(self) -> Any:
        """The median of elements that are not NaN."""
    @overload
    def nanmedian(self, dim: int, keepdim: bool = False) -> Any:
        """The median of elements that are not NaN."""
    def nanquantile(self, q: Tensor | Number, dim: int | None = None, keepdim: bool = False, *, interpolation: str = 'linear') -> Any:
        """Quantiles of elements that are not NaN."""
    def nansum(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
        """Sum of elements that are not NaN."""
    @overload
    def narrow(self, dim: int, start: int, length: int) -> Any:
        """A part of one dimension."""
    @overload
    def narrow(self, dim: int, start: Tensor, length: int) -> Any:
        """A part of one dimension."""
    def narrow_copy(self, dim: int, start: int, length: int) -> Any:
        """A copy of a part of one dimension."""
    def ne(self, other: Tensor | Number) -> Any:
        """Whether elements differ."""
    def neg(self) -> Any:
        """Negation."""
    def neg_(self) -> Tensor:
        """In place."""
    def negative(self) -> Any:
        """Negation."""
    def negative_(self) -> Tensor:
        """In place."""
    def new_empty(self, *size: int | Sequence[int], dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False) -> Any:
        """Uninitialised memory of this tensor's dtype."""
    def new_full(self, size: int | Sequence[int | None], fill_value: Number, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False) -> Any:
        """One number of this tensor's dtype."""
    def new_ones(self, *size: int | Sequence[int], dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False) -> Any:
        """Ones of this tensor's dtype."""
    def new_zeros(self, *size: int | Sequence[int], dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False) -> Any:
        """Zeros of this tensor's dtype."""
    def nextafter(self, other: Tensor) -> Any:
        """The next number towards another."""
    def nonzero(self, *, as_tuple: bool = False) -> Any:
        """Indices of nonzero elements: as rows, or one tensor per dimension."""
    @overload
    def norm(self, p: Number | None = 2, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, dtype: _dtype | None = None) -> Any:
        """A norm of the elements."""
    @overload
    def norm(self, p: str, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, dtype: _dtype | None = None) -> Any:
        """A norm of the elements."""
    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Normal numbers in place."""
    def not_equal(self, other: Tensor | Number) -> Any:
        """Whether elements differ."""
    def outer(self, vec2: Tensor) -> Any:
        """All products of two vectors' elements."""
    def permute(self, *dims: int | Sequence[int]) -> Any:
        """Permutes dimensions."""
    def pinverse(self, rcond: float = 1e-15) -> Any:
        """Pseudo-inverse."""
    def positive(self) -> Any:
        """The tensor itself."""
    @overload
    def pow(self, exponent: Tensor | Number) -> Any:
        """Raises elements to a power."""
    @overload
    def pow(self, exponent: Tensor) -> Any:
        """Raises elements to a power."""
    def pow_(self, exponent: Tensor | Number) -> Tensor:
        """`pow` in place."""
    def prelu(self, weight: Tensor) -> Any:
        """`x`, or `weight * x` below zero."""
    @overload
    def prod(self, *, dtype: _dtype | None = None) -> Any:
        """Product of elements."""
    @overload
    def prod(self, dim: int, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
        """Product of elements."""
    def put(self, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
        """Writes elements at row-major positions."""
    def qr(self, some: bool = True) -> Any:
        """Orthogonal and triangular factors."""
    def quantile(self, q: Tensor | Number, dim: int | None = None, keepdim: bool = False, *, interpolation: str = 'linear') -> Any:
        """Quantiles, linearly interpolated."""
    def rad2deg(self) -> Any:
        """Radians as degrees."""
    @overload
    def random_(self, *, generator: Generator | None = None) -> Tensor:
        """Integers in place: below `to`, or between `from` and `to`, or all that the dtype represents exactly."""
    @overload
    def random_(self, to: int, *, generator: Generator | None = None) -> Tensor:
        """Integers in place: below `to`, or between `from` and `to`, or all that the dtype represents exactly."""
    @overload
    def random_(self, from_: int, to: int | None, *, generator: Generator | None = None) -> Tensor:
        """Integers in place: below `to`, or between `from` and `to`, or all that the dtype represents exactly."""
    def ravel(self) -> Any:
        """One dimension, contiguous."""
    def reciprocal(self) -> Any:
        """`1 / x`."""
    def reciprocal_(self) -> Tensor:
        """In place."""
    def relu(self) -> Any:
        """The positive part."""
    def relu_(self) -> Tensor:
        """In place."""
    @overload
    def remainder(self, other: Tensor | Number) -> Any:
        """Remainder with the sign of the divisor, as Python's `%`."""
    @overload
    def remainder(self, other: Tensor) -> Any:
        """Remainder with the sign of the divisor, as Python's `%`."""
    def renorm(self, p: Number, dim: int, maxnorm: Number) -> Any:
        """Scales down sub-tensors whose norm exceeds a limit."""
    def repeat(self, *repeats: int | Sequence[int]) -> Any:
        """The whole tensor repeated along its dimensions."""
    @overload
    def repeat_interleave(self, repeats: Tensor | Number, dim: int | None = None, *, output_size: int | None = None) -> Any:
        """Elements repeated."""
    @overload
    def repeat_interleave(self, *, output_size: int | None = None) -> Any:
        """Elements repeated."""
    def reshape(self, *shape: int | Sequence[int]) -> Any:
        """The same elements in another shape, copied only if needed."""
    def reshape_as(self, other: Tensor) -> Any:
        """Another tensor's shape."""
    def resolve_conj(self) -> Any:
        """The elements, none of which is conjugated lazily."""
    def resolve_neg(self) -> Any:
        """The elements, none of which is negated lazily."""
    def roll(self, shifts: int | Sequence[int | None], dims: int | Sequence[int | None] | None = None) -> Any:
        """Rolls entries along dimensions."""
    def rot90(self, k: int = 1, dims: int | Sequence[int | None] = (0,1)) -> Any:
        """Rotates by multiples of 90 degrees."""
    def round(self, *, decimals: int = 0) -> Any:
        """The nearest integer, ties to even, or the nearest number with `decimals` decimals."""
    def rsqrt(self) -> Any:
        """`1 / sqrt(x)`."""
    def rsqrt_(self) -> Tensor:
        """In place."""
    @overload
    def scatter(self, dim: int, index: Tensor, src: Tensor | Number, *, reduce: str | None = None) -> Any:
        """Writes elements by an index along one dimension."""
    @overload
    def scatter(self, dim: int, index: Tensor, value: Number, *, reduce: str | None = None) -> Any:
        """Writes elements by an index along one dimension."""
    @overload
    def scatter_(self, dim: int, index: Tensor, src: Tensor | Number, *, reduce: str | None = None) -> Tensor:
        """`scatter` in place."""
    @overload
    def scatter_(self, dim: int, index: Tensor, value: Number, *, reduce: str | None = None) -> Tensor:
        """`scatter` in place."""
    def scatter_add(self, dim: int, index: Tensor, src: Tensor) -> Any:
        """Adds elements by an index along one dimension."""
    def scatter_add_(self, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """`scatter_add` in place."""
    def scatter_reduce(self, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
        """Reduces elements by an index along one dimension."""
    def scatter_reduce_(self, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
        """`scatter_reduce` in place."""
    def select(self, dim: int, index: int) -> Any:
        """One entry of a dimension."""
    def select_scatter(self, src: Tensor, dim: int, index: int) -> Any:
        """A copy with one entry of a dimension replaced."""
    def selu(self) -> Any:
        """The self-normalising `elu`."""
    def selu_(self) -> Tensor:
        """In place."""
    def sgn(self) -> Any:
        """-1, 0 or 1 by sign."""
    def sigmoid(self) -> Any:
        """Logistic function."""
    def sigmoid_(self) -> Tensor:
        """In place."""
    def sign(self) -> Any:
        """-1, 0 or 1 by sign."""
    def signbit(self) -> Any:
        """Whether the sign bit is set."""
    def sin(self) -> Any:
        """Sine."""
    def sin_(self) -> Tensor:
        """In place."""
    def sinc(self) -> Any:
        """`sin(pi x) / (pi x)`."""
    def sinc_(self) -> Tensor:
        """In place."""
    def sinh(self) -> Any:
        """Hyperbolic sine."""
    def sinh_(self) -> Tensor:
        """In place."""
    def slice_scatter(self, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
        """A copy with a slice of a dimension replaced."""
    def slogdet(self) -> Any:
        """Sign and logarithm of the determinant."""
    def softmax(self, dim: int, dtype: _dtype | None = None) -> Any:
        """Exponentials that sum to one."""
    @overload
    def sort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
        """Sorted elements and their indices."""
    @overload
    def sort(self, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
        """Sorted elements and their indices."""
    @overload
    def split(self, split_size_or_sections: int, dim: int = 0) -> Any:
        """Parts of a length, or of given lengths."""
    @overload
    def split(self, split_size_or_sections: Sequence[int], dim: int = 0) -> Any:
        """Parts of a length, or of given lengths."""
    @overload
    def split(self, split_size: int, dim: int = 0) -> Any:
        """Parts of a length, or of given lengths."""
    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> Any:
        """Parts of given lengths."""
    def sqrt(self) -> Any:
        """Square root."""
    def sqrt_(self) -> Tensor:
        """In place."""
    def square(self) -> Any:
        """`x * x`."""
    def square_(self) -> Tensor:
        """In place."""
    def squeeze(self, dim: int | Sequence[int | None] | None = None) -> Any:
        """Removes dimensions of size one."""
    @overload
    def std(self, dim: int | Sequence[int | None] | None, unbiased: bool, keepdim: bool = False) -> Any:
        """Standard deviation."""
    @overload
    def std(self, unbiased: bool) -> Any:
        """Standard deviation."""
    @overload
    def std(self, dim: int | Sequence[int | None] | None = None, *, correction: Number | None = 1, keepdim: bool = False) -> Any:
        """Standard deviation."""
    @overload
    def std(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, unbiased: bool = True) -> Any:
        """Standard deviation."""
    @overload
    def sub(self, other: Tensor | Number, *, alpha: Number = 1) -> Any:
        """Difference of two tensors, the second times `alpha`."""
    @overload
    def sub(self, other: Tensor, *, alpha: Number = 1) -> Any:
        """Difference of two tensors, the second times `alpha`."""
    @overload
    def sub(self, other: Number, *, alpha: Number = 1) -> Any:
        """Difference of two tensors, the second times `alpha`."""
    def sub_(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """`sub` in place."""
    @overload
    def subtract(self, other: Tensor | Number, *, alpha: Number = 1) -> Any:
        """Another name of `sub`."""
    @overload
    def subtract(self, other: Tensor | Number, *, alpha: Number = 1) -> Any:
        """Another name of `sub`."""
    def sum(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None) -> Any:
        """Sum of elements."""
    def sum_to_size(self, *size: int | Sequence[int]) -> Any:
        """Sums broadcast dimensions to the given size."""
    def svd(self, some: bool = True, compute_uv: bool = True) -> Any:
        """Singular value decomposition, `A = U diag(S) V^T`."""
    def swapaxes(self, axis0: int, axis1: int) -> Any:
        """Transposes two dimensions."""
    def swapdims(self, dim0: int, dim1: int) -> Any:
        """Transposes two dimensions."""
    def t(self) -> Any:
        """Transposes a matrix."""
    def take(self, index: Tensor) -> Any:
        """Elements by their row-major position."""
    def take_along_dim(self, indices: Tensor, dim: int | None = None) -> Any:
        """Elements by indices that broadcast."""
    def tan(self) -> Any:
        """Tangent."""
    def tan_(self) -> Tensor:
        """In place."""
    def tanh(self) -> Any:
        """Hyperbolic tangent."""
    def tanh_(self) -> Tensor:
        """In place."""
    @overload
    def tensor_split(self, tensor_indices_or_sections: Tensor, dim: int = 0) -> Any:
        """A number of parts, or parts between positions."""
    @overload
    def tensor_split(self, indices_or_sections: int, dim: int = 0) -> Any:
        """A number of parts, or parts between positions."""
    @overload
    def tensor_split(self, indices_or_sections: Sequence[int], dim: int = 0) -> Any:
        """A number of parts, or parts between positions."""
    @overload
    def tensor_split(self, indices: Sequence[int], dim: int = 0) -> Any:
        """A number of parts, or parts between positions."""
    @overload
    def tensor_split(self, sections: int, dim: int = 0) -> Any:
        """A number of parts, or parts between positions."""
    def tile(self, *dims: int | Sequence[int]) -> Any:
        """The whole tensor repeated."""
    @overload
    def to(self, dtype: _dtype, non_blocking: bool = False, copy: bool = False, *, memory_format: memory_format | None = None) -> Any:
        """Converts to another device, dtype or memory format."""
    @overload
    def to(self, other: Tensor, non_blocking: bool = False, copy: bool = False, *, memory_format: memory_format | None = None) -> Any:
        """Converts to another device, dtype or memory format."""
    @overload
    def to(self, device: _device | str | int | None = None, dtype: _dtype | None = None, non_blocking: bool = False, copy: bool = False, *, memory_format: memory_format | None = None) -> Any:
        """Converts to another device, dtype or memory format."""
    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        """The largest or smallest elements, and their indices."""
    def trace(self) -> Any:
        """Sum of the diagonal."""
    def transpose(self, dim0: int, dim1: int) -> Any:
        """Transposes two dimensions."""
    def triangular_solve(self, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
        """Solution of a triangular system, and the matrix."""
    def tril(self, diagonal: int = 0) -> Any:
        """The lower triangle."""
    def triu(self, diagonal: int = 0) -> Any:
        """The upper triangle."""
    @overload
    def true_divide(self, other: Tensor | Number) -> Any:
        """`div` without rounding."""
    @overload
    def true_divide(self, other: Tensor | Number) -> Any:
        """`div` without rounding."""
    def trunc(self) -> Any:
        """Integer part."""
    def trunc_(self) -> Tensor:
        """In place."""
    def unbind(self, dim: int = 0) -> Any:
        """All entries of a dimension."""
    def unflatten(self, dim: int, sizes: Sequence[int]) -> Any:
        """Splits one dimension into several."""
    def unfold(self, dimension: int, size: int, step: int) -> Any:
        """Windows of a dimension."""
    def uniform_(self, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Uniform numbers in place."""
    def unique(self, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
        """Sorted distinct values; optionally each element's index among them, and counts."""
    def unique_consecutive(self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
        """Runs of equal elements."""
    def unsqueeze(self, dim: int) -> Any:
        """Inserts a dimension of size one."""
    @overload
    def var(self, dim: int | Sequence[int | None] | None, unbiased: bool, keepdim: bool = False) -> Any:
        """Variance."""
    @overload
    def var(self, unbiased: bool) -> Any:
        """Variance."""
    @overload
    def var(self, dim: int | Sequence[int | None] | None = None, *, correction: Number | None = 1, keepdim: bool = False) -> Any:
        """Variance."""
    @overload
    def var(self, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, unbiased: bool = True) -> Any:
        """Variance."""
    def vdot(self, other: Tensor) -> Any:
        """Product of two vectors."""
    @overload
    def view(self, dtype: _dtype) -> Any:
        """A view of the elements in another shape."""
    @overload
    def view(self, *shape: int | Sequence[int]) -> Any:
        """A view of the elements in another shape."""
    def view_as(self, other: Tensor) -> Any:
        """A view of another tensor's shape."""
    @overload
    def vsplit(self, sections: int) -> Any:
        """Parts along the rows."""
    @overload
    def vsplit(self, indices: Sequence[int]) -> Any:
        """Parts along the rows."""
    def where(self, condition: Tensor, other: Tensor | Number) -> Any:
        """Selects from this tensor where a condition holds, from another elsewhere."""
    @overload
    def xlogy(self, other: Tensor | Number) -> Any:
        """`input * log(other)`, zero where the input is zero."""
    @overload
    def xlogy(self, other: Tensor) -> Any:
        """`input * log(other)`, zero where the input is zero."""
    def zero_(self) -> Tensor:
        """Zeros in place."""
    def addbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`beta * input + alpha * sum(batch1 @ batch2)`."""
    def addmm_(self, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`beta * input + alpha * (mat1 @ mat2)`."""
    def addmv_(self, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`beta * input + alpha * (mat @ vec)`."""
    def addr_(self, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`beta * input + alpha * outer(vec1, vec2)`."""
    def arctan2_(self, other: Tensor) -> Tensor:
        """Another name of `atan2`."""
    def atan2_(self, other: Tensor) -> Tensor:
        """Angle of the point `(other, input)`."""
    def baddbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """`beta * input + alpha * (batch1 @ batch2)`."""
    def bitwise_and_(self, other: Tensor | Number) -> Tensor:
        """Bitwise and; logical for bool."""
    def bitwise_left_shift_(self, other: Tensor | Number) -> Tensor:
        """Shift left."""
    def bitwise_not_(self) -> Tensor:
        """Bitwise complement; logical for bool."""
    def bitwise_or_(self, other: Tensor | Number) -> Tensor:
        """Bitwise or; logical for bool."""
    def bitwise_right_shift_(self, other: Tensor | Number) -> Tensor:
        """Arithmetic shift right."""
    def bitwise_xor_(self, other: Tensor | Number) -> Tensor:
        """Bitwise exclusive or; logical for bool."""
    def conj_physical_(self) -> Tensor:
        """Complex conjugates; real elements as they are."""
    def copysign_(self, other: Tensor | Number) -> Tensor:
        """Magnitude of the first operand with the sign of the second."""
    def cumprod_(self, dim: int, *, dtype: _dtype | None = None) -> Tensor:
        """Running products."""
    def cumsum_(self, dim: int, *, dtype: _dtype | None = None) -> Tensor:
        """Running sums."""
    def deg2rad_(self) -> Tensor:
        """Degrees as radians."""
    @overload
    def divide_(self, other: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
        """Another name of `div`."""
    @overload
    def divide_(self, other: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
        """Another name of `div`."""
    def eq_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are equal."""
    @overload
    def floor_divide_(self, other: Tensor | Number) -> Tensor:
        """Quotient rounded down."""
    @overload
    def floor_divide_(self, other: Tensor | Number) -> Tensor:
        """Quotient rounded down."""
    def fmod_(self, other: Tensor | Number) -> Tensor:
        """Remainder with the sign of the dividend, as C's `fmod`."""
    def gcd_(self, other: Tensor) -> Tensor:
        """Greatest common divisor."""
    def ge_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are greater or equal."""
    def greater_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are greater."""
    def greater_equal_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are greater or equal."""
    def gt_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are greater."""
    def heaviside_(self, values: Tensor) -> Tensor:
        """0 below zero, 1 above, `values` at zero."""
    def hypot_(self, other: Tensor) -> Tensor:
        """`sqrt(input^2 + other^2)`."""
    def i0_(self) -> Tensor:
        """Modified Bessel function of the first kind of order 0."""
    def index_reduce_(self, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
        """Reduces entries at indices of a dimension."""
    def lcm_(self, other: Tensor) -> Tensor:
        """Least common multiple."""
    def ldexp_(self, other: Tensor) -> Tensor:
        """`input * 2**other`."""
    def le_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are less or equal."""
    def lerp_(self, end: Tensor, weight: Tensor | Number) -> Tensor:
        """Linear interpolation: `input + weight * (end - input)`."""
    def less_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are less."""
    def less_equal_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are less or equal."""
    def logical_and_(self, other: Tensor) -> Tensor:
        """Logical and."""
    def logical_not_(self) -> Tensor:
        """Logical not."""
    def logical_or_(self, other: Tensor) -> Tensor:
        """Logical or."""
    def logical_xor_(self, other: Tensor) -> Tensor:
        """Logical exclusive or."""
    def logit_(self, eps: float | None = None) -> Tensor:
        """Inverse of the logistic function."""
    def lt_(self, other: Tensor | Number) -> Tensor:
        """Whether elements are less."""
    @overload
    def multiply_(self, other: Tensor | Number) -> Tensor:
        """Another name of `mul`."""
    @overload
    def multiply_(self, other: Tensor | Number) -> Tensor:
        """Another name of `mul`."""
    def mvlgamma_(self, p: int) -> Tensor:
        """Logarithm of the multivariate gamma function."""
    def nan_to_num_(self, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
        """NaN and infinities replaced by numbers."""
    def ne_(self, other: Tensor | Number) -> Tensor:
        """Whether elements differ."""
    def nextafter_(self, other: Tensor) -> Tensor:
        """The next number towards another."""
    def not_equal_(self, other: Tensor | Number) -> Tensor:
        """Whether elements differ."""
    def put_(self, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
        """Writes elements at row-major positions."""
    def rad2deg_(self) -> Tensor:
        """Radians as degrees."""
    @overload
    def remainder_(self, other: Tensor | Number) -> Tensor:
        """Remainder with the sign of the divisor, as Python's `%`."""
    @overload
    def remainder_(self, other: Tensor) -> Tensor:
        """Remainder with the sign of the divisor, as Python's `%`."""
    def renorm_(self, p: Number, dim: int, maxnorm: Number) -> Tensor:
        """Scales down sub-tensors whose norm exceeds a limit."""
    def round_(self, *, decimals: int = 0) -> Tensor:
        """The nearest integer, ties to even, or the nearest number with `decimals` decimals."""
    def sgn_(self) -> Tensor:
        """-1, 0 or 1 by sign."""
    def sign_(self) -> Tensor:
        """-1, 0 or 1 by sign."""
    @overload
    def subtract_(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """Another name of `sub`."""
    @overload
    def subtract_(self, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
        """Another name of `sub`."""
    def transpose_(self, dim0: int, dim1: int) -> Tensor:
        """Transposes two dimensions."""
    def tril_(self, diagonal: int = 0) -> Tensor:
        """The lower triangle."""
    def triu_(self, diagonal: int = 0) -> Tensor:
        """The upper triangle."""
    @overload
    def true_divide_(self, other: Tensor | Number) -> Tensor:
        """`div` without rounding."""
    @overload
    def true_divide_(self, other: Tensor | Number) -> Tensor:
        """`div` without rounding."""
    @overload
    def xlogy_(self, other: Tensor | Number) -> Tensor:
        """`input * log(other)`, zero where the input is zero."""
    @overload
    def xlogy_(self, other: Tensor) -> Tensor:
        """`input * log(other)`, zero where the input is zero."""
def abs(input: Tensor, *, out: Any = ...) -> Any:
    """Magnitude."""
def abs_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def absolute(input: Tensor, *, out: Any = ...) -> Any:
    """Magnitude."""
def absolute_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def acos(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse cosine."""
def acos_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def acosh(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse hyperbolic cosine."""
def acosh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Means of a given number of windows."""
def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Means of a given number of windows."""
def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Means of a given number of windows."""
@overload
def add(input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Sum of two tensors, the second times `alpha`."""
@overload
def add(input: Number, other: Tensor, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Sum of two tensors, the second times `alpha`."""
@overload
def add(input: Number, other: Number, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Sum of two tensors, the second times `alpha`."""
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Any = ...) -> Any:
    """`beta * input + alpha * sum(batch1 @ batch2)`."""
@overload
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Any = ...) -> Any:
    """`input + value * tensor1 / tensor2`."""
@overload
def addcdiv(input: Tensor, value: Number, tensor1: Tensor, tensor2: Tensor, *, out: Any = ...) -> Any:
    """`input + value * tensor1 / tensor2`."""
@overload
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Any = ...) -> Any:
    """`input + value * tensor1 * tensor2`."""
@overload
def addcmul(input: Tensor, value: Number, tensor1: Tensor, tensor2: Tensor, *, out: Any = ...) -> Any:
    """`input + value * tensor1 * tensor2`."""
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Any = ...) -> Any:
    """`beta * input + alpha * (mat1 @ mat2)`."""
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Any = ...) -> Any:
    """`beta * input + alpha * (mat @ vec)`."""
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Any = ...) -> Any:
    """`beta * input + alpha * outer(vec1, vec2)`."""
def adjoint(input: Tensor, *, out: Any = ...) -> Any:
    """Transposes the last two dimensions."""
def all(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Whether all elements are true."""
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, *, out: Any = ...) -> Any:
    """Whether all elements are close to another tensor's."""
def amax(input: Tensor, dim: int | Sequence[int | None] | None = (), keepdim: bool = False, *, out: Any = ...) -> Any:
    """The largest elements; equal elements share the gradient."""
def amin(input: Tensor, dim: int | Sequence[int | None] | None = (), keepdim: bool = False, *, out: Any = ...) -> Any:
    """The smallest elements; equal elements share the gradient."""
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Any = ...) -> Any:
    """The smallest and the largest elements."""
def angle(input: Tensor, *, out: Any = ...) -> Any:
    """The angle of complex numbers; of real ones pi for negative ones, else zero."""
def any(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Whether any element is true."""
@overload
def arange(end: Number, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Numbers from `start` to before `end`."""
@overload
def arange(start: Number, end: Number, step: Number = 1, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Numbers from `start` to before `end`."""
def arccos(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse cosine."""
def arccos_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def arccosh(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse hyperbolic cosine."""
def arccosh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def arcsin(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse sine."""
def arcsin_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def arcsinh(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse hyperbolic sine."""
def arcsinh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def arctan(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse tangent."""
def arctan2(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Another name of `atan2`."""
def arctan_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def arctanh(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse hyperbolic tangent."""
def arctanh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Index of the largest element."""
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Index of the smallest element."""
@overload
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, out: Any = ...) -> Any:
    """Indices that sort the elements."""
@overload
def argsort(input: Tensor, *, stable: bool, dim: int = -1, descending: bool = False, out: Any = ...) -> Any:
    """Indices that sort the elements."""
def argwhere(input: Tensor, *, out: Any = ...) -> Any:
    """Indices of nonzero elements, as rows."""
def as_strided(input: Tensor, size: int | Sequence[int | None], stride: int | Sequence[int | None], storage_offset: int | None = None, *, out: Any = ...) -> Any:
    """A view by sizes and strides."""
def asin(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse sine."""
def asin_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def asinh(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse hyperbolic sine."""
def asinh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def atan(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse tangent."""
def atan2(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Angle of the point `(other, input)`."""
def atan_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def atanh(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse hyperbolic tangent."""
def atanh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def avg_pool1d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *, out: Any = ...) -> Any:
    """Means of windows."""
def avg_pool2d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *, out: Any = ...) -> Any:
    """Means of windows."""
def avg_pool3d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *, out: Any = ...) -> Any:
    """Means of windows."""
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Any = ...) -> Any:
    """`beta * input + alpha * (batch1 @ batch2)`."""
def bartlett_window(window_length: int, periodic: bool = True, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Bartlett window."""
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Any = ...) -> Any:
    """Bernoulli samples with the elements as probabilities."""
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Any = ...) -> Any:
    """`input1 @ weight @ input2 + bias`, per output."""
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0, *, out: Any = ...) -> Any:
    """Counts of each number from zero on."""
def bitwise_and(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Bitwise and; logical for bool."""
def bitwise_left_shift(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Shift left."""
def bitwise_not(input: Tensor, *, out: Any = ...) -> Any:
    """Bitwise complement; logical for bool."""
def bitwise_or(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Bitwise or; logical for bool."""
def bitwise_right_shift(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Arithmetic shift right."""
def bitwise_xor(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Bitwise exclusive or; logical for bool."""
def blackman_window(window_length: int, periodic: bool = True, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Blackman window."""
def bmm(input: Tensor, mat2: Tensor, *, out: Any = ...) -> Any:
    """Products of two batches of matrices."""
def broadcast_to(input: Tensor, size: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Dimensions of size one repeated, without copying."""
def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = ...) -> Any:
    """The bucket of each element."""
def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Any = ...) -> Any:
    """Concatenates tensors along a dimension."""
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None, *, out: Any = ...) -> Any:
    """Distances between two sets of vectors."""
def ceil(input: Tensor, *, out: Any = ...) -> Any:
    """Smallest integer not below each element."""
def ceil_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def celu(input: Tensor, alpha: Number = 1.0, *, out: Any = ...) -> Any:
    """`x`, or `alpha * (exp(x) - 1)` below zero."""
def channel_shuffle(input: Tensor, groups: int, *, out: Any = ...) -> Any:
    """Interleaves the channels of groups."""
def cholesky(input: Tensor, upper: bool = False, *, out: Any = ...) -> Any:
    """Cholesky factor."""
def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Any = ...) -> Any:
    """Inverse of a matrix whose Cholesky factor is known."""
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False, *, out: Any = ...) -> Any:
    """Solution of a system whose Cholesky factor is known."""
def chunk(input: Tensor, chunks: int, dim: int = 0, *, out: Any = ...) -> Any:
    """A number of parts."""
@overload
def clamp(input: Tensor, min: Tensor | None = None, max: Tensor | None = None, *, out: Any = ...) -> Any:
    """Clamps elements between bounds; either bound may be missing."""
@overload
def clamp(input: Tensor, min: Number | None = None, max: Number | None = None, *, out: Any = ...) -> Any:
    """Clamps elements between bounds; either bound may be missing."""
@overload
def clamp_(input: Tensor, min: Tensor | None = None, max: Tensor | None = None, *, out: Any = ...) -> Tensor:
    """`clamp` in place."""
@overload
def clamp_(input: Tensor, min: Number | None = None, max: Number | None = None, *, out: Any = ...) -> Tensor:
    """`clamp` in place."""
def clamp_max(input: Tensor, max: Tensor | Number, *, out: Any = ...) -> Any:
    """Elements not above a bound."""
def clamp_max_(input: Tensor, max: Tensor | Number, *, out: Any = ...) -> Tensor:
    """`clamp_max` in place."""
def clamp_min(input: Tensor, min: Tensor | Number, *, out: Any = ...) -> Any:
    """Elements not below a bound."""
def clamp_min_(input: Tensor, min: Tensor | Number, *, out: Any = ...) -> Tensor:
    """`clamp_min` in place."""
@overload
def clip(input: Tensor, min: Tensor | None = None, max: Tensor | None = None, *, out: Any = ...) -> Any:
    """Another name of `clamp`."""
@overload
def clip(input: Tensor, min: Number | None = None, max: Number | None = None, *, out: Any = ...) -> Any:
    """Another name of `clamp`."""
@overload
def clip_(input: Tensor, min: Tensor | None = None, max: Tensor | None = None, *, out: Any = ...) -> Tensor:
    """`clip` in place."""
@overload
def clip_(input: Tensor, min: Number | None = None, max: Number | None = None, *, out: Any = ...) -> Tensor:
    """`clip` in place."""
def clone(input: Tensor, *, memory_format: memory_format | None = None, out: Any = ...) -> Any:
    """A copy."""
def column_stack(tensors: Sequence[Tensor], *, out: Any = ...) -> Any:
    """Vectors as columns of a matrix."""
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False, *, out: Any = ...) -> Any:
    """Combinations of `r` elements."""
def complex(real: Tensor, imag: Tensor, *, out: Any = ...) -> Any:
    """Complex numbers of their real and imaginary parts."""
def concat(tensors: Sequence[Tensor], dim: int = 0, *, out: Any = ...) -> Any:
    """Concatenates tensors along a dimension."""
def concatenate(tensors: Sequence[Tensor], dim: int = 0, *, out: Any = ...) -> Any:
    """Concatenates tensors along a dimension."""
def conj(input: Tensor, *, out: Any = ...) -> Any:
    """Complex conjugates; real elements as they are."""
def conj_physical(input: Tensor, *, out: Any = ...) -> Any:
    """Complex conjugates; real elements as they are."""
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: str | int | Sequence[int] = 0, dilation: int | Sequence[int | None] = 1, groups: int = 1, *, out: Any = ...) -> Any:
    """Convolution."""
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: str | int | Sequence[int] = 0, dilation: int | Sequence[int | None] = 1, groups: int = 1, *, out: Any = ...) -> Any:
    """Convolution."""
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: str | int | Sequence[int] = 0, dilation: int | Sequence[int | None] = 1, groups: int = 1, *, out: Any = ...) -> Any:
    """Convolution."""
def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, output_padding: int | Sequence[int | None] = 0, groups: int = 1, dilation: int | Sequence[int | None] = 1, *, out: Any = ...) -> Any:
    """Transposed convolution."""
def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, output_padding: int | Sequence[int | None] = 0, groups: int = 1, dilation: int | Sequence[int | None] = 1, *, out: Any = ...) -> Any:
    """Transposed convolution."""
def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int | None] = 1, padding: int | Sequence[int | None] = 0, output_padding: int | Sequence[int | None] = 0, groups: int = 1, dilation: int | Sequence[int | None] = 1, *, out: Any = ...) -> Any:
    """Transposed convolution."""
def copysign(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Magnitude of the first operand with the sign of the second."""
def corrcoef(input: Tensor, *, out: Any = ...) -> Any:
    """Correlations of variables stored in rows."""
def cos(input: Tensor, *, out: Any = ...) -> Any:
    """Cosine."""
def cos_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def cosh(input: Tensor, *, out: Any = ...) -> Any:
    """Hyperbolic cosine."""
def cosh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08, *, out: Any = ...) -> Any:
    """Cosine of the angle between vectors."""
def count_nonzero(input: Tensor, dim: int | Sequence[int | None] | None = None, *, out: Any = ...) -> Any:
    """Number of nonzero elements."""
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None, out: Any = ...) -> Any:
    """Covariances of variables stored in rows."""
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Any = ...) -> Any:
    """Cross product of vectors of three."""
@overload
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0, reduction: str = 'mean', zero_infinity: bool = False, *, out: Any = ...) -> Any:
    """Connectionist temporal classification: likelihood of sequences of unknown alignment."""
@overload
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Sequence[int], target_lengths: Sequence[int], blank: int = 0, reduction: str = 'mean', zero_infinity: bool = False, *, out: Any = ...) -> Any:
    """Connectionist temporal classification: likelihood of sequences of unknown alignment."""
def cummax(input: Tensor, dim: int, *, out: Any = ...) -> Any:
    """Running maxima, and their indices."""
def cummin(input: Tensor, dim: int, *, out: Any = ...) -> Any:
    """Running minima, and their indices."""
def cumprod(input: Tensor, dim: int, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Running products."""
def cumsum(input: Tensor, dim: int, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Running sums."""
@overload
def cumulative_trapezoid(y: Tensor, x: Tensor, *, dim: int = -1, out: Any = ...) -> Any:
    """Running area under a curve, by trapezoids."""
@overload
def cumulative_trapezoid(y: Tensor, *, dx: Number = 1, dim: int = -1, out: Any = ...) -> Any:
    """Running area under a curve, by trapezoids."""
def deg2rad(input: Tensor, *, out: Any = ...) -> Any:
    """Degrees as radians."""
def det(A: Tensor, *, out: Any = ...) -> Any:
    """Determinant."""
def diag(input: Tensor, diagonal: int = 0, *, out: Any = ...) -> Any:
    """A matrix with a vector on a diagonal, or the diagonal of a matrix."""
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1, *, out: Any = ...) -> Any:
    """The elements as diagonals of new matrices."""
def diagflat(input: Tensor, offset: int = 0, *, out: Any = ...) -> Any:
    """All elements on the diagonal of a matrix."""
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1, *, out: Any = ...) -> Any:
    """The diagonal of two dimensions."""
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1, *, out: Any = ...) -> Any:
    """A copy with a diagonal replaced."""
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *, out: Any = ...) -> Any:
    """Differences of neighbours."""
def digamma(input: Tensor, *, out: Any = ...) -> Any:
    """Derivative of `lgamma`."""
def digamma_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def dist(input: Tensor, other: Tensor, p: Number = 2, *, out: Any = ...) -> Any:
    """The p-norm of the difference."""
@overload
def div(input: Tensor, other: Tensor | Number, *, rounding_mode: str | None = None, out: Any = ...) -> Any:
    """Quotient of two tensors, rounded by `rounding_mode`."""
@overload
def div(input: Number, other: Tensor, *, rounding_mode: str | None = None, out: Any = ...) -> Any:
    """Quotient of two tensors, rounded by `rounding_mode`."""
@overload
def div(input: Number, other: Number, *, rounding_mode: str | None = None, out: Any = ...) -> Any:
    """Quotient of two tensors, rounded by `rounding_mode`."""
@overload
def divide(input: Tensor, other: Tensor | Number, *, rounding_mode: str | None = None, out: Any = ...) -> Any:
    """Another name of `div`."""
@overload
def divide(input: Number, other: Tensor | Number, *, rounding_mode: str | None = None, out: Any = ...) -> Any:
    """Another name of `div`."""
def dot(input: Tensor, tensor: Tensor, *, out: Any = ...) -> Any:
    """Product of two vectors."""
def dropout(input: Tensor, p: float, train: bool, *, out: Any = ...) -> Any:
    """Zeroes elements at random and scales up the others."""
@overload
def dsplit(input: Tensor, sections: int, *, out: Any = ...) -> Any:
    """Parts along the third dimension."""
@overload
def dsplit(input: Tensor, indices: Sequence[int], *, out: Any = ...) -> Any:
    """Parts along the third dimension."""
def dstack(tensors: Sequence[Tensor], *, out: Any = ...) -> Any:
    """Concatenates tensors along the third dimension."""
def empty(*size: int | Sequence[int], memory_format: memory_format | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Uninitialised memory."""
def empty_like(input: Tensor, *, memory_format: memory_format | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Uninitialised memory like another tensor."""
def eq(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are equal."""
def equal(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Whether two tensors have the same size and elements."""
def erf(input: Tensor, *, out: Any = ...) -> Any:
    """Error function."""
def erf_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def erfc(input: Tensor, *, out: Any = ...) -> Any:
    """`1 - erf(x)`."""
def erfc_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def erfinv(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse error function."""
def erfinv_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def exp(input: Tensor, *, out: Any = ...) -> Any:
    """e to the power of each element."""
def exp2(input: Tensor, *, out: Any = ...) -> Any:
    """Two to the power of each element."""
def exp2_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def exp_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def expm1(input: Tensor, *, out: Any = ...) -> Any:
    """`exp(x) - 1`, exact near zero."""
def expm1_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def eye(n: int, m: int | None = None, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Ones on the diagonal."""
@overload
def fill(input: Tensor, value: Tensor, *, out: Any = ...) -> Any:
    """A copy filled with a number."""
@overload
def fill(input: Tensor, value: Number, *, out: Any = ...) -> Any:
    """A copy filled with a number."""
def fix(input: Tensor, *, out: Any = ...) -> Any:
    """Integer part."""
def fix_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1, *, out: Any = ...) -> Any:
    """Merges dimensions into one."""
def flip(input: Tensor, dims: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Reverses dimensions."""
def fliplr(input: Tensor, *, out: Any = ...) -> Any:
    """Reverses columns."""
def flipud(input: Tensor, *, out: Any = ...) -> Any:
    """Reverses rows."""
@overload
def float_power(input: Tensor, exponent: Tensor | Number, *, out: Any = ...) -> Any:
    """`pow` in double precision."""
@overload
def float_power(self: Number, exponent: Tensor, *, out: Any = ...) -> Any:
    """`pow` in double precision."""
def floor(input: Tensor, *, out: Any = ...) -> Any:
    """Largest integer not above each element."""
def floor_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
@overload
def floor_divide(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Quotient rounded down."""
@overload
def floor_divide(input: Number, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Quotient rounded down."""
def fmax(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """The larger of two elements, ignoring NaN."""
def fmin(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """The smaller of two elements, ignoring NaN."""
def fmod(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Remainder with the sign of the dividend, as C's `fmod`."""
def frac(input: Tensor, *, out: Any = ...) -> Any:
    """Fractional part."""
def frac_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def frexp(input: Tensor, *, out: Any = ...) -> Any:
    """Mantissa and exponent with `input = mantissa * 2**exponent`."""
def full(size: int | Sequence[int | None], fill_value: Number, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """One number in every element."""
def full_like(input: Tensor, fill_value: Number, *, memory_format: memory_format | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """One number like another tensor."""
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Any = ...) -> Any:
    """Elements by an index along one dimension."""
def gcd(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Greatest common divisor."""
def ge(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are greater or equal."""
def geqrf(input: Tensor, *, out: Any = ...) -> Any:
    """Householder reflectors of a QR factorisation in LAPACK's packing, and their factors."""
def ger(input: Tensor, vec2: Tensor, *, out: Any = ...) -> Any:
    """All products of two vectors' elements."""
def get_device(input: Tensor, *, out: Any = ...) -> Any:
    """The number of the device, -1 for the CPU."""
@overload
def gradient(input: Tensor, *, spacing: Number = 1, dim: int | Sequence[int | None] | None = None, edge_order: int = 1, out: Any = ...) -> Any:
    """Differences between neighbours by the spacing of the grid, along one dimension at a time."""
@overload
def gradient(input: Tensor, *, spacing: Sequence[Tensor], dim: int | Sequence[int | None] | None = None, edge_order: int = 1, out: Any = ...) -> Any:
    """Differences between neighbours by the spacing of the grid, along one dimension at a time."""
@overload
def gradient(input: Tensor, *, spacing: float | Sequence[float], dim: int | Sequence[int | None] | None = None, edge_order: int = 1, out: Any = ...) -> Any:
    """Differences between neighbours by the spacing of the grid, along one dimension at a time."""
def greater(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are greater."""
def greater_equal(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are greater or equal."""
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05, *, out: Any = ...) -> Any:
    """Normalisation over groups of channels."""
@overload
def gru(input: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool, *, out: Any = ...) -> Any:
    """A recurrent network over sequences, padded or packed: outputs and last states."""
@overload
def gru(data: Tensor, batch_sizes: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, *, out: Any = ...) -> Any:
    """A recurrent network over sequences, padded or packed: outputs and last states."""
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None, *, out: Any = ...) -> Any:
    """One step of a recurrent network: the new state."""
def gt(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are greater."""
def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Hamming window."""
def hann_window(window_length: int, periodic: bool = True, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Hann window."""
def hardshrink(input: Tensor, lambd: Number = 0.5, *, out: Any = ...) -> Any:
    """Zero within `lambd` of zero."""
def hash_tensor(input: Tensor, dim: int | Sequence[int | None] | None = None, *, keepdim: bool = False, mode: int = 0, out: Any = ...) -> Any:
    """The exclusive or of the elements' 64 bits, as `uint64`."""
def heaviside(input: Tensor, values: Tensor, *, out: Any = ...) -> Any:
    """0 below zero, 1 above, `values` at zero."""
def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0, *, out: Any = ...) -> Any:
    """Counts of elements between limits, in bins of equal width."""
@overload
def hsplit(input: Tensor, sections: int, *, out: Any = ...) -> Any:
    """Parts along the columns."""
@overload
def hsplit(input: Tensor, indices: Sequence[int], *, out: Any = ...) -> Any:
    """Parts along the columns."""
def hstack(tensors: Sequence[Tensor], *, out: Any = ...) -> Any:
    """Concatenates tensors horizontally."""
def hypot(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """`sqrt(input^2 + other^2)`."""
def i0(input: Tensor, *, out: Any = ...) -> Any:
    """Modified Bessel function of the first kind of order 0."""
def imag(input: Tensor, *, out: Any = ...) -> Any:
    """The imaginary parts, a view."""
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Adds entries at indices of a dimension."""
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Any = ...) -> Any:
    """Writes entries at indices of a dimension."""
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number, *, out: Any = ...) -> Any:
    """Writes a number at indices of a dimension."""
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True, out: Any = ...) -> Any:
    """Reduces entries at indices of a dimension."""
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Any = ...) -> Any:
    """Entries of a dimension by index."""
def inner(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Products along the last dimensions."""
def inverse(input: Tensor, *, out: Any = ...) -> Any:
    """Inverse."""
def is_nonzero(input: Tensor, *, out: Any = ...) -> Any:
    """Whether the single element is not zero."""
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, *, out: Any = ...) -> Any:
    """Whether elements are close to another tensor's."""
def isfinite(input: Tensor, *, out: Any = ...) -> Any:
    """Whether elements are finite."""
@overload
def isin(elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False, out: Any = ...) -> Any:
    """Whether another tensor contains each element."""
@overload
def isin(elements: Tensor, test_element: Number, *, assume_unique: bool = False, invert: bool = False, out: Any = ...) -> Any:
    """Whether another tensor contains each element."""
@overload
def isin(element: Number, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False, out: Any = ...) -> Any:
    """Whether another tensor contains each element."""
def isinf(input: Tensor, *, out: Any = ...) -> Any:
    """Whether elements are infinite."""
def isnan(input: Tensor, *, out: Any = ...) -> Any:
    """Whether elements are NaN."""
def isneginf(input: Tensor, *, out: Any = ...) -> Any:
    """Whether elements are minus infinity."""
def isposinf(input: Tensor, *, out: Any = ...) -> Any:
    """Whether elements are plus infinity."""
def isreal(input: Tensor, *, out: Any = ...) -> Any:
    """Whether elements are real: their imaginary parts are zero."""
def kron(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Kronecker product."""
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = ...) -> Any:
    """The k-th smallest elements."""
def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05, *, out: Any = ...) -> Any:
    """Normalisation over the last dimensions."""
def lcm(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Least common multiple."""
def ldexp(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """`input * 2**other`."""
def le(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are less or equal."""
def lerp(input: Tensor, end: Tensor, weight: Tensor | Number, *, out: Any = ...) -> Any:
    """Linear interpolation: `input + weight * (end - input)`."""
def less(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are less."""
def less_equal(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are less or equal."""
def lgamma(input: Tensor, *, out: Any = ...) -> Any:
    """Logarithm of the gamma function's magnitude."""
def lgamma_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def linspace(start: Tensor | Number, end: Tensor | Number, steps: int, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Numbers evenly spaced from `start` to `end`."""
def log(input: Tensor, *, out: Any = ...) -> Any:
    """Natural logarithm."""
def log10(input: Tensor, *, out: Any = ...) -> Any:
    """Decimal logarithm."""
def log10_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def log1p(input: Tensor, *, out: Any = ...) -> Any:
    """`log(1 + x)`, exact near zero."""
def log1p_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def log2(input: Tensor, *, out: Any = ...) -> Any:
    """Binary logarithm."""
def log2_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def log_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def log_softmax(input: Tensor, dim: int, dtype: _dtype | None = None, *, out: Any = ...) -> Any:
    """Logarithm of `softmax`."""
def logaddexp(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """`log(exp(input) + exp(other))`."""
def logaddexp2(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """`log2(2^input + 2^other)`."""
def logcumsumexp(input: Tensor, dim: int, *, out: Any = ...) -> Any:
    """Running logarithms of sums of exponentials."""
def logdet(input: Tensor, *, out: Any = ...) -> Any:
    """Logarithm of the determinant."""
def logical_and(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Logical and."""
def logical_not(input: Tensor, *, out: Any = ...) -> Any:
    """Logical not."""
def logical_or(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Logical or."""
def logical_xor(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Logical exclusive or."""
def logit(input: Tensor, eps: float | None = None, *, out: Any = ...) -> Any:
    """Inverse of the logistic function."""
def logspace(start: Tensor | Number, end: Tensor | Number, steps: int, base: float = 10.0, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Powers of a base, exponents evenly spaced."""
def logsumexp(input: Tensor, dim: int | Sequence[int | None], keepdim: bool = False, *, out: Any = ...) -> Any:
    """Logarithm of the sum of exponentials."""
@overload
def lstm(input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool, *, out: Any = ...) -> Any:
    """An LSTM over sequences, padded or packed: outputs, last hidden and last cell states."""
@overload
def lstm(data: Tensor, batch_sizes: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, *, out: Any = ...) -> Any:
    """An LSTM over sequences, padded or packed: outputs, last hidden and last cell states."""
def lstm_cell(input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None, *, out: Any = ...) -> Any:
    """One step of an LSTM: the new hidden and cell state."""
def lt(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements are less."""
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Any = ...) -> Any:
    """Solution of a system whose LU factors are known."""
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = ...) -> Any:
    """Permutation, lower and upper triangle of packed LU factors."""
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number, *, out: Any = ...) -> Any:
    """Writes a number where a mask is true."""
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor, *, out: Any = ...) -> Any:
    """Writes elements of a source, in order, where a mask is true."""
def masked_select(input: Tensor, mask: Tensor, *, out: Any = ...) -> Any:
    """Elements where a mask is true."""
def matmul(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Matrix product, batched and broadcast."""
def matrix_exp(A: Tensor, *, out: Any = ...) -> Any:
    """Exponential of square matrices."""
def matrix_power(input: Tensor, n: int, *, out: Any = ...) -> Any:
    """Power of square matrices."""
@overload
def max(input: Tensor, *, out: Any = ...) -> Any:
    """The largest element; with a dimension its indices too; of two tensors, the larger elements."""
@overload
def max(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """The largest element; with a dimension its indices too; of two tensors, the larger elements."""
@overload
def max(input: Tensor, dim: int, keepdim: bool = False, *, out: Any = ...) -> Any:
    """The largest element; with a dimension its indices too; of two tensors, the larger elements."""
def max_pool1d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, *, out: Any = ...) -> Any:
    """Largest elements of windows."""
def max_pool2d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, *, out: Any = ...) -> Any:
    """Largest elements of windows."""
def max_pool3d(input: Tensor, kernel_size: int | Sequence[int | None], stride: int | Sequence[int | None] | None = None, padding: int | Sequence[int | None] = 0, dilation: int | Sequence[int | None] = 1, ceil_mode: bool = False, *, out: Any = ...) -> Any:
    """Largest elements of windows."""
def maximum(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """The larger of two elements; NaN if either is."""
def mean(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Mean of elements."""
@overload
def median(input: Tensor, *, out: Any = ...) -> Any:
    """The median: the lower one of an even number of elements."""
@overload
def median(input: Tensor, dim: int, keepdim: bool = False, *, out: Any = ...) -> Any:
    """The median: the lower one of an even number of elements."""
@overload
def min(input: Tensor, *, out: Any = ...) -> Any:
    """The smallest element; with a dimension its indices too; of two tensors, the smaller elements."""
@overload
def min(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """The smallest element; with a dimension its indices too; of two tensors, the smaller elements."""
@overload
def min(input: Tensor, dim: int, keepdim: bool = False, *, out: Any = ...) -> Any:
    """The smallest element; with a dimension its indices too; of two tensors, the smaller elements."""
def minimum(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """The smaller of two elements; NaN if either is."""
def mm(input: Tensor, mat2: Tensor, *, out: Any = ...) -> Any:
    """Product of two matrices."""
def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Any = ...) -> Any:
    """The most frequent element."""
def moveaxis(input: Tensor, source: int | Sequence[int | None], destination: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Moves dimensions to other positions."""
def movedim(input: Tensor, source: int | Sequence[int | None], destination: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Moves dimensions to other positions."""
def msort(input: Tensor, *, out: Any = ...) -> Any:
    """Sorts along the first dimension."""
@overload
def mul(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Product of two tensors."""
@overload
def mul(input: Number, other: Tensor, *, out: Any = ...) -> Any:
    """Product of two tensors."""
@overload
def mul(input: Number, other: Number, *, out: Any = ...) -> Any:
    """Product of two tensors."""
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None, out: Any = ...) -> Any:
    """Samples indices with the elements as weights."""
@overload
def multiply(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Another name of `mul`."""
@overload
def multiply(input: Number, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Another name of `mul`."""
def mv(input: Tensor, vec: Tensor, *, out: Any = ...) -> Any:
    """Product of a matrix and a vector."""
def mvlgamma(input: Tensor, p: int, *, out: Any = ...) -> Any:
    """Logarithm of the multivariate gamma function."""
def nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None, *, out: Any = ...) -> Any:
    """NaN and infinities replaced by numbers."""
def nanmean(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Mean of elements that are not NaN."""
@overload
def nanmedian(input: Tensor, *, out: Any = ...) -> Any:
    """The median of elements that are not NaN."""
@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False, *, out: Any = ...) -> Any:
    """The median of elements that are not NaN."""
def nanquantile(input: Tensor, q: Tensor | Number, dim: int | None = None, keepdim: bool = False, *, interpolation: str = 'linear', out: Any = ...) -> Any:
    """Quantiles of elements that are not NaN."""
def nansum(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Sum of elements that are not NaN."""
@overload
def narrow(input: Tensor, dim: int, start: int, length: int, *, out: Any = ...) -> Any:
    """A part of one dimension."""
@overload
def narrow(input: Tensor, dim: int, start: Tensor, length: int, *, out: Any = ...) -> Any:
    """A part of one dimension."""
def narrow_copy(input: Tensor, dim: int, start: int, length: int, *, out: Any = ...) -> Any:
    """A copy of a part of one dimension."""
def ne(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements differ."""
def neg(input: Tensor, *, out: Any = ...) -> Any:
    """Negation."""
def neg_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def negative(input: Tensor, *, out: Any = ...) -> Any:
    """Negation."""
def negative_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def nextafter(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """The next number towards another."""
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = ...) -> Any:
    """Indices of nonzero elements: as rows, or one tensor per dimension."""
@overload
def norm(input: Tensor, p: Number | None = 2, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, dtype: _dtype | None = None, *, out: Any = ...) -> Any:
    """A norm of the elements."""
@overload
def norm(input: Tensor, p: str, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, dtype: _dtype | None = None, *, out: Any = ...) -> Any:
    """A norm of the elements."""
@overload
def normal(mean: Tensor, std: Tensor, *, generator: Generator | None = None, out: Any = ...) -> Any:
    """Normal numbers with means and deviations."""
@overload
def normal(mean: Tensor, std: float = 1.0, *, generator: Generator | None = None, out: Any = ...) -> Any:
    """Normal numbers with means and deviations."""
@overload
def normal(mean: float, std: Tensor, *, generator: Generator | None = None, out: Any = ...) -> Any:
    """Normal numbers with means and deviations."""
@overload
def normal(mean: float, std: float, size: Sequence[int], *, generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Normal numbers with means and deviations."""
def not_equal(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Whether elements differ."""
def ones(*size: int | Sequence[int], dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Ones."""
def ones_like(input: Tensor, *, memory_format: memory_format | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Ones like another tensor."""
def outer(input: Tensor, vec2: Tensor, *, out: Any = ...) -> Any:
    """All products of two vectors' elements."""
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Distances of pairs of vectors."""
def pdist(input: Tensor, p: float = 2.0, *, out: Any = ...) -> Any:
    """Distances between vectors of one set."""
def permute(input: Tensor, dims: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """Permutes dimensions."""
def pinverse(input: Tensor, rcond: float = 1e-15, *, out: Any = ...) -> Any:
    """Pseudo-inverse."""
def pixel_shuffle(input: Tensor, upscale_factor: int, *, out: Any = ...) -> Any:
    """Rearranges channels into pixels."""
def pixel_unshuffle(input: Tensor, downscale_factor: int, *, out: Any = ...) -> Any:
    """Rearranges pixels into channels."""
def poisson(input: Tensor, generator: Generator | None = None, *, out: Any = ...) -> Any:
    """Poisson samples with the elements as rates."""
def polar(abs: Tensor, angle: Tensor, *, out: Any = ...) -> Any:
    """Complex numbers of their magnitudes and angles."""
def polygamma(n: int, input: Tensor, *, out: Any = ...) -> Any:
    """Derivatives of the digamma function."""
def positive(input: Tensor, *, out: Any = ...) -> Any:
    """The tensor itself."""
@overload
def pow(input: Tensor, exponent: Tensor | Number, *, out: Any = ...) -> Any:
    """Raises elements to a power."""
@overload
def pow(self: Number, exponent: Tensor, *, out: Any = ...) -> Any:
    """Raises elements to a power."""
def prelu(input: Tensor, weight: Tensor, *, out: Any = ...) -> Any:
    """`x`, or `weight * x` below zero."""
@overload
def prod(input: Tensor, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Product of elements."""
@overload
def prod(input: Tensor, dim: int, keepdim: bool = False, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Product of elements."""
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False, *, out: Any = ...) -> Any:
    """Writes elements at row-major positions."""
def qr(input: Tensor, some: bool = True, *, out: Any = ...) -> Any:
    """Orthogonal and triangular factors."""
def quantile(input: Tensor, q: Tensor | Number, dim: int | None = None, keepdim: bool = False, *, interpolation: str = 'linear', out: Any = ...) -> Any:
    """Quantiles, linearly interpolated."""
def rad2deg(input: Tensor, *, out: Any = ...) -> Any:
    """Radians as degrees."""
def rand(*size: int | Sequence[int], generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Uniform numbers in [0, 1)."""
def rand_like(input: Tensor, *, memory_format: memory_format | None = None, generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Uniform numbers like another tensor."""
@overload
def randint(high: int, size: Sequence[int], *, generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Integers from `low` to before `high`."""
@overload
def randint(low: int, high: int, size: Sequence[int], *, generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Integers from `low` to before `high`."""
@overload
def randint_like(input: Tensor, high: int, *, generator: Generator | None = None, memory_format: memory_format | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Integers like another tensor."""
@overload
def randint_like(input: Tensor, low: int, high: int, *, generator: Generator | None = None, memory_format: memory_format | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Integers like another tensor."""
def randn(*size: int | Sequence[int], generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Normal numbers."""
def randn_like(input: Tensor, *, memory_format: memory_format | None = None, generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Normal numbers like another tensor."""
def randperm(n: int, *, generator: Generator | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """The numbers below `n` in random order."""
def range(start: Number = 0, end: Number = 0, step: Number = 1, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Numbers from `start` to `end` inclusive, as floats."""
def ravel(input: Tensor, *, out: Any = ...) -> Any:
    """One dimension, contiguous."""
def real(input: Tensor, *, out: Any = ...) -> Any:
    """The real parts, a view."""
def reciprocal(input: Tensor, *, out: Any = ...) -> Any:
    """`1 / x`."""
def reciprocal_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def relu(input: Tensor, *, out: Any = ...) -> Any:
    """The positive part."""
def relu_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
@overload
def remainder(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Remainder with the sign of the divisor, as Python's `%`."""
@overload
def remainder(input: Number, other: Tensor, *, out: Any = ...) -> Any:
    """Remainder with the sign of the divisor, as Python's `%`."""
def renorm(input: Tensor, p: Number, dim: int, maxnorm: Number, *, out: Any = ...) -> Any:
    """Scales down sub-tensors whose norm exceeds a limit."""
@overload
def repeat_interleave(input: Tensor, repeats: Tensor | Number, dim: int | None = None, *, output_size: int | None = None, out: Any = ...) -> Any:
    """Elements repeated."""
@overload
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None, out: Any = ...) -> Any:
    """Elements repeated."""
def reshape(input: Tensor, shape: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """The same elements in another shape, copied only if needed."""
def resolve_conj(input: Tensor, *, out: Any = ...) -> Any:
    """The elements, none of which is conjugated lazily."""
def resolve_neg(input: Tensor, *, out: Any = ...) -> Any:
    """The elements, none of which is negated lazily."""
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None, *, out: Any = ...) -> Any:
    """Division by the root of the mean square."""
@overload
def rnn_relu(input: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool, *, out: Any = ...) -> Any:
    """A recurrent network over sequences, padded or packed: outputs and last states."""
@overload
def rnn_relu(data: Tensor, batch_sizes: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, *, out: Any = ...) -> Any:
    """A recurrent network over sequences, padded or packed: outputs and last states."""
def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None, *, out: Any = ...) -> Any:
    """One step of a recurrent network: the new state."""
@overload
def rnn_tanh(input: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool, *, out: Any = ...) -> Any:
    """A recurrent network over sequences, padded or packed: outputs and last states."""
@overload
def rnn_tanh(data: Tensor, batch_sizes: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, *, out: Any = ...) -> Any:
    """A recurrent network over sequences, padded or packed: outputs and last states."""
def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None, *, out: Any = ...) -> Any:
    """One step of a recurrent network: the new state."""
def roll(input: Tensor, shifts: int | Sequence[int | None], dims: int | Sequence[int | None] | None = None, *, out: Any = ...) -> Any:
    """Rolls entries along dimensions."""
def rot90(input: Tensor, k: int = 1, dims: int | Sequence[int | None] = (0,1), *, out: Any = ...) -> Any:
    """Rotates by multiples of 90 degrees."""
def round(input: Tensor, *, decimals: int = 0, out: Any = ...) -> Any:
    """The nearest integer, ties to even, or the nearest number with `decimals` decimals."""
def row_stack(tensors: Sequence[Tensor], *, out: Any = ...) -> Any:
    """Concatenates tensors vertically."""
def rsqrt(input: Tensor, *, out: Any = ...) -> Any:
    """`1 / sqrt(x)`."""
def rsqrt_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Any = ...) -> Any:
    """`other - input`, the input times `alpha`."""
def scalar_tensor(s: Number, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """A number as a tensor."""
@overload
def scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | Number, *, reduce: str | None = None, out: Any = ...) -> Any:
    """Writes elements by an index along one dimension."""
@overload
def scatter(input: Tensor, dim: int, index: Tensor, value: Number, *, reduce: str | None = None, out: Any = ...) -> Any:
    """Writes elements by an index along one dimension."""
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Any = ...) -> Any:
    """Adds elements by an index along one dimension."""
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True, out: Any = ...) -> Any:
    """Reduces elements by an index along one dimension."""
def searchsorted(sorted_sequence: Tensor, input: Tensor | Number, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None = None, out: Any = ...) -> Any:
    """Insertion points of values in sorted rows."""
def select(input: Tensor, dim: int, index: int, *, out: Any = ...) -> Any:
    """One entry of a dimension."""
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int, *, out: Any = ...) -> Any:
    """A copy with one entry of a dimension replaced."""
def selu(input: Tensor, *, out: Any = ...) -> Any:
    """The self-normalising `elu`."""
def selu_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def sgn(input: Tensor, *, out: Any = ...) -> Any:
    """-1, 0 or 1 by sign."""
def sigmoid(input: Tensor, *, out: Any = ...) -> Any:
    """Logistic function."""
def sigmoid_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def sign(input: Tensor, *, out: Any = ...) -> Any:
    """-1, 0 or 1 by sign."""
def signbit(input: Tensor, *, out: Any = ...) -> Any:
    """Whether the sign bit is set."""
def sin(input: Tensor, *, out: Any = ...) -> Any:
    """Sine."""
def sin_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def sinc(input: Tensor, *, out: Any = ...) -> Any:
    """`sin(pi x) / (pi x)`."""
def sinc_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def sinh(input: Tensor, *, out: Any = ...) -> Any:
    """Hyperbolic sine."""
def sinh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *, out: Any = ...) -> Any:
    """A copy with a slice of a dimension replaced."""
def slogdet(A: Tensor, *, out: Any = ...) -> Any:
    """Sign and logarithm of the determinant."""
def softmax(input: Tensor, dim: int, dtype: _dtype | None = None, *, out: Any = ...) -> Any:
    """Exponentials that sum to one."""
@overload
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, out: Any = ...) -> Any:
    """Sorted elements and their indices."""
@overload
def sort(input: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False, out: Any = ...) -> Any:
    """Sorted elements and their indices."""
@overload
def split(tensor: Tensor, split_size_or_sections: int, dim: int = 0, *, out: Any = ...) -> Any:
    """Parts of a length, or of given lengths."""
@overload
def split(tensor: Tensor, split_size_or_sections: Sequence[int], dim: int = 0, *, out: Any = ...) -> Any:
    """Parts of a length, or of given lengths."""
@overload
def split(tensor: Tensor, split_size: int, dim: int = 0, *, out: Any = ...) -> Any:
    """Parts of a length, or of given lengths."""
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Any = ...) -> Any:
    """Parts of given lengths."""
def sqrt(input: Tensor, *, out: Any = ...) -> Any:
    """Square root."""
def sqrt_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def square(input: Tensor, *, out: Any = ...) -> Any:
    """`x * x`."""
def square_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def squeeze(input: Tensor, dim: int | Sequence[int | None] | None = None, *, out: Any = ...) -> Any:
    """Removes dimensions of size one."""
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Any = ...) -> Any:
    """Stacks tensors along a new dimension."""
@overload
def std(input: Tensor, dim: int | Sequence[int | None] | None, unbiased: bool, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Standard deviation."""
@overload
def std(input: Tensor, unbiased: bool, *, out: Any = ...) -> Any:
    """Standard deviation."""
@overload
def std(input: Tensor, dim: int | Sequence[int | None] | None = None, *, correction: Number | None = 1, keepdim: bool = False, out: Any = ...) -> Any:
    """Standard deviation."""
@overload
def std(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, unbiased: bool = True, out: Any = ...) -> Any:
    """Standard deviation."""
@overload
def std_mean(input: Tensor, dim: int | Sequence[int | None] | None = None, *, correction: Number | None = 1, keepdim: bool = False, out: Any = ...) -> Any:
    """Standard deviation and mean."""
@overload
def std_mean(input: Tensor, dim: int | Sequence[int | None] | None, unbiased: bool, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Standard deviation and mean."""
@overload
def std_mean(input: Tensor, unbiased: bool, *, out: Any = ...) -> Any:
    """Standard deviation and mean."""
@overload
def sub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Difference of two tensors, the second times `alpha`."""
@overload
def sub(input: Number, other: Tensor, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Difference of two tensors, the second times `alpha`."""
@overload
def sub(input: Number, other: Number, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Difference of two tensors, the second times `alpha`."""
@overload
def subtract(input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Another name of `sub`."""
@overload
def subtract(input: Number, other: Tensor | Number, *, alpha: Number = 1, out: Any = ...) -> Any:
    """Another name of `sub`."""
def sum(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, dtype: _dtype | None = None, out: Any = ...) -> Any:
    """Sum of elements."""
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = ...) -> Any:
    """Singular value decomposition, `A = U diag(S) V^T`."""
def swapaxes(input: Tensor, axis0: int, axis1: int, *, out: Any = ...) -> Any:
    """Transposes two dimensions."""
def swapdims(input: Tensor, dim0: int, dim1: int, *, out: Any = ...) -> Any:
    """Transposes two dimensions."""
def t(input: Tensor, *, out: Any = ...) -> Any:
    """Transposes a matrix."""
def take(input: Tensor, index: Tensor, *, out: Any = ...) -> Any:
    """Elements by their row-major position."""
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Any = ...) -> Any:
    """Elements by indices that broadcast."""
def tan(input: Tensor, *, out: Any = ...) -> Any:
    """Tangent."""
def tan_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def tanh(input: Tensor, *, out: Any = ...) -> Any:
    """Hyperbolic tangent."""
def tanh_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
@overload
def tensor_split(input: Tensor, tensor_indices_or_sections: Tensor, dim: int = 0, *, out: Any = ...) -> Any:
    """A number of parts, or parts between positions."""
@overload
def tensor_split(input: Tensor, indices_or_sections: int, dim: int = 0, *, out: Any = ...) -> Any:
    """A number of parts, or parts between positions."""
@overload
def tensor_split(input: Tensor, indices_or_sections: Sequence[int], dim: int = 0, *, out: Any = ...) -> Any:
    """A number of parts, or parts between positions."""
@overload
def tensor_split(input: Tensor, indices: Sequence[int], dim: int = 0, *, out: Any = ...) -> Any:
    """A number of parts, or parts between positions."""
@overload
def tensor_split(input: Tensor, sections: int, dim: int = 0, *, out: Any = ...) -> Any:
    """A number of parts, or parts between positions."""
def threshold(input: Tensor, threshold: Number, value: Number, *, out: Any = ...) -> Any:
    """`x` above `threshold`, else `value`."""
def tile(input: Tensor, dims: int | Sequence[int | None], *, out: Any = ...) -> Any:
    """The whole tensor repeated."""
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out: Any = ...) -> Any:
    """The largest or smallest elements, and their indices."""
def trace(input: Tensor, *, out: Any = ...) -> Any:
    """Sum of the diagonal."""
def transpose(input: Tensor, dim0: int, dim1: int, *, out: Any = ...) -> Any:
    """Transposes two dimensions."""
@overload
def trapezoid(y: Tensor, x: Tensor, *, dim: int = -1, out: Any = ...) -> Any:
    """Area under a curve, by trapezoids."""
@overload
def trapezoid(y: Tensor, *, dx: Number = 1, dim: int = -1, out: Any = ...) -> Any:
    """Area under a curve, by trapezoids."""
@overload
def trapz(y: Tensor, x: Tensor, *, dim: int = -1, out: Any = ...) -> Any:
    """Another name of `trapezoid`."""
@overload
def trapz(y: Tensor, *, dx: Number = 1, dim: int = -1, out: Any = ...) -> Any:
    """Another name of `trapezoid`."""
def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *, out: Any = ...) -> Any:
    """Solution of a triangular system, and the matrix."""
def tril(input: Tensor, diagonal: int = 0, *, out: Any = ...) -> Any:
    """The lower triangle."""
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Indices of the lower triangle of a matrix."""
def triu(input: Tensor, diagonal: int = 0, *, out: Any = ...) -> Any:
    """The upper triangle."""
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Indices of the upper triangle of a matrix."""
@overload
def true_divide(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """`div` without rounding."""
@overload
def true_divide(input: Number, other: Tensor | Number, *, out: Any = ...) -> Any:
    """`div` without rounding."""
def trunc(input: Tensor, *, out: Any = ...) -> Any:
    """Integer part."""
def trunc_(input: Tensor, *, out: Any = ...) -> Tensor:
    """In place."""
def unbind(input: Tensor, dim: int = 0, *, out: Any = ...) -> Any:
    """All entries of a dimension."""
def unflatten(input: Tensor, dim: int, sizes: Sequence[int], *, out: Any = ...) -> Any:
    """Splits one dimension into several."""
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *, out: Any = ...) -> Any:
    """Sorted distinct values; optionally each element's index among them, and counts."""
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *, out: Any = ...) -> Any:
    """Runs of equal elements."""
def unsqueeze(input: Tensor, dim: int, *, out: Any = ...) -> Any:
    """Inserts a dimension of size one."""
def vander(x: Tensor, N: int | None = None, increasing: bool = False, *, out: Any = ...) -> Any:
    """Powers of the elements in columns."""
@overload
def var(input: Tensor, dim: int | Sequence[int | None] | None, unbiased: bool, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Variance."""
@overload
def var(input: Tensor, unbiased: bool, *, out: Any = ...) -> Any:
    """Variance."""
@overload
def var(input: Tensor, dim: int | Sequence[int | None] | None = None, *, correction: Number | None = 1, keepdim: bool = False, out: Any = ...) -> Any:
    """Variance."""
@overload
def var(input: Tensor, dim: int | Sequence[int | None] | None = None, keepdim: bool = False, *, unbiased: bool = True, out: Any = ...) -> Any:
    """Variance."""
@overload
def var_mean(input: Tensor, dim: int | Sequence[int | None] | None = None, *, correction: Number | None = 1, keepdim: bool = False, out: Any = ...) -> Any:
    """Variance and mean."""
@overload
def var_mean(input: Tensor, dim: int | Sequence[int | None] | None, unbiased: bool, keepdim: bool = False, *, out: Any = ...) -> Any:
    """Variance and mean."""
@overload
def var_mean(input: Tensor, unbiased: bool, *, out: Any = ...) -> Any:
    """Variance and mean."""
def vdot(input: Tensor, other: Tensor, *, out: Any = ...) -> Any:
    """Product of two vectors."""
def view_as_complex(input: Tensor, *, out: Any = ...) -> Any:
    """A view of pairs of real numbers as complex ones."""
def view_as_real(input: Tensor, *, out: Any = ...) -> Any:
    """A view of complex numbers as pairs of real ones."""
@overload
def vsplit(input: Tensor, sections: int, *, out: Any = ...) -> Any:
    """Parts along the rows."""
@overload
def vsplit(input: Tensor, indices: Sequence[int], *, out: Any = ...) -> Any:
    """Parts along the rows."""
def vstack(tensors: Sequence[Tensor], *, out: Any = ...) -> Any:
    """Concatenates tensors vertically."""
@overload
def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number, *, out: Any = ...) -> Any:
    """Selects from one tensor where a condition holds, from another elsewhere. With a condition alone: its indices."""
@overload
def where(condition: Tensor, *, out: Any = ...) -> Any:
    """Selects from one tensor where a condition holds, from another elsewhere. With a condition alone: its indices."""
@overload
def xlogy(input: Tensor, other: Tensor | Number, *, out: Any = ...) -> Any:
    """`input * log(other)`, zero where the input is zero."""
@overload
def xlogy(self: Number, other: Tensor, *, out: Any = ...) -> Any:
    """`input * log(other)`, zero where the input is zero."""
def zeros(*size: int | Sequence[int], dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Zeros."""
def zeros_like(input: Tensor, *, memory_format: memory_format | None = None, dtype: _dtype | None = None, layout: layout | None = None, device: _device | str | int | None = None, pin_memory: bool | None = False, requires_grad: bool = False, out: Any = ...) -> Any:
    """Zeros like another tensor."""
def as_tensor(*args: Any, **kwargs: Any) -> Any: ...
def can_cast(*args: Any, **kwargs: Any) -> Any: ...
def from_numpy(*args: Any, **kwargs: Any) -> Any: ...
def frombuffer(*args: Any, **kwargs: Any) -> Any: ...
def get_default_device(*args: Any, **kwargs: Any) -> Any: ...
def get_default_dtype(*args: Any, **kwargs: Any) -> Any: ...
def get_num_threads(*args: Any, **kwargs: Any) -> Any: ...
def get_rng_state(*args: Any, **kwargs: Any) -> Any: ...
def initial_seed(*args: Any, **kwargs: Any) -> Any: ...
def is_grad_enabled(*args: Any, **kwargs: Any) -> Any: ...
def is_inference_mode_enabled(*args: Any, **kwargs: Any) -> Any: ...
def promote_types(*args: Any, **kwargs: Any) -> Any: ...
def seed(*args: Any, **kwargs: Any) -> Any: ...
def set_default_device(*args: Any, **kwargs: Any) -> Any: ...
def set_default_dtype(*args: Any, **kwargs: Any) -> Any: ...
def set_num_threads(*args: Any, **kwargs: Any) -> Any: ...
def set_printoptions(*args: Any, **kwargs: Any) -> Any: ...
def set_rng_state(*args: Any, **kwargs: Any) -> Any: ...
def tensor(*args: Any, **kwargs: Any) -> Any: ...
def are_deterministic_algorithms_enabled(): ...
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False): ...
def atleast_1d(*tensors): ...
def atleast_2d(*tensors): ...
def atleast_3d(*tensors): ...
def autocast(device_type='cpu', dtype=None, enabled=True, cache_enabled=None): ...
def block_diag(*tensors): ...
def broadcast_shapes(*shapes): ...
def broadcast_tensors(*tensors): ...
def cartesian_prod(*tensors): ...
def chain_matmul(*matrices): ...
def compile(model=None, *, fullgraph=False, dynamic=None, backend='inductor', mode=None, options=None, disable=False): ...
def detach(input): ...
def einsum(*args): ...
def from_dlpack(ext_tensor, *, device=None, copy=None): ...
def get_autocast_dtype(device_type): ...
def get_deterministic_debug_mode(): ...
def get_device_module(device=None): ...
def get_file_path(*parts): ...
def get_float32_matmul_precision(): ...
def get_num_interop_threads(): ...
def gradient(input, *, spacing=1, dim=None, edge_order=1): ...
def histogram(input, bins, *, range=None, weight=None, density=False): ...
def histogramdd(input, bins, *, range=None, weight=None, density=False): ...
def index_put(input, indices, values, accumulate=False): ...
def is_anomaly_enabled(): ...
def is_autocast_available(device_type): ...
def is_autocast_enabled(device_type=None): ...
def is_complex(input): ...
def is_conj(input): ...
def is_deterministic_algorithms_warn_only_enabled(): ...
def is_floating_point(input): ...
def is_inference(input): ...
def is_neg(input): ...
def is_same_size(input, other): ...
def is_signed(input): ...
def is_storage(obj): ...
def is_tensor(obj): ...
def is_warn_always_enabled(): ...
def load(f, map_location=None, pickle_module=None, *, weights_only=True, mmap=None, **pickle_load_args): ...
def manual_seed(seed): ...
def meshgrid(*tensors, indexing=None): ...
def numel(input): ...
def orgqr(input, tau): ...
def ormqr(input, tau, other, left=True, transpose=False): ...
def resize_as_(self, other, memory_format=None): ...
def result_type(tensor1, tensor2): ...
def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True, _disable_byteorder_record=False): ...
def set_default_tensor_type(t): ...
def set_deterministic_debug_mode(debug_mode): ...
def set_float32_matmul_precision(precision): ...
def set_flush_denormal(mode): ...
def set_num_interop_threads(n): ...
def set_warn_always(b): ...
def sym_float(a): ...
def sym_int(a): ...
def sym_ite(b, t, f): ...
def sym_max(a, b): ...
def sym_min(a, b): ...
def sym_not(a): ...
def sym_sum(args): ...
def tensordot(a, b, dims=2, out=None): ...
def typed(dtype, place='cpu'): ...
def typename(obj): ...
def unravel_index(indices, shape): ...
def use_deterministic_algorithms(mode, *, warn_only=False): ...
class no_grad: ...
class enable_grad: ...
class inference_mode: ...
class set_grad_enabled: ...
class finfo: ...
class iinfo: ...
bfloat16: _dtype
bool: _dtype
cdouble: _dtype
cfloat: _dtype
chalf: _dtype
complex128: _dtype
complex32: _dtype
complex64: _dtype
double: _dtype
float: _dtype
float16: _dtype
float32: _dtype
float4_e2m1fn_x2: _dtype
float64: _dtype
float8_e4m3fn: _dtype
float8_e4m3fnuz: _dtype
float8_e5m2: _dtype
float8_e5m2fnuz: _dtype
float8_e8m0fnu: _dtype
half: _dtype
int: _dtype
int16: _dtype
int32: _dtype
int64: _dtype
int8: _dtype
long: _dtype
qint32: _dtype
qint8: _dtype
quint8: _dtype
short: _dtype
uint16: _dtype
uint32: _dtype
uint64: _dtype
uint8: _dtype
strided: layout
channels_last: memory_format
channels_last_3d: memory_format
contiguous_format: memory_format
preserve_format: memory_format
from . import amp as amp
from . import autograd as autograd
from . import backends as backends
from . import cuda as cuda
from . import linalg as linalg
from . import nn as nn
from . import optim as optim
from . import special as special
from . import utils as utils
from ._accelerator import Event as Event
from ._accelerator import Stream as Stream
from ._capture import capture as capture
