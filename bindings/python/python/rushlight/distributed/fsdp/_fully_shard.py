"""``fully_shard``: FSDP2. Parameters become DTensors sharded by rows; the module gathers them for its forward and backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from ... import _C
from ._unit import Unit, default_mesh

__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard", "register_fsdp_forward_method",
    "share_comm_ctx",
]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of gathered parameters, of gradient reduction, and of outputs; None keeps the dtype there is."""

    param_dtype: object = None
    reduce_dtype: object = None
    output_dtype: object = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """No offloading."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Shards, gradients and optimizer states are in the host's memory."""

    pin_memory: bool = True


class UnshardHandle:
    """A gather that has been started."""

    def __init__(self, units=()):
        self._units = list(units)

    def wait(self):
        """Puts the whole parameters in place."""
        for unit in self._units:
            unit.unshard()
        self._units = []


class FSDPModule:
    """The class that ``fully_shard`` adds to a module's."""

    def __new__(cls, *args, **kwargs):
        # A copy by class, as deepcopy of containers makes it, is one of the original class.
        original = cls.__mro__[2]
        made = original.__new__(original)
        made.__init__(*args, **kwargs)
        return made

    def __call__(self, *args, **kwargs):
        unit = self.__dict__.get("_fsdp_unit")
        if unit is None or not any(module is self for module in unit.modules):
            return super().__call__(*args, **kwargs)
        return unit.run(super().__call__, args, kwargs, self)

    def _units(self, recurse):
        parts = self.modules() if recurse else (self,)
        found = [part.__dict__["_fsdp_unit"] for part in parts if "_fsdp_unit" in part.__dict__]
        return [unit for unit in dict.fromkeys(found) if unit.group is not None]

    def unshard(self, async_op=False):
        """Gathers this module's parameters and puts them in place; with ``async_op`` the handle's ``wait`` does."""
        units = self._units(False)
        if async_op:
            for unit in units:
                if not unit.is_whole:
                    shards = unit.shards()
                    unit._compute_device(shards)
                    unit.group.prefetch(shards)
            return UnshardHandle(units)
        UnshardHandle(units).wait()
        return None

    def reshard(self):
        """Frees this module's gathered parameters."""
        for unit in self._units(False):
            unit.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        """Whether backward passes reduce gradients; without, whole gradients add up on each rank."""
        for unit in self._units(recurse):
            unit.group.set_sync(bool(requires_gradient_sync))

    def set_requires_all_reduce(self, requires_all_reduce, *, recurse=True):
        """Whether backward passes combine the gradients of replicas (hybrid sharding)."""
        for unit in self._units(recurse):
            unit.group.set_all_reduce(bool(requires_all_reduce))

    def set_reshard_after_forward(self, reshard_after_forward, recurse=True):
        """Whether parameters are freed between the forward and the backward pass."""
        for unit in self._units(recurse):
            unit.default_stage, unit.stage = False, 3 if reshard_after_forward else 2
            unit.group.set_stage(unit.stage)

    def set_reshard_after_backward(self, reshard_after_backward, *, recurse=True):
        """Whether parameters are freed after the backward pass; else they stay until an optimizer changes the shards."""
        for unit in self._units(recurse):
            unit.default_stage = False
            unit.group.set_stage(unit.stage if reshard_after_backward else 1)

    def set_is_last_backward(self, is_last_backward):
        """Every backward pass ends with complete gradients here, so this changes nothing."""

    def set_modules_to_forward_prefetch(self, modules):
        """Modules whose gathers start when this one's has ended, in forward passes."""
        self._prefetch(modules, "set_forward_prefetch", "fixed_forward")

    def set_modules_to_backward_prefetch(self, modules):
        """Modules whose gathers start when this one's has ended, in backward passes."""
        self._prefetch(modules, "set_backward_prefetch", "fixed_backward")

    def _prefetch(self, modules, setter, mark):
        if not all(isinstance(module, FSDPModule) for module in modules):
            raise ValueError("expected modules that fully_shard was applied to")
        groups = [unit.group for module in modules for unit in module._units(False)]
        for unit in self._units(False):
            setattr(unit, mark, True)
            getattr(unit.group, setter)(groups)

    def set_gradient_divide_factor(self, factor):
        """The divisor of gradient sums, instead of the number of ranks."""
        for unit in self._units(False):
            unit.group.set_divisor(float(factor))

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_force_sum_reduction_for_comms(self, enable):
        """Gradients are summed by ranks and divided afterwards, if by a factor of the user's, so this changes nothing but the rounding of means: see ``set_gradient_divide_factor``."""

    def set_unshard_in_backward(self, unshard_in_backward):
        """Backward passes gather a module when they first need it, so True changes nothing."""
        if not unshard_in_backward:
            raise NotImplementedError("set_unshard_in_backward(False): a backward pass gathers what it needs; modules that it does not need are not gathered")

    def set_post_optim_event(self, event):
        """Gathers read shards in stream order, so there is nothing to wait for."""

    def _apply(self, *args, **kwargs):
        for unit in self._units(False):
            unit.reshard()
        return super()._apply(*args, **kwargs)

    def state_dict(self, *args, **kwargs):
        for unit in self._units(True):
            unit.reshard()
        return super().state_dict(*args, **kwargs)


