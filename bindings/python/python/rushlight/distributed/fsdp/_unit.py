"""The parameters of a module that are gathered and freed together. Buffers, collectives and gradients are compiled (``crates/dist/src/shard``)."""

from ... import _C
from ...utils._pytree import tree_map
from ..device_mesh import DeviceMesh
from ..tensor._api import DTensor
from ..tensor.placement_types import Replicate, Shard, _StridedShard

Tensor = _C.Tensor
_plain_data = Tensor.data

#: Units whose modules run a forward pass, the innermost last.
_active = []


def _as_parameter(local, requires_grad, mesh, placements, shape):
    made = DTensor._of(local.detach().requires_grad_(requires_grad), mesh, placements, shape)
    made._is_param = True
    return made


def _become_shard(param, made):
    """Has a parameter's own object be its shard, so that optimizers which hold it go on. Returns ``made`` if its class does not allow that."""
    try:
        param.__class__ = DTensor
    except TypeError:
        return made
    _plain_data.__set__(param, made._local_tensor)
    param.grad = None
    param.__dict__.update(made.__dict__)
    return param


class _Slot:
    """A parameter: the modules that hold it, and its layout under tensor parallelism."""

    def __init__(self, owners, param, dim=0, is_shard=False):
        self.owners, self.dim, self.is_shard = owners, dim, is_shard
        self.outer = (param._mesh, param._placements, param._shape) if isinstance(param, DTensor) and not is_shard else None

    def get(self):
        module, name = self.owners[0]
        return module._parameters[name]

    def put(self, tensor):
        for module, name in self.owners:
            module._parameters[name] = tensor

    def whole(self, tensor):
        return tensor if self.outer is None else DTensor._of(tensor, *self.outer)


def _shard_dim(param, placement_of):
    """The dimension along which a parameter is split: what the user's function says, or the first."""
    placement = placement_of(param) if placement_of is not None else None
    if placement is None:
        return 0
    if type(placement) is not Shard:
        raise ValueError(f"fully_shard: shard_placement_fn must return a Shard or None, got {placement!r}")
    dim = placement.dim + param.dim() if placement.dim < 0 else placement.dim
    if not 0 <= dim < param.dim():
        raise ValueError(f"fully_shard: {placement} of a parameter of shape {tuple(param.shape)}")
    return dim


def _joined(mesh, inner):
    """The mesh of the dimensions of two meshes, which are parts of one mesh or of two that have the same ranks in order."""
    root, names = getattr(mesh, "_root", None), (mesh.mesh_dim_names or ()) + (inner.mesh_dim_names or ())
    if not mesh.mesh_dim_names or not inner.mesh_dim_names or len(set(names)) != len(names):
        raise ValueError("fully_shard of tensor-parallel parameters: both meshes must be parts of one mesh, with different names")
    if root is not None and getattr(inner, "_root", None) is root:
        return root[names]
    known = mesh.__dict__.setdefault("_joined", {})
    if id(inner) not in known:
        # A step along a dimension is the same number of ranks everywhere, so the steps from this rank add up.
        ranks = mesh.mesh.reshape(*mesh.shape, *[1] * inner.ndim) + inner.mesh - mesh.get_rank()
        for part in (mesh, inner):
            for line in (part.mesh.transpose(d, -1).reshape(-1, part.shape[d]) for d in range(part.ndim)):
                steps = (line[:, 1:] - line[:, :-1]).flatten().tolist()
                if len(set(steps)) > 1:
                    raise ValueError(f"fully_shard of tensor-parallel parameters: {mesh} and {inner} are not parts of one mesh")
        known[id(inner)] = DeviceMesh(mesh.device_type, ranks, mesh_dim_names=names, _groups=[*mesh._groups, *inner._groups])
    return known[id(inner)]


def _find(modules, is_unit, ignored):
    """Parameters of modules without those of units within them: pairs of the owners of each and the parameter."""
    found, seen = {}, set()

    def walk(part):
        if id(part) in seen:
            return
        seen.add(id(part))
        for name, param in part._parameters.items():
            if param is not None and id(param) not in ignored:
                found.setdefault(id(param), ([], param))[0].append((part, name))
        for child in part._modules.values():
            if child is not None and not is_unit(child):
                walk(child)

    for module in modules:
        walk(module)
    return list(found.values())


