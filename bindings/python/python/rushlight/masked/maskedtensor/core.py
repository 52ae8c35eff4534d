"""``MaskedTensor``: data and a mask of the same shape. Elements whose mask is False count as absent.

A masked tensor is a Python object over two plain tensors. Functions of ``torch`` reach it by ``__torch_function__`` and run on the data, so that gradients
follow from those ops; the gradient of a masked tensor is masked alike. Functions without a masked form are refused by name.
"""

import warnings

from ... import _C
from ..._dispatch import disabled, name_of
from ...sparse._tensor import Sparse

__all__ = ["MaskedTensor", "is_masked_tensor"]

Tensor = _C.Tensor
_torch = _C._torch

_DTYPES = frozenset((_C.float16, _C.float32, _C.float64, _C.bool, _C.int8, _C.int16, _C.int32, _C.int64))
_WARNING = (
    "The PyTorch API of MaskedTensors is in prototype stage and will change in the near future. Please open a Github issue for feature requests and see our "
    "documentation on the torch.masked module for further information about the project."
)

#: Functions of elements.
_UNARY = frozenset(
    "abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh bitwise_not ceil clamp clip conj_physical cos cosh deg2rad "
    "digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma log log10 log1p log2 logit i0 isnan nan_to_num neg negative positive pow rad2deg reciprocal round "
    "rsqrt sigmoid sign sgn signbit sin sinc sinh sqrt square tan tanh trunc detach clone to float double half int long short bool relu invert".split()
)
#: Functions of two tensors with equal masks, or of a masked tensor and a plain one or a number.
_BINARY = frozenset(
    "add atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div divide floor_divide fmod logaddexp logaddexp2 mul multiply "
    "nextafter remainder sub subtract true_divide eq ne le ge greater greater_equal gt less_equal lt less maximum minimum fmax fmin not_equal rsub rtruediv rdiv rpow "
    "radd rmul floordiv rfloordiv mod and or xor".split()
)
#: Functions applied to the data and to the mask alike.
_ALIKE = frozenset(
    "select transpose split t slice index expand view reshape cat unsqueeze squeeze unfold stack getitem permute flatten unflatten contiguous narrow chunk unbind "
    "broadcast_to expand_as view_as atleast_1d atleast_2d atleast_3d broadcast_tensors column_stack concat concatenate diag diagonal dsplit dstack hsplit hstack kron "
    "meshgrid movedim moveaxis ravel swapaxes swapdims tensor_split tile tril triu vsplit vstack mT T index_select repeat roll flip".split()
)
_REDUCTIONS = frozenset("sum mean amin amax argmin argmax prod all norm var std".split())
_QUESTIONS = frozenset(
    "size dim ndimension numel nelement is_floating_point is_complex is_signed element_size stride is_contiguous shape dtype device ndim is_cuda is_cpu is_meta is_xpu "
    "itemsize get_device is_leaf grad_fn requires_grad names is_quantized len is_same_size".split()
)


def is_masked_tensor(obj, /):
    """Whether an object is a masked tensor."""
    return isinstance(obj, MaskedTensor)


def _check(data, mask):
    if data.layout != mask.layout:
        raise TypeError("data and mask must have the same layout.")
    if isinstance(data, Sparse):
        raise NotImplementedError(f"masked tensors are strided here, not {data.layout}; call .to_dense() on the data and the mask first")
    if type(data) is not type(mask) and type(data) is not Tensor and type(mask) is not Tensor:
        raise TypeError(f"data and mask must have the same type. Got {type(data)} and {type(mask)}")
    if mask.dtype != _C.bool:
        raise TypeError("mask must have dtype bool.")
    if data.dtype not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.dim() != mask.dim():
        raise ValueError("data.dim() must equal mask.dim()")
    if data.shape != mask.shape:
        raise ValueError("data.size() must equal mask.size()")


def _of(data, mask):
    """A masked tensor of these very tensors; of each pair of results of a function that has several."""
    if isinstance(data, (list, tuple)):
        return type(data)(_of(d, m) for d, m in zip(data, mask)) if type(data) in (list, tuple) else tuple(_of(d, m) for d, m in zip(data, mask))
    made = Tensor._make_wrapper_subclass(MaskedTensor, list(data.shape), dtype=data.dtype, device=data.device)
    made._masked_data, made._masked_mask = data, mask
    return made


