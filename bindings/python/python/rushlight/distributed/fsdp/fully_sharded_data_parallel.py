"""``FullyShardedDataParallel``: FSDP's wrapper, on the mechanism of ``fully_shard``. Parameters keep their names and shapes (``use_orig_params``)."""

import contextlib
from enum import Enum, auto

from ... import _C
from ...nn import Module, Parameter
from .. import _group, _objects, broadcast
from ..device_mesh import DeviceMesh
from ..tensor._api import DTensor, distribute_tensor
from ._unit import Unit, default_mesh
from .api import *  # noqa: F401,F403
from .api import FullOptimStateDictConfig, FullStateDictConfig, ShardingStrategy, StateDictSettings, StateDictType
from .wrap import _apply

__all__ = ["FlatParameter", "FullyShardedDataParallel", "OptimStateKeyType"]


class FlatParameter(Parameter):
    """PyTorch's class of parameters that are joined to one. Here each parameter stays its own, so none is of this class."""


class OptimStateKeyType(Enum):
    """The keys of optimizer states: names or numbers of parameters."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


_STAGES = {
    ShardingStrategy.FULL_SHARD: 3, ShardingStrategy.SHARD_GRAD_OP: 2, ShardingStrategy.HYBRID_SHARD: 3, ShardingStrategy._HYBRID_SHARD_ZERO2: 2,
    ShardingStrategy.NO_SHARD: 1,
}
_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


def _is_unit(module):
    return "_fsdp_unit" in module.__dict__


def _mesh_of(process_group, device_mesh, strategy):
    if device_mesh is not None:
        return device_mesh
    if isinstance(process_group, tuple):
        shard, replicate = process_group
        ranks = _group.get_process_group_ranks(shard)
        others = _group.get_process_group_ranks(replicate)
        step = others[1] - others[0] if len(others) > 1 else len(ranks)
        first = min(others) - (_group.get_rank() - min(ranks)) if len(others) > 1 else min(ranks)
        grid = [[first + i * step + (r - min(ranks)) for r in ranks] for i in range(len(others))]
        return DeviceMesh.from_group([replicate, shard], "cpu", mesh=grid)
    if strategy in _HYBRID:
        raise ValueError("FullyShardedDataParallel: hybrid sharding needs a device_mesh of two dimensions, or a tuple of groups")
    return default_mesh("FullyShardedDataParallel") if process_group is None else DeviceMesh.from_group(process_group, "cpu")


def _of_rank_0(states, group):
    """Rank 0's states on all ranks: numbers and small tensors with their values, other tensors as memory that ``distribute_tensor`` fills."""
    told = [None]
    if _group.get_rank(group) == 0:
        small = lambda value: not isinstance(value, _C.Tensor) or value.dim() == 0
        kept = {name: {k: v if small(v) else (tuple(v.shape), v.dtype) for k, v in values.items()} for name, values in states["state"].items()}
        told = [(kept, states["param_groups"])]
    _objects.broadcast_object_list(told, group=group, group_src=0)
    if _group.get_rank(group) == 0:
        return states
    kept, groups = told[0]
    made = lambda v: _C._torch.empty(v[0], dtype=v[1]) if isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], tuple) else v
    return {"state": {name: {k: made(v) for k, v in values.items()} for name, values in kept.items()}, "param_groups": groups}


