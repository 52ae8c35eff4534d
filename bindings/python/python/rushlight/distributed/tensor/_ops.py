"""Ops on ``DTensor``: each names its sharding rule; the compiled part chooses placements, the op itself runs on local parts."""

from ... import _C
from ._api import DTensor
from .placement_types import Replicate, _codes, _placement

Tensor = _C.Tensor

#: Whether plain tensors beside DTensors count as replicated (``experimental.implicit_replication``).
implicit_replication = False

#: Attributes and methods of the object, not of values.
_LOCAL = frozenset("is_floating_point is_complex register_hook register_post_accumulate_grad_hook is_contiguous element_size get_device retain_grad requires_grad_ "
                   "data_ptr untyped_storage storage is_pinned _gradient_edge has_names is_shared".split())


def _flat(args, kwargs):
    """All tensors among arguments, also within lists."""
    found = []
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Tensor):
                found.append(item)
    return found


def _map(value, swap):
    if isinstance(value, Tensor):
        return swap(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        return type(value)(_map(item, swap) for item in value)
    return value


def refusal(name, tensors):
    placed = ", ".join(f"{tuple(t.shape)} {t.placements}" for t in tensors if isinstance(t, DTensor))
    return NotImplementedError(f"Operator {name} does not have a sharding strategy registered: its inputs are placed {placed}. Use to_local() or full_tensor().")


def _inputs(name, tensors):
    """The distributed inputs; plain ones must be numbers."""
    found = []
    for t in tensors:
        if isinstance(t, DTensor):
            if not any(t is other for other in found):
                found.append(t)
        elif t.dim() != 0:
            raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!")
    if any(t._mesh != found[0]._mesh for t in found):
        raise RuntimeError(f"{name}: the meshes of the inputs differ; redistribute to one mesh first")
    return found


def _distinct(args, kwargs):
    """Arguments in which no DTensor stands twice: each place of an op may need another placement of it."""
    seen = set()

    def swap(t):
        if not isinstance(t, DTensor):
            return t
        if id(t) in seen:
            t = t._like(t._local_tensor)
        seen.add(id(t))
        return t

    found = _flat(args, kwargs)
    if len({id(t) for t in found}) == len(found):
        return args, kwargs
    return tuple(_map(a, swap) for a in args), {k: _map(v, swap) for k, v in kwargs.items()}


def plan_of(name, rule, inputs):
    """How an op runs on the local parts of its inputs, by a rule of (kind, word, numbers, flag)."""
    described = [(list(t._shape), _codes(t._placements)) for t in inputs]
    return _C._Plan(name, rule, described, inputs[0]._mesh._core)


def prepare(plan, inputs):
    """The local parts as the plan needs them, by the inputs' ids."""
    return {id(t): plan.prepare(i, t._local_tensor, list(t._shape), _codes(t._placements)) for i, t in enumerate(inputs)}


def out(plan, local, mesh, name="", shape=None):
    """A local result as a DTensor."""
    placements = tuple(_placement(code) for code in plan.output)
    return DTensor._of(local, mesh, placements, plan.whole(name, list(local.shape)) if shape is None else shape)


def run(func, name, rule, args, kwargs, inputs=None):
    """Runs an op by a rule on its distributed inputs: all that are found, or those that are given in the rule's order."""
    inputs = _inputs(name, _flat(args, kwargs)) if inputs is None else _inputs(name, inputs)
    plan = plan_of(name, rule, inputs)
    locals_ = prepare(plan, inputs)
    swap = lambda t: locals_.get(id(t), t)
    result = func(*(_map(a, swap) for a in args), **{k: _map(v, swap) for k, v in kwargs.items()})
    mesh = inputs[0]._mesh
    if isinstance(result, Tensor):
        return out(plan, result, mesh, name)
    if isinstance(result, (list, tuple)) and all(isinstance(part, Tensor) for part in result):
        return type(result)([out(plan, part, mesh, name) for part in result])
    raise refusal(name, inputs)


def fill_random(func, args, kwargs):
    """Each rank draws the whole and keeps its part, so the values are those of one process with the same seed; replicas copy rank 0's."""
    from .. import broadcast

    target = args[0]
    if any(p.is_partial() for p in target._placements):
        raise NotImplementedError(f"{getattr(func, '__name__', 'a random fill')}: parts of a sum have no random values; redistribute to Replicate or Shard first")
    local = target._local_tensor.detach()
    whole = _C._torch.empty(target._shape, dtype=local.dtype, device=local.device)
    func(whole, *args[1:], **kwargs)
    for dim, (start, size) in enumerate(_C._local_part(list(target._shape), target._mesh._core, _codes(target._placements))):
        whole = whole.narrow(dim, start, size)
    whole = whole.contiguous()
    for i, p in enumerate(target._placements):
        if p.is_replicate() and target._mesh.size(i) > 1:
            broadcast(whole, group=target._mesh.get_group(i), group_src=0)
    before = _C._set_grad_enabled(False)
    try:
        local.copy_(whole)
    finally:
        _C._set_grad_enabled(before)
    return target


def dispatch(func, args, kwargs):
    """Runs a function of tensors, some of which are distributed, by its row of ``_rules.RULES``."""
    from ._rules import RULES

    name = getattr(func, "__name__", str(func))
    with _Plain():
        if implicit_replication:
            args, kwargs = _replicated(args, kwargs)
        if name == "__get__":
            # An attribute: T is an op, shape is not.
            name = getattr(getattr(func, "__self__", None), "__name__", name)
            if name not in RULES:
                return func(*args, **kwargs)
        if name in _LOCAL or name in ("__set__", "__delete__"):
            return func(*args, **kwargs)
        if name not in RULES:
            raise refusal(name, _flat(args, kwargs))
        if kwargs.get("out") is not None:
            raise NotImplementedError(f"{name} of DTensors: out is not supported; use the result, or copy_")
        return RULES[name](func, name, *_distinct(args, kwargs))


def _replicated(args, kwargs):
    """Arguments with plain tensors, other than numbers, as replicated DTensors."""
    mesh = next(t._mesh for t in _flat(args, kwargs) if isinstance(t, DTensor))

    def swap(t):
        return t if isinstance(t, DTensor) or t.dim() == 0 else DTensor._of(t, mesh, (Replicate(),) * mesh.ndim, t.shape)

    return tuple(_map(a, swap) for a in args), {k: _map(v, swap) for k, v in kwargs.items()}


class _Plain:
    """Overrides by classes are off: the inner calls are of local parts."""

    def __enter__(self):
        self.before = _C._set_function_level(1)

    def __exit__(self, *exception):
        _C._set_function_level(self.before)
