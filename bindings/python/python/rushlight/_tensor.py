"""Methods of ``Tensor`` that are written in Python."""

from . import _C
from .overrides import _modes

Tensor = _C.Tensor


def _method(function, name=None):
    setattr(Tensor, name or getattr(function, "__name__"), function)
    return function


def _grad_fn(self):
    node = self._grad_node
    if node is None:
        return None
    from .autograd.graph import _node_of

    found = _node_of(node)
    at = 0 if node.outputs == 1 else self._gradient_edge()[1]
    if found._outputs is None or at not in found._outputs:
        found._outputs = {**(found._outputs or {}), at: (self.shape, self.dtype, self.device)}
    return found


Tensor.grad_fn = property(_grad_fn, doc="The step that made this tensor, or None for leaves.")

Tensor.output_nr = property(lambda self: 0 if self._grad_node is None else self._gradient_edge()[1], doc="Which output of its step this tensor is.")

Tensor._grad = property(lambda self: self.grad, lambda self, value: setattr(self, "grad", value), doc="``grad``.")


@_method
def __reversed__(self):
    """The slices of the first dimension in reverse order."""
    return self if self.dim() == 0 else self.flip(0)


# Conversions.


def _converter(name, dtype):
    def convert(self, memory_format=None):
        return self.to(dtype) if memory_format is None else self.to(dtype, memory_format=memory_format)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"This tensor as ``torch.{str(dtype)[6:]}``; itself if it is one."
    setattr(Tensor, name, convert)


for _name, _dtype in dict(
    float=_C.float32, double=_C.float64, half=_C.float16, bfloat16=_C.bfloat16, long=_C.int64, int=_C.int32, short=_C.int16, char=_C.int8,
    byte=_C.uint8, bool=_C.bool,
).items():
    _converter(_name, _dtype)


@_method
def cpu(self, memory_format=None):
    """This tensor on the CPU."""
    return self.to("cpu") if memory_format is None else self.to("cpu", memory_format=memory_format)


def _mover(name):
    def move(self, device=None, non_blocking=False, memory_format=None):
        target = name if device is None else device
        if isinstance(target, int):
            target = f"{name}:{target}"
        return self.to(target, non_blocking=non_blocking, memory_format=memory_format)

    move.__name__ = move.__qualname__ = name
    move.__doc__ = "This tensor on an accelerator, or on the CPU without one."
    setattr(Tensor, name, move)


for _name in ("cuda", "xpu", "hip"):
    _mover(_name)


@_method
def record_stream(self, stream):
    """Delays reuse of this tensor's memory after it is freed until ``stream`` has done the work queued by then."""
    if stream._stream is not None:
        stream._stream.keep(self)


def _type(self, dtype=None, non_blocking=False, **kwargs):
    """The type's name, or this tensor as another type."""
    if set(kwargs) - {"async"}:
        raise TypeError(f"type() got an unexpected keyword argument '{next(iter(set(kwargs) - {'async'}))}'")
    from ._functions import _type_names

    if dtype is None:
        return _type_names(self.device.type)[self.dtype]
    if isinstance(dtype, str):
        for place in ("cpu", "cuda"):
            for known, name in _type_names(place).items():
                if name == dtype:
                    return self.to(place, known, non_blocking=non_blocking)
        raise ValueError(f"invalid type: '{dtype}'")
    if isinstance(dtype, _C.dtype):
        return self.to(dtype)
    return self.to(dtype.place, dtype.dtype, non_blocking=non_blocking)


_method(_type, "type")


@_method
def type_as(self, other):
    """This tensor with another's dtype and device."""
    return self.to(other.device, other.dtype)


@_method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A tensor with a copy of the data, of this tensor's dtype and device."""
    dtype, device = self.dtype if dtype is None else dtype, self.device if device is None else device
    return _C.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