class Unit:
    """The sharded parameters of a module."""

    def __init__(
        self, modules, mesh, is_unit, *, stage, param_dtype=None, reduce_dtype=None, output_dtype=None, cast_inputs=True, offload=False, ignored=(), placement_of=None,
        keep_objects=False,
    ):
        if mesh.ndim not in (1, 2):
            raise ValueError(f"fully_shard: expected a 1D or 2D mesh, got {mesh}")
        self.mesh, self.modules, self.offload = mesh, modules, offload
        self.param_dtype, self.output_dtype, self.cast_inputs = param_dtype, output_dtype, cast_inputs
        self.stage, self.is_root, self.order = stage, None, []
        self.fixed_forward = self.fixed_backward = False
        self.is_whole = self.depth = 0
        #: Whether all parameters are whole by other means (``deepspeed.zero.GatheredParameters``).
        self.held = False
        #: Gathers with gradients since the last update (``UpdateInBackward``).
        self.uses = 0
        #: Waits for the updates of a backward pass (``UpdateInBackward``): a forward pass needs their results.
        self.settle = None
        #: Modules of this unit that have not run since its parameters were gathered.
        self.left = set()
        listed = _find(modules, is_unit, {id(p) for p in ignored})
        params = [param for _, param in listed]
        dims = [_shard_dim(param, placement_of) for param in params]
        # Parameters that lie as they should are taken as they are.
        ready = [isinstance(p, DTensor) and p._mesh == mesh and p._placements == (Shard(dim),) for p, dim in zip(params, dims)]
        self.slots = [_Slot(owners, param, dim, is_shard) for (owners, param), dim, is_shard in zip(listed, dims, ready)]
        self.group = None
        if not params:
            return
        dtypes = {p.dtype for p in params}
        if len(dtypes) != 1:
            raise ValueError(f"fully_shard: FSDP expects uniform original parameter dtype but got {sorted(map(str, dtypes))}; shard the modules of each dtype apart")
        scalar = next((owners for owners, p in listed if p.dim() == 0), None)
        if scalar is not None:
            raise ValueError(f"fully_shard doesn't support scalar parameters. Change {scalar[0][1]} to a 1D tensor with numel equal to 1.")
        locals_ = [p._local_tensor if isinstance(p, DTensor) else p for p in params]
        ranks, replicas = mesh.get_group(mesh.ndim - 1), mesh.get_group(0) if mesh.ndim == 2 else None
        self.group = _C._ShardGroup(
            [list(p.shape if slot.is_shard else t.shape) for slot, p, t in zip(self.slots, params, locals_)], [slot.dim for slot in self.slots], params[0].dtype, ranks._group, None if replicas is None else replicas._group, param_dtype, reduce_dtype
        )
        self.group.set_stage(stage)
        for i, (slot, param, local) in enumerate(zip(self.slots, params, locals_)):
            shard = local.detach() if slot.is_shard else self.group.cut(i, local.detach())
            if offload and shard.device.type != "meta":
                shard = shard.cpu()
            if slot.is_shard:
                _plain_data.__set__(param, shard)
                made = param
            else:
                where, placements = self._place(slot)
                made = _as_parameter(shard, param.requires_grad, where, placements, param.shape)
                made = _become_shard(param, made) if keep_objects and not isinstance(param, DTensor) else made
            made._unit = self
            slot.put(made)

    def _place(self, slot):
        """The mesh and the placements of a shard."""
        own = (Shard(slot.dim),) if self.mesh.ndim == 1 else (Replicate(), Shard(slot.dim))
        if slot.outer is None:
            return self.mesh, own
        inner, placements, _ = slot.outer
        factor = 1
        for i, p in enumerate(placements):
            factor *= inner.size(i) if p.is_shard(slot.dim) else 1
        if factor > 1:
            own = (*own[:-1], _StridedShard(slot.dim, split_factor=factor))
        return _joined(self.mesh, inner), own + placements

    def keep_among(self, size):
        """Has groups of ``size`` neighbouring ranks keep the parameters between the passes. Every rank of the world must call this."""
        from .. import _group

        if self.group is None:
            return
        root = getattr(self.mesh, "_root", self.mesh)
        dim = self.mesh.ndim - 1 if root is self.mesh else root._dim(self.mesh.mesh_dim_names[-1])
        made = root.__dict__.setdefault("_neighbours", {})
        if (dim, size) not in made:
            rest = [d for d in range(root.ndim) if d != dim]
            lines = root.mesh.permute([*rest, dim]).reshape(-1, size).tolist()
            groups = [_group.new_group(line) for line in lines]
            made[dim, size] = next(g for g, line in zip(groups, lines) if _group.get_rank() in line)
        self.group.keep_among(made[dim, size]._group)

    # Gathering.

    def shards(self):
        """The sharded parameters, as they are in the modules."""
        return [slot.get() for slot in self.slots] if not self.is_whole else self._kept

    def unshard(self):
        """Puts the whole parameters in the modules."""
        if self.group is None or self.is_whole or self.held:
            return
        self._kept = shards = self.shards()
        for slot, shard in zip(self.slots, shards):
            if not isinstance(shard, DTensor):
                module, name = slot.owners[0]
                raise RuntimeError(f"fully_shard: {type(module).__name__}.{name} was replaced by a plain tensor; assign a DTensor with the placements of the old one")
        self._compute_device(shards)
        self.is_whole = True
        self.uses += _C.is_grad_enabled()
        for slot, tensor in zip(self.slots, self.group.unshard(shards)):
            slot.put(slot.whole(tensor))

    def _compute_device(self, shards):
        if not self.offload:
            self.group.set_device_of(shards[0])
        elif self.mesh.device_type != "cpu":
            self.group.set_device_of(_C._torch.empty(0, device=self.mesh.device_type))

    def put_back(self):
        """Puts the shards in the modules. The memory stays until the group is resharded."""
        if self.is_whole:
            self.is_whole = False
            for slot, shard in zip(self.slots, self._kept):
                slot.put(shard)
            self._kept = None

    def reshard(self):
        """Frees the whole parameters."""
        self.put_back()
        if self.group is not None:
            self.group.reshard()

    # Forward passes.

    def run(self, forward, args, kwargs, module=None):
        """A forward pass with the whole parameters, of one of the modules. They are freed when all modules have run."""
        if self.is_root is None:
            self._become_root()
        if self.held and _C.is_grad_enabled():
            raise RuntimeError("deepspeed.zero.GatheredParameters: a forward pass within it needs torch.no_grad(); gradients are those of shards")
        if self.cast_inputs and self.param_dtype is not None:
            cast = lambda t: t.to(self.param_dtype) if isinstance(t, Tensor) and t.is_floating_point() else t
            args, kwargs = tree_map(cast, args), tree_map(cast, kwargs)
        if not _active and self.settle is not None:
            self.settle()
        if not _active or self.is_root:
            self.order.clear()
        root = _active[0] if _active else self
        if not self.depth:
            if id(module) not in self.left:
                if self.left:
                    # Some modules did not run in the last pass.
                    self.put_back()
                self.left = {id(m) for m in self.modules}
                root.order.append(self)
            self.left.discard(id(module))
            if module is None:
                self.left.clear()
        self.unshard()
        _active.append(self)
        self.depth += 1
        hooked = self.group is not None and _C.is_grad_enabled()
        if hooked:
            self.group.push_places()
        try:
            output = forward(*args, **kwargs)
        finally:
            if hooked:
                _C._pop_saved_tensors_hooks()
            _active.pop()
            self.depth -= 1
            if self.group is not None and not self.depth and not self.left:
                self.put_back()
                self.group.after_forward()
        if root is self:
            self._set_prefetch()
        if self.output_dtype is not None:
            output = tree_map(lambda t: t.to(self.output_dtype) if isinstance(t, Tensor) and t.is_floating_point() else t, output)
        return output

    def _become_root(self):
        """The first unit that runs is the root: it keeps its parameters between the passes, unless told otherwise."""
        self.is_root = not _active
        if self.is_root:
            for module in self.modules:
                for part in module.modules():
                    unit = part.__dict__.get("_fsdp_unit")
                    if unit is not None and unit is not self and unit.is_root is None:
                        unit.is_root = False
            if self.stage is not None and self.group is not None and getattr(self, "default_stage", False):
                self.stage = 2
                self.group.set_stage(2)

    def _set_prefetch(self):
        """The order of this forward pass is the order in which the next one gathers ahead."""
        order = [unit for unit in self.order if unit.group is not None]
        if order == self.__dict__.get("_known_order"):
            return
        self._known_order = order
        for unit, after in zip(order, order[1:]):
            if not unit.fixed_forward:
                unit.group.set_forward_prefetch([after.group])
            if not after.fixed_backward:
                after.group.set_backward_prefetch([unit.group])


def gathered_again(function):
    """For recomputation in a backward pass: runs ``function`` with the whole parameters of the units that are active now."""
    units = list(_active)
    if not units:
        return function

    def run(*args, **kwargs):
        fresh = [unit for unit in units if unit.group is not None and not unit.is_whole]
        before = _C._set_grad_enabled(True)
        try:
            for unit in fresh:
                unit.unshard()
        finally:
            _C._set_grad_enabled(before)
        _active.extend(fresh)
        try:
            return function(*args, **kwargs)
        finally:
            for unit in fresh:
                _active.remove(unit)
                unit.put_back()

    return run


def default_mesh(call):
    """All ranks in one dimension."""
    from .. import _group
    from ..device_mesh import init_device_mesh

    if not _group.is_initialized():
        raise RuntimeError(f"{call}: Default process group has not been initialized, please make sure to call init_process_group.")
    kind = _C._torch.empty(0).device.type
    return init_device_mesh(kind, (_group.get_world_size(),))


__all__ = ["DeviceMesh", "Unit", "default_mesh", "gathered_again"]