_classes = {}


def _join(module):
    kind = type(module)
    if kind not in _classes:
        _classes[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__module__": kind.__module__, "__qualname__": f"FSDP{kind.__qualname__}"})
    module.__class__ = _classes[kind]


def _is_unit(module):
    return "_fsdp_unit" in module.__dict__


def fully_shard(
    module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=MixedPrecisionPolicy(), offload_policy=OffloadPolicy(), ignored_params=None
):
    """Shards a module's parameters over a mesh of one dimension, or over the second of two (hybrid sharding). Apply it to blocks first, then to the model. The
    parameters of several modules are one group: gathered for the first of them that runs, freed after the last."""
    from ...nn import ModuleDict, ModuleList

    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    if not modules:
        raise ValueError("fully_shard: no module")
    for one in modules:
        if isinstance(one, (ModuleList, ModuleDict)) and type(one).forward is type(one).__mro__[-2].__dict__.get("forward"):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {one}")
        if _is_unit(one):
            raise ValueError("fully_shard has already been applied to this module")
    mesh = mesh or default_mesh("fully_shard")
    default, keep = reshard_after_forward is None, None
    if not default and not isinstance(reshard_after_forward, bool):
        ranks = mesh.size(mesh.ndim - 1)
        if not 1 <= reshard_after_forward <= ranks or ranks % reshard_after_forward:
            raise ValueError(f"If passing reshard_after_forward as an int, it should be a factor of {ranks}, not {reshard_after_forward}")
        keep = reshard_after_forward if 1 < reshard_after_forward < ranks else None
        reshard_after_forward = reshard_after_forward > 1
    unit = Unit(
        modules, mesh, _is_unit, stage=3 if default or reshard_after_forward else 2, param_dtype=mp_policy.param_dtype, reduce_dtype=mp_policy.reduce_dtype,
        output_dtype=mp_policy.output_dtype, cast_inputs=mp_policy.cast_forward_inputs, offload=isinstance(offload_policy, CPUOffloadPolicy), ignored=ignored_params or (),
        placement_of=shard_placement_fn,
    )
    if keep is not None:
        unit.keep_among(keep)
    unit.default_stage = default
    for one in modules:
        one.__dict__["_fsdp_unit"] = unit
        _join(one)
    return module


def register_fsdp_forward_method(module, method_name):
    """Has another method gather the parameters as ``forward`` does."""
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name)

    def call(*args, **kwargs):
        return module.__dict__["_fsdp_unit"].run(method, args, kwargs)

    module.__dict__[method_name] = call


def share_comm_ctx(modules):
    """Groups of modules use the same streams here, so there is nothing to share."""
    if not all(isinstance(module, FSDPModule) for module in modules):
        raise ValueError(f"Expects list of FSDPModules but got {modules}")