class MaskedTensor(Tensor):
    """Data with a mask: True where an element counts."""

    @staticmethod
    def __new__(cls, data, mask, requires_grad=False):
        for what, part in (("data", data), ("mask", mask)):
            if isinstance(part, MaskedTensor) or not isinstance(part, Tensor):
                raise TypeError(f"{what} must be a Tensor")
        warnings.warn(_WARNING, UserWarning, stacklevel=2)
        if data.requires_grad:
            warnings.warn(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. To avoid this, you can use data.detach().clone()",
                UserWarning, stacklevel=2,
            )
        _check(data, mask)
        return _of(data.detach().clone().requires_grad_(requires_grad), mask.clone())

    def __init__(self, data, mask, requires_grad=False):
        pass

    @staticmethod
    def _from_values(data, mask):
        if isinstance(data, MaskedTensor):
            raise TypeError("data must be a Tensor")
        warnings.warn(_WARNING, UserWarning, stacklevel=3)
        _check(data, mask)
        return _of(data.clone(), mask.clone())

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _handle(func, args, kwargs or {})

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        raise TypeError(f"{func}: not supported for masked tensors; call .get_data() or .to_tensor(value) first")

    # Attributes.

    shape = property(lambda self: self._masked_data.shape)
    dtype = property(lambda self: self._masked_data.dtype)
    device = property(lambda self: self._masked_data.device)
    ndim = property(lambda self: self._masked_data.dim())
    layout = property(lambda self: self._masked_data.layout)
    is_leaf = property(lambda self: self._masked_data.is_leaf)
    grad_fn = property(lambda self: self._masked_data.grad_fn)
    is_sparse = property(lambda self: False)

    def is_sparse_coo(self):
        return False

    def is_sparse_csr(self):
        return False

    @property
    def requires_grad(self):
        return self._masked_data.requires_grad

    @requires_grad.setter
    def requires_grad(self, value):
        self._masked_data.requires_grad_(value)

    @property
    def grad(self):
        found = self._masked_data.grad
        return None if found is None else _of(found, self._masked_mask)

    @grad.setter
    def grad(self, value):
        self._masked_data.grad = value._masked_data if isinstance(value, MaskedTensor) else value

    def requires_grad_(self, requires_grad=True):
        self._masked_data.requires_grad_(requires_grad)
        return self

    def retain_grad(self):
        self._masked_data.retain_grad()

    def get_data(self):
        """The data, also of elements that are masked out."""
        return self._masked_data

    def get_mask(self):
        """The mask."""
        return self._masked_mask

    def to_tensor(self, value):
        """The data with a value in place of the elements that are masked out."""
        return self._masked_data.masked_fill(~self._masked_mask, value)

    def backward(self, gradient=None, **kwargs):
        gradient = gradient._masked_data if isinstance(gradient, MaskedTensor) else gradient
        self._masked_data.backward(gradient, **kwargs)

    def item(self):
        if not self._masked_mask.all().item():
            raise ValueError("item: the element is masked out")
        return self._masked_data.item()

    def to_dense(self, dtype=None, *, masked_grad=None):
        return self if dtype is None else self.to(dtype)

    def __repr__(self, **kwargs):
        with disabled():
            data, mask = self._masked_data.detach(), self._masked_mask
            if data.dim() == 0:
                shown = _number(data.item()) if mask.item() else "--"
                return f"MaskedTensor({shown}, {mask.item()})"
            text = _rows(data.tolist(), mask.tolist(), data.dim())
        return "MaskedTensor(\n" + _indented(text) + "\n)"

    __str__ = __repr__

    def __len__(self):
        return self._masked_data.shape[0]

    def __hash__(self):
        return id(self)

    def __deepcopy__(self, memo):
        data = self._masked_data
        memo[id(self)] = made = _of(data.detach().clone().requires_grad_(data.requires_grad), self._masked_mask.clone())
        return made

    def __reduce_ex__(self, protocol):
        return _of, (self._masked_data.detach(), self._masked_mask)


def _number(value):
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _indented(text):
    return "\n".join("  " + line for line in text.split("\n"))


def _rows(data, mask, dims):
    if dims == 1:
        shown = [_number(value) for value in data]
        width = max([len(text) if kept else 8 for text, kept in zip(shown, mask)], default=0)
        return "[" + ", ".join(text if kept else "--".rjust(width) for text, kept in zip(shown, mask)) + "]"
    return "[\n" + ",\n".join(_indented(_rows(d, m, dims - 1)) for d, m in zip(data, mask)) + "\n]"


def _data(value):
    if isinstance(value, MaskedTensor):
        return value._masked_data
    return type(value)(_data(v) for v in value) if type(value) in (list, tuple) else value


def _mask(value):
    if isinstance(value, MaskedTensor):
        return value._masked_mask
    return type(value)(_mask(v) for v in value) if type(value) in (list, tuple) else value


