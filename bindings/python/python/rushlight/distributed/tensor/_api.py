"""``DTensor``: a tensor that the ranks of a mesh hold together.

The object is this rank's local part, as a subclass of ``Tensor``: autograd and optimizers work on it directly. Its size, its ops and its gradient are
those of the whole. Rules and changes of placement are compiled (``crates/dist/src/dtensor``).
"""

from ... import _C
from ..device_mesh import DeviceMesh, _mesh_resources
from .placement_types import DTensorSpec, Partial, Replicate, Shard, TensorMeta, _codes, _normal

__all__ = ["DTensor", "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"]

Tensor = _C.Tensor
_plain_grad = Tensor.grad
_plain_data = Tensor.data


def _strides(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


class DTensor(Tensor):
    """A tensor placed on a ``DeviceMesh``. Make one with ``distribute_tensor`` or ``DTensor.from_local``."""

    _is_dtensor = True

    def __new__(cls, *args, **kwargs):
        raise TypeError("DTensor: use distribute_tensor or DTensor.from_local")

    @staticmethod
    def _of(local, mesh, placements, shape):
        made = _C._as_subclass(local, DTensor)
        made._mesh, made._placements, made._shape = mesh, tuple(placements), tuple(shape)
        return made

    def _like(self, local):
        """Another local part that lies as this one does."""
        return DTensor._of(local, self._mesh, self._placements, self._shape)

    @property
    def _local_tensor(self):
        return _C._as_subclass(self, Tensor)

    # The whole.

    @property
    def shape(self):
        from ..._size import Size

        return Size(self._shape)

    def size(self, dim=None):
        """The global size."""
        return self.shape if dim is None else self._shape[dim]

    def dim(self):
        """Number of dimensions."""
        return len(self._shape)

    ndimension = dim
    ndim = property(dim)

    def numel(self):
        """Number of elements of the whole."""
        count = 1
        for n in self._shape:
            count *= n
        return count

    nelement = numel

    def stride(self, dim=None):
        """The strides of the whole, which is contiguous."""
        return _strides(self._shape) if dim is None else _strides(self._shape)[dim]

    def __len__(self):
        if not self._shape:
            raise TypeError("len() of a 0-d tensor")
        return self._shape[0]

    device_mesh = property(lambda self: self._mesh, doc="The mesh.")
    placements = property(lambda self: self._placements, doc="A placement for each dimension of the mesh.")

    @property
    def _spec(self):
        return DTensorSpec(self._mesh, self._placements, TensorMeta(self.shape, _strides(self._shape), self.dtype))

    # Local parts.

    @staticmethod
    def from_local(local_tensor, device_mesh=None, placements=None, *, run_check=False, shape=None, stride=None, grad_placements=None):
        """A tensor of local parts, of equal size along sharded dimensions unless ``shape`` gives the global one. Recorded."""
        mesh = device_mesh or _mesh_resources.get_current_mesh()
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value.")
        placements = _normal(placements, mesh, local_tensor.dim(), "DTensor.from_local")
        if shape is None:
            sizes = list(local_tensor.shape)
            for i, p in enumerate(placements):
                if isinstance(p, Shard):
                    sizes[p.dim] *= mesh.size(i)
            shape = sizes
        if run_check:
            for i, p in enumerate(placements):
                if p.is_replicate():
                    from .. import broadcast

                    broadcast(local_tensor.detach(), group=mesh.get_group(i), group_src=0)
        if grad_placements is not None:
            grads = _normal(grad_placements, mesh, len(shape), "DTensor.from_local")
            own = [Replicate() if p.is_partial() else p for p in placements]
            local_tensor = _C._regrade(local_tensor, mesh._core, list(shape), _codes(own), _codes(grads))
        elif local_tensor.requires_grad or not local_tensor.is_leaf:
            local_tensor = local_tensor.view_as(local_tensor)
        return DTensor._of(local_tensor, mesh, placements, shape)

    def to_local(self, *, grad_placements=None):
        """This rank's part, with its history. ``grad_placements``: how the gradient of the part lies."""
        local = self._local_tensor
        own = [Replicate() if p.is_partial() else p for p in self._placements]
        if grad_placements is not None:
            given = _normal(grad_placements, self._mesh, self.dim(), "DTensor.to_local")
            local = _C._regrade(local, self._mesh._core, list(self._shape), _codes(given), _codes(own))
        return local

    def redistribute(self, device_mesh=None, placements=None, *, async_op=False, forward_dtype=None, backward_dtype=None):
        """The same values, placed differently. Recorded."""
        if device_mesh is not None and device_mesh != self._mesh:
            raise NotImplementedError("DTensor.redistribute: another mesh than the tensor's is not supported; use full_tensor and distribute_tensor")
        if forward_dtype is not None or backward_dtype is not None:
            raise NotImplementedError("DTensor.redistribute: forward_dtype and backward_dtype are not supported; convert with .to before")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        placements = _normal(placements, self._mesh, self.dim(), "DTensor.redistribute")
        # A result is ready when it is returned, also with async_op.
        local = _C._redistribute(self._local_tensor, self._mesh._core, list(self._shape), _codes(self._placements), _codes(placements))
        return DTensor._of(local, self._mesh, placements, self._shape)

    def full_tensor(self, *, grad_placements=None):
        """The whole tensor, on every rank. Recorded."""
        return self.redistribute(placements=[Replicate()] * self._mesh.ndim).to_local(grad_placements=grad_placements)

    # Autograd.

    @property
    def grad(self):
        local = _plain_grad.__get__(self)
        if local is None:
            return None
        known = self.__dict__.get("_grad_object")
        if known is None or known[0] is not local:
            placements = tuple(Replicate() if p.is_partial() else p for p in self._placements)
            known = self._grad_object = (local, DTensor._of(local, self._mesh, placements, self._shape))
        return known[1]

    @grad.setter
    def grad(self, value):
        if isinstance(value, DTensor):
            value = value.redistribute(placements=self._placements)._local_tensor.detach()
        _plain_grad.__set__(self, value)

    @grad.deleter
    def grad(self):
        _plain_grad.__set__(self, None)

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value):
        if isinstance(value, DTensor):
            self._mesh, self._placements, self._shape = value._mesh, value._placements, value._shape
            value = value._local_tensor
        _plain_data.__set__(self, value)

    def detach(self):
        """The same values without history."""
        return self._like(self._local_tensor.detach())

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """Gradients of the whole tensor, which must be a scalar unless ``gradient`` is given."""
        whole = [Replicate() if p.is_partial() else p for p in self._placements]
        if isinstance(gradient, DTensor):
            gradient = gradient.redistribute(placements=whole)._local_tensor
        self.redistribute(placements=whole)._local_tensor.backward(gradient, retain_graph, create_graph, inputs)

    def item(self):
        """The value of a tensor with one element."""
        return self.full_tensor().detach().item()

    def tolist(self):
        """The whole tensor as nested lists."""
        return self.full_tensor().detach().tolist()

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __bool__(self):
        return bool(self.item())

    def __repr__(self, *, tensor_contents=None):
        return f"DTensor(local_tensor={self._local_tensor.detach()}, device_mesh={self._mesh}, placements={self._placements})"

    def __hash__(self):
        return id(self)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            made = self._like(self._local_tensor.detach().clone().requires_grad_(self.requires_grad))
            if getattr(self, "_is_param", False):
                made._is_param = True
            memo[id(self)] = made
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        raise NotImplementedError("DTensor: pickling one writes a part; save full_tensor(), or use torch.distributed.checkpoint")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from ._ops import dispatch

        return dispatch(func, args, kwargs or {})


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank=0):
    """The parts of a tensor that each rank has. The values of rank ``src_data_rank`` of each mesh dimension count; with None every rank's own."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if isinstance(tensor, DTensor):
        return tensor.redistribute(mesh, placements)
    placements = _normal(placements, mesh, tensor.dim(), "distribute_tensor")
    if any(p.is_partial() for p in placements):
        raise RuntimeError(f"Trying to distribute a leaf tensor to a partial placement is not supported: {placements}")
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    whole = tensor.detach()
    if src_data_rank is not None and mesh.size() > 1 and whole.device.type != "meta":
        from .. import broadcast

        whole = whole.contiguous().clone()
        for dim in range(mesh.ndim):
            broadcast(whole, group=mesh.get_group(dim), group_src=src_data_rank)
    local = whole
    for dim, (start, size) in enumerate(_C._local_part(list(tensor.shape), mesh._core, _codes(placements))):
        local = local.narrow(dim, start, size)
    if local is not whole or whole is not tensor:
        local = local.contiguous()
    if local.data_ptr() == tensor.data_ptr() or local.numel() < tensor.numel():
        local = local.clone()
    made = DTensor._of(local.detach().requires_grad_(tensor.requires_grad), mesh, placements, tensor.shape)
    if type(tensor).__name__ == "Parameter" or getattr(tensor, "_is_param", False):
        made._is_param = True
    return made


def distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """Makes a module's parameters and buffers DTensors: by ``partition_fn(name, module, mesh)``, the others replicated."""
    from ...nn import Parameter

    mesh = device_mesh or _mesh_resources.get_current_mesh()
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        for key, param in part._parameters.items():
            if param is not None and not isinstance(param, DTensor):
                part.register_parameter(key, Parameter(distribute_tensor(param.detach(), mesh), param.requires_grad))
        for key, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, DTensor):
                part._buffers[key] = distribute_tensor(buffer, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda mod, inputs: input_fn(mod, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda mod, inputs, outputs: output_fn(mod, outputs, mesh))
    return module


def _factory(name):
    def make(*size, requires_grad=False, dtype=None, layout=None, device_mesh=None, placements=None):
        mesh = device_mesh or _mesh_resources.get_current_mesh()
        lead, size = ((size[1],), size[:1]) if name == "full" else ((), size)
        size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        placements = _normal(placements, mesh, len(size), name)
        whole = name in ("rand", "randn")
        local = size if whole else [n for _, n in _C._local_part(list(size), mesh._core, _codes(placements))]
        values = getattr(_C._torch, name)(local, *lead, dtype=dtype, device=None if mesh.device_type == "cpu" else mesh.device_type)
        if whole:
            return distribute_tensor(values, mesh, placements).requires_grad_(requires_grad)
        return DTensor._of(values.requires_grad_(requires_grad), mesh, placements, size)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"``torch.{name}`` as a DTensor."
    return make


empty, full, ones, rand, randn, zeros = map(_factory, ("empty", "full", "ones", "rand", "randn", "zeros"))