class FullyShardedDataParallel(Module):
    """A module whose parameters, gradients and optimizer states are sharded over the ranks."""

    def __init__(
        self, module, process_group=None, sharding_strategy=None, cpu_offload=None, auto_wrap_policy=None, backward_prefetch=None, mixed_precision=None,
        ignored_modules=None, param_init_fn=None, device_id=None, sync_module_states=False, forward_prefetch=False, limit_all_gathers=True, use_orig_params=False,
        ignored_states=None, device_mesh=None,
    ):
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        mesh = _mesh_of(process_group, device_mesh, strategy)
        ignored = [p for m in ignored_modules or () for p in m.parameters()]
        for state in ignored_states or ():
            ignored += list(state.parameters()) if isinstance(state, Module) else [state]
        options = dict(
            sharding_strategy=strategy, cpu_offload=cpu_offload, mixed_precision=mixed_precision, device_mesh=mesh, ignored_states=ignored,
            param_init_fn=param_init_fn, device_id=device_id, sync_module_states=sync_module_states,
        )
        if auto_wrap_policy is not None:
            _apply(module, auto_wrap_policy, lambda child, **more: FullyShardedDataParallel(child, **{**options, **more}), set(ignored_modules or ()))
        own = [p for part in module.modules() for p in part._parameters.values() if p is not None and not isinstance(p, DTensor)]
        if any(p.device.type == "meta" for p in own):
            for part in module.modules():
                if any(p is not None and p.device.type == "meta" for p in part._parameters.values()):
                    if param_init_fn is not None:
                        param_init_fn(part)
                    else:
                        part.to_empty(device="cpu" if device_id is None else device_id, recurse=False)
                        part.reset_parameters()
        elif device_id is not None:
            module.to(device_id)
        if sync_module_states:
            held = [p for part in module.modules() for p in (*part._parameters.values(), *part._buffers.values()) if p is not None and not isinstance(p, DTensor)]
            for tensor in held:
                for dim in range(mesh.ndim):
                    broadcast(tensor.detach(), group=mesh.get_group(dim), group_src=0)
        precision = mixed_precision
        self._fsdp_wrapped_module = module
        if precision is not None and precision.buffer_dtype is not None:
            for part in module.modules():
                for name, buffer in part._buffers.items():
                    if buffer is not None and buffer.is_floating_point():
                        part._buffers[name] = buffer.to(precision.buffer_dtype)
        unit = Unit(
            [module], mesh, _is_unit, stage=_STAGES[strategy], param_dtype=precision and precision.param_dtype, reduce_dtype=precision and precision.reduce_dtype,
            cast_inputs=precision is None or precision.cast_forward_inputs or precision.cast_root_forward_inputs,
            offload=bool(cpu_offload and cpu_offload.offload_params), ignored=ignored, keep_objects=True,
        )
        self.__dict__["_fsdp_unit"] = unit
        self.sharding_strategy, self.mixed_precision, self.cpu_offload = strategy, mixed_precision, cpu_offload
        self._settings = StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())

    @property
    def module(self):
        """The wrapped module."""
        return self._fsdp_wrapped_module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    def __getitem__(self, key):
        return self._fsdp_wrapped_module[key]

    def forward(self, *args, **kwargs):
        return self._fsdp_unit.run(self._fsdp_wrapped_module, args, kwargs)

    @staticmethod
    def fsdp_modules(module, root_only=False):
        """The FSDP modules within a module, itself included."""
        found = [part for part in module.modules() if isinstance(part, FullyShardedDataParallel)]
        return found[:1] if root_only else found

    def _units(self):
        return [part._fsdp_unit for part in FullyShardedDataParallel.fsdp_modules(self) if part._fsdp_unit.group is not None]

    @contextlib.contextmanager
    def no_sync(self):
        """Within, whole gradients add up on each rank without communication."""
        for unit in self._units():
            unit.group.set_sync(False)
        try:
            yield
        finally:
            for unit in self._units():
                unit.group.set_sync(True)

    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Scales gradients down so that their norm over all ranks is at most ``max_norm``. Returns the norm before."""
        from ...nn.utils import clip_grad_norm_

        total = clip_grad_norm_(list(self.parameters()), max_norm, norm_type)
        return total.full_tensor() if isinstance(total, DTensor) else total

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module, recurse=True, writeback=True, rank0_only=False, offload_to_cpu=False, with_grads=False):
        """Within, the parameters are whole; changes are kept with ``writeback``."""
        if with_grads or offload_to_cpu or rank0_only:
            raise NotImplementedError("summon_full_params: rank0_only, offload_to_cpu and with_grads are not supported; use state_dict_type")
        units = [part._fsdp_unit for part in FullyShardedDataParallel.fsdp_modules(module) if part._fsdp_unit.group is not None]
        units = units if recurse else units[:1]
        before = _C._set_grad_enabled(False)
        try:
            for unit in units:
                unit.unshard()
            yield
            if writeback:
                for unit in units:
                    for i, (slot, shard) in enumerate(zip(unit.slots, unit._kept)):
                        whole = slot.get()
                        whole = whole._local_tensor if isinstance(whole, DTensor) else whole
                        shard._local_tensor.detach().copy_(unit.group.cut(i, whole.to(shard.dtype)))
        finally:
            for unit in units:
                unit.reshard()
            _C._set_grad_enabled(before)

    # State dicts.

    @staticmethod
    def set_state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """Sets what state dicts hold. Returns the settings before."""
        if state_dict_type is StateDictType.LOCAL_STATE_DICT:
            raise NotImplementedError("LOCAL_STATE_DICT is not supported; use SHARDED_STATE_DICT")
        found = FullyShardedDataParallel.fsdp_modules(module)
        before = found[0]._settings if found else None
        settings = StateDictSettings(state_dict_type, state_dict_config or FullStateDictConfig(), optim_state_dict_config or FullOptimStateDictConfig())
        for part in found:
            part._settings = settings
        return before

    @staticmethod
    def get_state_dict_type(module):
        """The settings of state dicts."""
        return FullyShardedDataParallel.fsdp_modules(module)[0]._settings

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """``set_state_dict_type`` within a block."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            if before is not None:
                FullyShardedDataParallel.set_state_dict_type(module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)

    @staticmethod
    def _whole(tensor, settings, config):
        if isinstance(tensor, DTensor) and settings.state_dict_type is StateDictType.FULL_STATE_DICT:
            tensor = tensor.full_tensor().detach()
        return tensor.cpu() if getattr(config, "offload_to_cpu", False) and tensor.device.type != "cpu" else tensor

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        for unit in self._units():
            unit.reshard()
        found = super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        settings, config = self._settings, self._settings.state_dict_config
        only_first = settings.state_dict_type is StateDictType.FULL_STATE_DICT and getattr(config, "rank0_only", False)
        for key in [k for k in found if k.startswith(prefix)]:
            value = found.pop(key)
            value = self._whole(value, settings, config) if isinstance(value, _C.Tensor) else value
            if not only_first or _group.get_rank() == 0:
                found[key.replace("_fsdp_wrapped_module.", "")] = value
        return found

    def load_state_dict(self, state_dict, strict=True, assign=False):
        own = dict(self.named_parameters())
        names = {name.replace("_fsdp_wrapped_module.", ""): name for name in (*own, *(n for n, _ in self.named_buffers()))}
        given = {}
        for key, value in state_dict.items():
            name = names.get(key, key)
            if isinstance(own.get(name), DTensor) and not isinstance(value, DTensor):
                value = distribute_tensor(value.detach(), own[name].device_mesh, own[name].placements, src_data_rank=None)
            given[name] = value
        return super().load_state_dict(given, strict, assign)

    @staticmethod
    def optim_state_dict(model, optim, optim_state_dict=None, group=None):
        """The optimizer's state under the names of parameters, whole or as DTensors by the settings."""
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        state = optim.state_dict() if optim_state_dict is None else optim_state_dict
        names = {id(p): n.replace("_fsdp_wrapped_module.", "") for n, p in model.named_parameters()}
        order = [names[id(p)] for g in optim.param_groups for p in g["params"]]
        found = {}
        for number, values in state["state"].items():
            found[order[number]] = {
                k: FullyShardedDataParallel._whole(v, settings, config) if isinstance(v, _C.Tensor) else v for k, v in values.items()
            }
        groups = [{**g, "params": [order[n] for n in g["params"]]} for g in state["param_groups"]]
        if getattr(config, "rank0_only", False) and _group.get_rank() != 0:
            return {}
        return {"state": found, "param_groups": groups}

    @staticmethod
    def optim_state_dict_to_load(model, optim, optim_state_dict, is_named_optimizer=False, load_directly=False, group=None):
        """The result of ``optim_state_dict`` as ``optim.load_state_dict`` takes it."""
        if is_named_optimizer:
            raise NotImplementedError("optim_state_dict_to_load: named optimizers are not supported")
        config = FullyShardedDataParallel.get_state_dict_type(model).optim_state_dict_config
        root = 0 if getattr(config, "rank0_only", False) else None
        if root is not None:
            optim_state_dict = _of_rank_0(optim_state_dict, group)
        params = {n.replace("_fsdp_wrapped_module.", ""): p for n, p in model.named_parameters()}
        numbers = {id(p): i for i, p in enumerate(p for g in optim.param_groups for p in g["params"])}

        def placed(param, value):
            if isinstance(param, DTensor) and isinstance(value, _C.Tensor) and not isinstance(value, DTensor) and value.shape == param.shape and value.dim():
                return distribute_tensor(value, param.device_mesh, param.placements, src_data_rank=root)
            return value

        state = {numbers[id(params[n])]: {k: placed(params[n], v) for k, v in values.items()} for n, values in optim_state_dict["state"].items()}
        groups = [{**g, "params": [numbers[id(params[n])] for n in g["params"]]} for g in optim_state_dict["param_groups"]]
        found = {"state": state, "param_groups": groups}
        if load_directly:
            optim.load_state_dict(found)
        return found

    @staticmethod
    def rekey_optim_state_dict(optim_state_dict, optim_state_key_type, model, optim_input=None, optim=None):
        """An optimizer's state with the parameters' names as keys, or with their numbers in the order of the optimizer (or of the model)."""
        names = [n.replace("_fsdp_wrapped_module.", "") for n, _ in model.named_parameters()]
        if optim is not None:
            known = {id(p): n.replace("_fsdp_wrapped_module.", "") for n, p in model.named_parameters()}
            names = [known[id(p)] for group in optim.param_groups for p in group["params"]]
        elif optim_input is not None:
            raise NotImplementedError("rekey_optim_state_dict: optim_input is not supported; pass optim")
        to = {name: i for i, name in enumerate(names)} if optim_state_key_type is OptimStateKeyType.PARAM_ID else dict(enumerate(names))
        rename = lambda key: to.get(key, key)
        groups = [{**group, "params": [rename(p) for p in group["params"]]} for group in optim_state_dict.get("param_groups", [])]
        return {**optim_state_dict, "state": {rename(key): value for key, value in optim_state_dict["state"].items()}, "param_groups": groups}