def _masks_match(a, b):
    if isinstance(a, MaskedTensor) and isinstance(b, MaskedTensor):
        return a.dim() == b.dim() and bool((a._masked_mask == b._masked_mask).all().item())
    return True


def _binary(func, args, kwargs):
    a, b = (*args[:2], *(kwargs[k] for k in ("other",) if k in kwargs))[:2]
    if not _masks_match(a, b):
        raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")
    made = func(*_data(args), **{k: _data(v) for k, v in kwargs.items()})
    return _of(made, _mask(a if isinstance(a, MaskedTensor) else b).expand_as(made))


def _in_place(func, args, kwargs):
    if not _masks_match(args[0], args[1] if len(args) > 1 else None):
        raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")
    func(*_data(args), **kwargs)
    return args[0]


def _reduce(name, input, *args, dim=None, keepdim=False, dtype=None, **kwargs):
    """A reduction of all elements or along dimensions; a result is there where any element is."""
    from .. import _ops

    order = (args[0] if args else kwargs.pop("p", kwargs.pop("ord", 2)),) if name == "norm" else ()
    args = args[1:] if name == "norm" else args
    dim = args[0] if args else dim
    keepdim = args[1] if len(args) > 1 else keepdim
    data, mask = input._masked_data, input._masked_mask
    if name == "all":
        filled = data.bool().masked_fill(~mask, True)
        made = filled.all() if dim is None else filled.all(dim, keepdim)
    else:
        order = (2.0 if order in ((None,), ("fro",)) else order[0],) if order else ()
        made = getattr(_ops, name)(input, *order, dim, keepdim=keepdim, dtype=dtype, **kwargs)
    there = mask
    for d in reversed(_ops._canonical_dim(dim, data.dim())):
        there = there.any(d, keepdim=keepdim)
    return _of(made, there)


def _where(condition, input, other):
    """Each element with its mask from one of two; a plain tensor has all of its own."""
    def parts(value):
        if isinstance(value, MaskedTensor):
            return value._masked_data, value._masked_mask
        return value, _torch.ones(condition.shape if not isinstance(value, Tensor) else value.shape, dtype=_C.bool, device=condition.device)

    (data, mask), (others, other_mask) = parts(input), parts(other)
    return _of(_torch.where(condition, data, others), _torch.where(condition, mask, other_mask))


def _softmax(name):
    def run(input, dim=None, _stacklevel=3, dtype=None):
        data, mask = input._masked_data, input._masked_mask
        made = getattr(_torch, name)(data.masked_fill(~mask, float("-inf")), dim, dtype=dtype)
        # A row without elements gives zeros.
        return _of(made.masked_fill(~mask, 0.0), mask)

    return run



def _copied(input, source, non_blocking=False):
    if not _masks_match(input, source):
        raise ValueError("args[0] mask and args[1] mask must match but do not")
    input._masked_data.copy_(_data(source))
    return input


_FUNCTIONS = {"where": _where, "softmax": _softmax("softmax"), "log_softmax": _softmax("log_softmax"), "copy_": _copied}


def _handle(func, args, kwargs):
    """The result of a function of ``torch`` with a masked argument."""
    name = name_of(func)
    if getattr(func, "__name__", "") == "__get__" and name == "grad":
        return args[0].grad
    if name in _QUESTIONS:
        return func(*_data(args), **kwargs)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **kwargs)
    if name in _REDUCTIONS:
        return _reduce(name, *args, **kwargs)
    if name in ("ones_like", "zeros_like", "empty_like", "full_like", "rand_like", "randn_like"):
        return _of(func(*_data(args), **kwargs), _mask(args[0]))
    if name in _BINARY:
        return _binary(func, args, kwargs)
    if name in _ALIKE:
        return _of(func(*_data(args), **kwargs), func(*_mask(args), **kwargs))
    if name in _UNARY:
        if any(isinstance(a, Tensor) for a in args[1:]) and name != "to":
            raise TypeError("MaskedTensor unary ops do not support additional Tensor arguments")
        return _of(func(*_data(args), **kwargs), _mask(args[0]))
    if name.endswith("_") and (name[:-1] in _UNARY or name[:-1] in _BINARY) or name in ("iadd", "isub", "imul", "itruediv", "ipow", "ifloordiv"):
        return _in_place(func, args, kwargs)
    own = vars(MaskedTensor).get(name)
    if own is not None and args and isinstance(args[0], MaskedTensor):
        return own.__get__(args[0])(*args[1:], **kwargs) if callable(own) else own.__get__(args[0])
    inner = getattr(func, "__wrapped__", None)
    if inner is not None:
        return inner(*args, **kwargs)
    raise TypeError(f"{name}: not supported for masked tensors; call .get_data() or .to_tensor(value) first")