@_method
def new(self, *args, **kwargs):
    """A tensor of this one's dtype and device: from sizes or data."""
    if "size" in kwargs:
        args = (*args, *kwargs.pop("size"))
    if len(args) == 1 and hasattr(args[0], "_bytes"):
        return Tensor(dtype=self.dtype).set_(args[0])
    if len(args) == 1 and isinstance(args[0], Tensor):
        if args[0].dtype != self.dtype:
            raise TypeError(f"expected a tensor of {self.dtype}, got {args[0].dtype}")
        return args[0].detach()
    return Tensor(*args, dtype=self.dtype, **{"device": self.device, **kwargs})


# Shapes.


def _transposed(self):
    return self.permute(tuple(range(self.dim() - 1, -1, -1)))


Tensor.const_data_ptr = Tensor.mutable_data_ptr = Tensor.data_ptr
Tensor.__rdiv__ = Tensor.__rtruediv__
Tensor.T = property(_transposed, doc="Dimensions in reverse order.")


def _conjugate_transpose(self):
    """A matrix transposed and conjugated."""
    if self.dim() not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self.dim()}-D tensor.")
    return self.transpose(0, 1).conj() if self.dim() else self.conj()


Tensor.H = property(_conjugate_transpose)


def _matrix_transpose(self):
    """The last two dimensions transposed."""
    if self.dim() == 1:
        raise RuntimeError("tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return self.transpose(-2, -1) if self.dim() else self


Tensor.mT = property(_matrix_transpose)
Tensor.mH = property(lambda self: _matrix_transpose(self).conj(), doc="The last two dimensions transposed, and conjugated.")


def _converter(dtype):
    def convert(self, memory_format=_C.preserve_format):
        return self.to(dtype, memory_format=memory_format)

    convert.__doc__ = f"The elements as {dtype}."
    return convert


for _name, _dtype in (("chalf", _C.complex32), ("cfloat", _C.complex64), ("cdouble", _C.complex128)):
    setattr(Tensor, _name, _converter(_dtype))


def _assigned(part):
    view = getattr(_C._torch, part)

    def assign(self, value):
        if not self.is_complex() and part == "imag":
            raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
        view(self).copy_(value if isinstance(value, Tensor) else _C.tensor(value))

    return assign


Tensor.real = property(lambda self: _C._torch.real(self), _assigned("real"), doc="The real parts, a view.")
Tensor.imag = property(lambda self: _C._torch.imag(self), _assigned("imag"), doc="The imaginary parts, a view.")


def _inplace_view(name):
    view = getattr(Tensor, name)

    def change(self, *args, **kwargs):
        if _C._has_torch_function((self,)):
            from .overrides import handle_torch_function

            return handle_torch_function(change, (self,), self, *args, **kwargs)
        _C._check_leaf_change(self, name + "_")
        # A change in place: gradients that need the tensor as it was are refused.
        return _C._count_change(_C._become(self, view(self, *args, **kwargs)))

    change.__name__ = change.__qualname__ = name + "_"
    change.__doc__ = f"``{name}`` of this very tensor."
    setattr(Tensor, name + "_", change)


for _name in ("squeeze", "unsqueeze", "transpose", "swapaxes", "swapdims", "t"):
    _inplace_view(_name)


@_method
def resize_(self, *sizes, memory_format=None):
    """Resizes in place; keeps the elements that fit, in row-major order."""
    from . import empty

    if memory_format not in (None, _C.contiguous_format, _C.preserve_format):
        made = self.detach().resize_(*sizes).contiguous(memory_format=memory_format)
        return _C._become(self, made)
    sizes = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    made = empty(tuple(sizes), dtype=self.dtype, device=self.device)
    count = min(made.numel(), self.numel())
    if count:
        made.reshape(-1)[:count].copy_(self.detach().contiguous().reshape(-1)[:count])
    return _C._become(self, made)


@_method
def resize_as_(self, other, memory_format=None):
    """Another tensor's size."""
    if memory_format is None and self.shape == other.shape:
        return self
    return self.resize_(other.shape, memory_format=memory_format)


@_method
def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Makes this object refer to the elements of another tensor or of a storage, with sizes and strides of its own."""
    if source is None:
        return _C._become(self, Tensor(dtype=self.dtype))
    if isinstance(source, Tensor) and size is None:
        if source.dtype != self.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
        return _C._become(self, source.detach())
    from .storage import UntypedStorage

    known = getattr(source, "dtype", None)
    if known is not None and known != self.dtype and not isinstance(source, Tensor):
        raise RuntimeError(f"Expected a Storage of type {self.dtype} or an UntypedStorage, but got type {known} for argument 1 'storage'")
    storage = source.untyped_storage() if isinstance(source, Tensor) else getattr(source, "_untyped_storage", source)
    if not isinstance(storage, UntypedStorage):
        raise TypeError(f"set_(): argument 'source' must be Tensor or a storage, not {type(source).__name__}")
    size = (storage.nbytes() // self.dtype.itemsize,) if size is None else (size,) if isinstance(size, int) else tuple(size)
    if not stride:
        stride, step = [], 1
        for n in reversed(size):
            stride.insert(0, step)
            step *= n
    return _C._become(self, _C._over_storage(storage._bytes, self.dtype, storage_offset, list(size), list(stride)))


@_method
def is_same_size(self, other):
    """Whether the sizes are equal."""
    return self.shape == other.shape


@_method
def is_set_to(self, tensor):
    """Whether both have the same memory, sizes and strides."""
    return self.data_ptr() == tensor.data_ptr() and self.shape == tensor.shape and self.stride() == tensor.stride()


def _split(self, split_size, dim=0):
    return _split_row(self, split_size, dim)


_split_row = Tensor.split
_split.__name__ = "split"
_split.__doc__ = _split_row.__doc__
Tensor.split = _split


def _put_in_batch(*args):
    """``index_put`` inside of ``vmap``, or None."""
    if not _modes.stack:
        return None
    from ._batch import _indices

    return _indices.put_at_any_level(*args)


@_method
def index_put_(self, indices, values, accumulate=False):
    """Writes or adds values at indices."""
    found = _put_in_batch(self, indices, values, accumulate, True)
    return found if found is not None else _C._index_put(self, tuple(indices), values, accumulate, True)


@_method
def index_put(self, indices, values, accumulate=False):
    """A copy with values written or added at indices."""
    found = _put_in_batch(self, indices, values, accumulate, False)
    return found if found is not None else _C._index_put(self, tuple(indices), values, accumulate, False)


@_method
def put_(self, index, source, accumulate=False):
    """Writes elements at row-major positions, in place."""
    _C._check_leaf_change(self, "put_")
    return self.copy_(self.put(index, source, accumulate))


@_method
def apply_(self, callable):
    """Applies a Python function to every element, in place. Slow."""
    values = [callable(v) for v in self.detach().reshape(-1).tolist()]
    return self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))


@_method
def map_(self, tensor, callable):
    """Applies a Python function to pairs of elements, in place. Slow."""
    other = tensor.expand(self.shape).reshape(-1).tolist()
    values = [callable(a, b) for a, b in zip(self.detach().reshape(-1).tolist(), other)]
    return self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))


# Sharing, copying and pickling.


@_method
def share_memory_(self):
    """Moves the elements to memory that other processes share: those forked from now on, spawned ones and those that get the tensor through a queue."""
    from ._sharing import move

    move(self)
    return self


@_method
def is_shared(self):
    """Whether the elements are in shared memory."""
    import sys

    sharing = sys.modules.get(__name__.rpartition(".")[0] + "._sharing")
    return self.device.type != "cpu" or (sharing is not None and sharing.region_of(self) is not None)


_plain_repr = Tensor.__repr__


@_method
def __repr__(self, *, tensor_contents=None):
    """The elements as text. A subclass gives the text of its own elements as ``tensor_contents``."""
    if tensor_contents is None:
        return _plain_repr(self)
    end = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ", requires_grad=True" if self.requires_grad else ""
    return f"{type(self).__name__}({tensor_contents}{end})"


@_method
def storage_type(self):
    """The class of this tensor's ``storage()``."""
    return type(self.storage())


@_method
def untyped_storage(self):
    """This tensor's memory."""
    from .storage import UntypedStorage

    return UntypedStorage._of(self)


@_method
def storage(self):
    """This tensor's memory, with its dtype."""
    from .storage import TypedStorage

    return TypedStorage._of(self)


@_method
def __copy__(self):
    if self.__class__ is Tensor:
        copied = self.detach().requires_grad_(self.requires_grad)
    else:
        copied = self.__class__._make_subclass(self, self.requires_grad)
    copied.__dict__.update(self.__dict__)
    return copied


def _rebuild(cls, data, dtype, shape, requires_grad, attributes, device="cpu"):
    """Rebuilds a tensor from the result of ``__reduce_ex__``."""
    tensor = _C._from_bytes(data, dtype, shape).to(device)
    tensor = tensor.requires_grad_(requires_grad) if cls is Tensor else cls._make_subclass(tensor, requires_grad)
    tensor.__dict__.update(attributes)
    return tensor


def _rebuild_from_type_v2(func, new_type, args, state):
    """Rebuilds a tensor with the attributes that were set on it: the name that files of ``torch.save`` have."""
    made = func(*args)
    made = made if type(made) is new_type else made.as_subclass(new_type)
    vars(made).update((state[0] if isinstance(state, tuple) else state) or {})
    return made


@_method
def __reduce_ex__(self, protocol):
    # The graph stays behind: a computed tensor comes back as a leaf that requires gradients.
    return _rebuild, (self.__class__, _C._to_bytes(self), self.dtype, tuple(self.shape), self.requires_grad, self.__dict__, str(self.device))


@_method
def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """This tensor as a DLPack capsule, for other libraries to share its memory. On an accelerator ``stream`` is the consumer's, as the protocol has it."""
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
        kind, index = map(int, dl_device)
        if copy is False or kind not in (1, 2):
            raise BufferError(f"__dlpack__: the tensor is on {self.device}, and dl_device={(kind, index)} needs a copy that this call does not make; call .to(device) first")
        return self.to("cpu" if kind == 1 else f"cuda:{index}").__dlpack__(stream=stream if kind == 2 else None, max_version=max_version)
    return _C._to_dlpack(self.clone() if copy else self, max_version, stream)


@_method
def __dlpack_device__(self):
    return (1, 0) if self.is_cpu else (2, self.device.index)


Tensor.is_nested = property(lambda self: False, doc="Whether this is a batch of tensors of different sizes.")


@_method
def to_padded_tensor(self, padding, output_size=None):
    """Of nested tensors: the components in one tensor."""
    from .nested import to_padded_tensor

    return to_padded_tensor(self, padding, output_size)


@_method
def histogram(self, bins, *, range=None, weight=None, density=False):
    from ._functions import histogram

    return histogram(self, bins, range=range, weight=weight, density=density)


@_method
def nonzero_static(self, *, size, fill_value=-1):
    """The first ``size`` rows of ``nonzero``, padded."""
    found = self.nonzero()[:size]
    missing = size - found.shape[0]
    if missing <= 0:
        return found
    from . import cat, full

    return cat([found, full((missing, self.dim()), fill_value, dtype=_C.int64, device=self.device)])


@_method
def module_load(self, other, assign=False):
    """The tensor that ``load_state_dict`` stores in this one's place."""
    return other if assign else self.copy_(other).detach()


# Subclasses.


def _torch_function(cls, func, types, args=(), kwargs=None):
    from .overrides import _torch_function

    return _torch_function(cls, func, types, args, kwargs)


_torch_function.__name__, _torch_function.__doc__ = "__torch_function__", "Computes, and gives the results of a subclass its class."
Tensor.__torch_function__ = classmethod(_torch_function)


def _of_class(name):
    """``Tensor.name(cls, …)``, as PyTorch has it, and ``cls.name(…)``."""
    compiled = vars(Tensor)[name]

    def make(cls, *args, **kwargs):
        cls, args = (args[0], args[1:]) if args and isinstance(args[0], type) else (cls, args)
        return compiled.__get__(None, cls)(*args, **kwargs)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = compiled.__doc__
    make.compiled = compiled
    setattr(Tensor, name, classmethod(make))


_of_class("_make_subclass")
_of_class("_make_wrapper_subclass")


def _torch_dispatch(cls, func, types, args=(), kwargs=None):
    from ._dispatch import _disabled_torch_dispatch_impl

    return _disabled_torch_dispatch_impl(func, types, args, kwargs)


_torch_dispatch.__name__, _torch_dispatch.__doc__ = "__torch_dispatch__", "Computes: a class of its own may handle ops instead."
#: A static function of the class itself, so that it is the same object for every subclass that does not override it.
Tensor.__torch_dispatch__ = staticmethod(_torch_dispatch.__get__(Tensor))


@_method
def as_subclass(self, cls):
    """This tensor as an instance of a subclass, with the same elements and the same node of the graph."""
    return _C._as_subclass(self, cls)


# Functions of ``torch.special`` as methods; the package is imported when one of them is first called.


def _special_method(name, function, in_place):
    def call(self, *args):
        from . import special

        made = getattr(special, function)(self, *args)
        return self.copy_(made) if in_place else made

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``torch.special.{function}``{' in place' if in_place else ''}."
    setattr(Tensor, name, call)


for _name, _function in dict(igamma="gammainc", igammac="gammaincc").items():
    _special_method(_name, _function, False)
    _special_method(_name + "_", _function, True)


@_method
def float_power_(self, exponent):
    """``float_power`` in place: for tensors of double precision."""
    if self.dtype != _C.float64:
        raise RuntimeError(f"the base given to float_power_ has dtype {str(self.dtype)[6:]} but the operation's result requires dtype double")
    return self.pow_(exponent)


@_method
def polygamma(self, n):
    """The derivative of ``digamma`` of order n."""
    return _C._torch.polygamma(n, self)


@_method
def polygamma_(self, n):
    """``polygamma`` in place."""
    return self.copy_(_C._torch.polygamma(n, self))


@_method
def lu(self, pivot=True, get_infos=False):
    """``torch.lu``."""
    from ._native import lu

    return lu(self, pivot, get_infos)


@_method
def orgqr(self, input2):
    """``torch.orgqr``."""
    from ._functions import orgqr

    return orgqr(self, input2)


@_method
def ormqr(self, input2, input3, left=True, transpose=False):
    """``torch.ormqr``."""
    from ._functions import ormqr

    return ormqr(self, input2, input3, left, transpose)


@_method
def map2_(self, x, y, callable):
    """Each element becomes the function's value of it and of those of two other tensors."""
    x, y = x.expand_as(self).reshape(-1).tolist(), y.expand_as(self).reshape(-1).tolist()
    made = [callable(*values) for values in zip(self.detach().reshape(-1).tolist(), x, y)]
    return self.copy_(_C.tensor(made, dtype=self.dtype, device=self.device).reshape(self.shape))


@_method
def unsafe_chunk(self, chunks, dim=0):
    """``chunk``."""
    return self.chunk(chunks, dim)


@_method
def unsafe_split(self, split_size, dim=0):
    """``split``."""
    return self.split(split_size, dim)


@_method
def unsafe_split_with_sizes(self, split_sizes, dim=0):
    """``split_with_sizes``."""
    return self.split_with_sizes(split_sizes, dim)


for _name in ("is_conj", "is_neg"):
    _method(lambda self: False, _name)


@_method
def _lazy_clone(self):
    """A copy. It is made at once; PyTorch makes it when one of the two is written."""
    return self.clone()


@_method
def is_distributed(self):
    """Whether this is a tensor of the old distributed package: none is."""
    return False


_backward = Tensor.backward


@_method
def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of this tensor to the ``.grad`` of the leaves it depends on."""
    if _modes.stack:
        from . import autograd

        if autograd._is_dispatched():
            return autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
    return _backward(self, gradient, retain_graph, create_graph, inputs)
