"""``torch.distributed.device_mesh``: ranks laid out as a grid, with a group for each of its lines."""

from __future__ import annotations

from .. import _C
from . import _group

__all__ = ["DeviceMesh", "init_device_mesh"]


class _MeshStack:
    """Meshes entered by ``with``; libraries query the current one."""

    def __init__(self):
        self.mesh_stack = []

    def get_current_mesh(self):
        if not self.mesh_stack:
            raise RuntimeError("No device mesh is currently active!")
        return self.mesh_stack[-1]


_mesh_resources = _MeshStack()


class DeviceMesh:
    """A grid of ranks. ``get_group(dim)`` is the group of the ranks that differ from this one in that dimension only."""

    def __init__(self, device_type, mesh, *, mesh_dim_names=None, _groups=None):
        self.device_type = str(device_type)
        self.mesh = mesh.detach().to(_C.int64).cpu() if isinstance(mesh, _C.Tensor) else _C.tensor(mesh, dtype=_C.int64)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self.mesh_dim_names and len(self.mesh_dim_names) != self.mesh.dim():
            raise RuntimeError(f"DeviceMesh: {len(self.mesh_dim_names)} names for {self.mesh.dim()} dimensions")
        if not _group.is_initialized():
            _group.init_process_group()
        ranks = self.mesh.flatten().tolist()
        if len(set(ranks)) != len(ranks) or any(not 0 <= r < _group.get_world_size() for r in ranks):
            raise RuntimeError(f"DeviceMesh: the ranks {ranks} are not different ranks of a world of {_group.get_world_size()}")
        own = (self.mesh == _group.get_rank()).nonzero().tolist()
        self._coordinate = own[0] if own else None
        self._groups = self._make_groups() if _groups is None else _groups

    def _make_groups(self):
        """A group for each line of each dimension. All ranks make all of them, in the same order."""
        rank, found = _group.get_rank(), []
        for dim in range(self.mesh.dim()):
            lines = self.mesh.transpose(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist()
            own = None
            for line in lines:
                whole = len(line) == _group.get_world_size() and line == sorted(line)
                made = _group._get_default_group() if whole else _group.new_group(line)
                own = made if rank in line else own
            found.append(own)
        return found

    @property
    def _core(self):
        """The mesh of the compiled part."""
        if "_compiled" not in self.__dict__:
            groups = [] if self._coordinate is None else [group._group for group in self._groups]
            names = list(self.mesh_dim_names or ())
            self._compiled = _C._Mesh(self.mesh.flatten().tolist(), list(self.mesh.shape), names, _group.get_rank(), groups)
        return self._compiled

    def _flatten(self, mesh_dim_name=None):
        """The mesh of all its ranks as one dimension. Every rank of the world must call this."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ("flat",))
        root = getattr(self, "_root", self)
        known = root.__dict__.setdefault("_flattened", {})
        if name not in known:
            if self.ndim == 1:
                known[name] = DeviceMesh(self.device_type, self.mesh, mesh_dim_names=(name,), _groups=self._groups)
            else:
                # The ranks of all parts of the root that this mesh is one of: each part makes a group.
                dims = [root._dim(d) for d in self.mesh_dim_names] if root is not self else list(range(self.ndim))
                rest = [d for d in range(root.ndim) if d not in dims]
                rows = root.mesh.permute(rest + dims).reshape(-1, self.mesh.numel()).tolist()
                made = [_group.new_group(row) for row in rows]
                own = [g for g, row in zip(made, rows) if _group.get_rank() in row]
                known[name] = DeviceMesh(self.device_type, self.mesh.flatten(), mesh_dim_names=(name,), _groups=own)
        return known[name]

    def _unflatten(self, dim, mesh_sizes, mesh_dim_names, backend_override=None):
        """The mesh with one dimension made into several. Every rank of the world must call this. Names of backends are taken: all groups use the best engine."""
        dim, sizes, names = self._dim(dim), tuple(mesh_sizes), tuple(mesh_dim_names)
        if len(sizes) != len(names):
            raise RuntimeError(f"DeviceMesh._unflatten: {len(names)} names for {len(sizes)} dimensions")
        unknown = [name for name in backend_override or () if name not in names and name not in range(len(names))]
        if unknown:
            raise RuntimeError(f"DeviceMesh._unflatten: backend_override has {unknown[0]!r}, which is none of {names}")
        count = 1
        for size in sizes:
            count *= size
        if count != self.mesh.shape[dim]:
            raise ValueError(f"DeviceMesh._unflatten: {sizes} are {count} ranks; dimension {dim} has {self.mesh.shape[dim]}")
        whole = self.mesh.reshape(*self.mesh.shape[:dim], *sizes, *self.mesh.shape[dim + 1 :])
        if whole.numel() != _group.get_world_size():
            raise NotImplementedError("DeviceMesh._unflatten: a part of a mesh cannot be unflattened; unflatten the mesh of all ranks")
        named = self.mesh_dim_names or tuple(f"dim_{i}" for i in range(self.ndim))
        made = DeviceMesh(self.device_type, whole, mesh_dim_names=(*named[:dim], *names, *named[dim + 1 :]))
        return made

    @staticmethod
    def from_group(group, device_type, mesh=None, *, mesh_dim_names=None):
        """The mesh of an existing group, or of one group for each dimension of ``mesh``."""
        groups = list(group) if isinstance(group, (list, tuple)) else [group]
        if mesh is None:
            if len(groups) != 1:
                raise ValueError("DeviceMesh.from_group: several groups need the mesh of their ranks")
            mesh = _group.get_process_group_ranks(groups[0])
        return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=groups)

    def _dim(self, mesh_dim):
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"Invalid mesh_dim_name {mesh_dim}; the mesh has {self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim=None):
        """The group of this rank along a dimension."""
        if mesh_dim is None:
            if self.mesh.dim() != 1:
                raise RuntimeError("DeviceMesh.get_group: a mesh of several dimensions has several groups; name the dimension")
            mesh_dim = 0
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self):
        """The groups of this rank, one for each dimension."""
        return list(self._groups)

    def get_rank(self):
        """This rank in the world."""
        return _group.get_rank()

    def get_local_rank(self, mesh_dim=None):
        """This rank along a dimension."""
        return _group.get_rank(self.get_group(mesh_dim))

    def get_coordinate(self):
        """This rank's place in the grid; None if it is not in it."""
        return self._coordinate

    def size(self, mesh_dim=None):
        """Number of ranks, in all or along a dimension."""
        return self.mesh.numel() if mesh_dim is None else self.mesh.shape[self._dim(mesh_dim)]

    @property
    def ndim(self):
        return self.mesh.dim()

    @property
    def shape(self):
        return tuple(self.mesh.shape)

    def __getitem__(self, names):
        """The mesh of some dimensions, by name, through this rank."""
        names = (names,) if isinstance(names, str) else tuple(names)
        flattened = getattr(self, "_root", self).__dict__.get("_flattened", {})
        if len(names) == 1 and names[0] not in (self.mesh_dim_names or ()) and names[0] in flattened:
            return flattened[names[0]]
        dims = [self._dim(name) for name in names]
        if dims == list(range(self.mesh.dim())):
            return self
        if self._coordinate is None:
            raise RuntimeError("DeviceMesh: this rank is not in the mesh, so it has no part of it")
        index = tuple(slice(None) if d in dims else c for d, c in enumerate(self._coordinate))
        part = self.mesh[index]
        left = [d for d in range(self.mesh.dim()) if d in dims]
        part = part.permute([left.index(d) for d in dims])
        made = DeviceMesh(self.device_type, part, mesh_dim_names=names, _groups=[self._groups[d] for d in dims])
        made._root = getattr(self, "_root", self)
        return made

    def __enter__(self):
        _mesh_resources.mesh_stack.append(self)
        return self

    def __exit__(self, *exception):
        _mesh_resources.mesh_stack.pop()

    def __eq__(self, other):
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return (self.device_type, self.mesh_dim_names, self.mesh.tolist()) == (other.device_type, other.mesh_dim_names, other.mesh.tolist())

    def __hash__(self):
        return hash((self.device_type, self.mesh_dim_names, tuple(self.mesh.flatten().tolist()), self.shape))

    def __repr__(self):
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}{names})"


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None):
    """A mesh of all ranks, in order."""
    if backend_override is not None:
        raise NotImplementedError("init_device_mesh: backend_override is not supported; all groups use the best engine there is")
    mesh_shape = tuple(mesh_shape)
    if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(mesh_shape):
        raise RuntimeError(f"init_device_mesh: {mesh_dim_names} are not different names for {len(mesh_shape)} dimensions")
    if not _group.is_initialized():
        _group.init_process_group()
    size = 1
    for length in mesh_shape:
        size *= length
    if size != _group.get_world_size():
        raise RuntimeError(f"init_device_mesh: a mesh of {mesh_shape} has {size} ranks, the world {_group.get_world_size()}")
    return DeviceMesh(device_type, _C._torch.arange(size).reshape(mesh_shape), mesh_dim_names=mesh_dim_names)
