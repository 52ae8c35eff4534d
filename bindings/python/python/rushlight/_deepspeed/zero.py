"""``deepspeed.zero``: models that no rank holds whole, and access to their whole parameters."""

import functools
import json
import os

import rushlight as torch

from .. import _C, nn
from .. import distributed as dist
from ..distributed.fsdp._unit import _as_parameter, _become_shard, default_mesh
from ..distributed.tensor._api import DTensor
from ..distributed.tensor.placement_types import Shard, _codes
from . import comm

_plain_data = torch.Tensor.data


def _own_part(whole, mesh, placements):
    """This rank's part of a whole tensor, with memory of its own."""
    for dim, (start, size) in enumerate(_C._local_part(list(whole.shape), mesh._core, _codes(placements))):
        whole = whole.narrow(dim, start, size)
    return whole.clone().contiguous()


def _stage(config):
    """ZeRO's stage of a configuration; 3 if there is none."""
    if config is None:
        return 3
    if isinstance(config, (str, os.PathLike)):
        with open(config, encoding="utf-8") as file:
            config = json.load(file)
    return config.get("zero_optimization", {}).get("stage", 0)


class Init:
    """A context in which models are built and sharded: after the constructor of each module its parameters are split over all ranks, with the values of rank 0. No
    rank holds more than one module's own parameters whole. Without effect if the configuration names another stage than 3."""

    def __init__(self, module=None, data_parallel_group=None, mem_efficient_linear=True, remote_device=None, pin_memory=False, config_dict_or_path=None, config=None,
                 enabled=True, dtype=None, mpu=None, zero_param_parallel_group=None, zero_quantized_weights=False, zero_quantized_nontrainable_weights=False,
                 sequence_data_parallel_group=None, param_swapper=None):
        # mem_efficient_linear and pin_memory are hints.
        refused = {
            "mpu": mpu, "zero_quantized_weights": zero_quantized_weights, "zero_quantized_nontrainable_weights": zero_quantized_nontrainable_weights,
            "param_swapper": param_swapper, "dtype": dtype, "data_parallel_group": data_parallel_group, "zero_param_parallel_group": zero_param_parallel_group,
            "sequence_data_parallel_group": sequence_data_parallel_group,
        }
        for name, value in refused.items():
            if enabled and value:
                raise NotImplementedError(f"deepspeed.zero.Init: {name} is not supported; parameters are split over all ranks, in the dtype they have")
        if enabled and remote_device not in (None, "none", "cpu"):
            raise NotImplementedError(f"deepspeed.zero.Init: remote_device {remote_device!r} is not supported; use 'cpu', or offload_param of the configuration")
        self._offload = remote_device == "cpu"
        self._enabled = enabled and _stage(config if config is not None else config_dict_or_path) == 3
        if self._enabled:
            comm.init_distributed()
            self._mesh = default_mesh("deepspeed.zero.Init")
            if module is not None:
                self._shard(module)

    def __enter__(self):
        if self._enabled:
            self._wrapped, self._building = [], set()
            for kind in _classes(nn.Module):
                self._wrap(kind)
            # Classes that are defined within the context.
            self._hook = nn.Module.__dict__.get("__init_subclass__")
            context, before = self, nn.Module.__init_subclass__

            def defined(cls, **kwargs):
                before.__func__(cls, **kwargs) if hasattr(before, "__func__") else before(**kwargs)
                context._wrap(cls)

            nn.Module.__init_subclass__ = classmethod(defined)
        return self

    def __exit__(self, *exception):
        if self._enabled:
            for kind, original in self._wrapped:
                kind.__init__ = original
            if self._hook is None:
                del nn.Module.__init_subclass__
            else:
                nn.Module.__init_subclass__ = self._hook

    def _wrap(self, kind):
        original = kind.__dict__.get("__init__")
        if original is None or kind is nn.Module:
            return
        context = self

        @functools.wraps(original)
        def build(module, *args, **kwargs):
            inner = id(module) in context._building
            context._building.add(id(module))
            try:
                original(module, *args, **kwargs)
            finally:
                if not inner:
                    context._building.discard(id(module))
            if not inner:
                context._shard(module)

        kind.__init__ = build
        self._wrapped.append((kind, original))

    def _shard(self, module):
        """Splits the parameters that are whole. Their objects stay, so tied ones stay tied."""
        mesh, placements = self._mesh, (Shard(0),)
        for part in module.modules():
            for name, p in part._parameters.items():
                if p is None or isinstance(p, DTensor) or nn.parameter.is_lazy(p):
                    continue
                if p.dim() == 0:
                    raise ValueError(f"deepspeed.zero.Init: {type(part).__name__}.{name} is a number, which cannot be split; make it a tensor of one dimension")
                shape, whole = p.shape, p.detach()
                if whole.device.type != "meta" and mesh.size() > 1:
                    dist.broadcast(whole, 0)
                shard = _own_part(whole, mesh, placements)
                made = _as_parameter(shard.cpu() if self._offload and shard.device.type != "meta" else shard, p.requires_grad, mesh, placements, shape)
                part._parameters[name] = _become_shard(p, made)


def _classes(kind):
    """A class and all that derive from it."""
    found = {kind: None}
    for child in kind.__subclasses__():
        found.update(dict.fromkeys(_classes(child)))
    return list(found)


class GatheredParameters:
    """A context in which sharded parameters are whole, plain parameters. Changes by ``modifier_rank`` reach all ranks at the end; without one they are dropped.
    A model of ``initialize`` may run in it without gradients if all its parameters are given. Parameters of stages 0 to 2 are whole at any time."""

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        if fwd_module is not None:
            raise NotImplementedError("deepspeed.zero.GatheredParameters: fwd_module is not supported; modules gather their parameters by themselves")
        params = [params] if isinstance(params, torch.Tensor) else list(params)
        self._params = [p for p in dict.fromkeys(params) if isinstance(p, DTensor)] if enabled else []
        self._modifier = modifier_rank
        if modifier_rank is not None and any(p._mesh.ndim > 1 for p in self._params):
            raise NotImplementedError("deepspeed.zero.GatheredParameters: modifier_rank of parameters on a mesh of several dimensions is not supported; "
                                      "change them with torch.distributed.tensor.distribute_tensor")
        if any(p.device.type == "meta" for p in self._params):
            raise ValueError("deepspeed.zero.GatheredParameters: parameters of the meta device have no values; materialize them first")
        self._held, self._shards = [], []

    def __enter__(self):
        units = list(dict.fromkeys(unit for p in self._params if (unit := p.__dict__.get("_unit")) is not None))
        for unit in units:
            unit.reshard()
        with torch.no_grad():
            for p in self._params:
                shard = p._local_tensor.detach()
                whole = p.full_tensor().detach()
                whole = whole.clone() if whole.data_ptr() == shard.data_ptr() else whole
                self._shards.append((p, shard, dict(p.__dict__)))
                p.__dict__.clear()
                p.__class__ = nn.Parameter
                _plain_data.__set__(p, whole)
        given = {id(p) for p in self._params}
        for unit in units:
            if all(id(p) in given for p in unit.shards()):
                unit.held = True
                self._held.append(unit)

    def __exit__(self, kind, *exception):
        for unit in self._held:
            unit.held = False
        with torch.no_grad():
            for p, shard, attributes in self._shards:
                mesh, placements, shape = (attributes[name] for name in ("_mesh", "_placements", "_shape"))
                if kind is None and self._modifier is not None:
                    if tuple(p.shape) != shape:
                        raise ValueError(f"deepspeed.zero.GatheredParameters: a parameter of shape {shape} has become {tuple(p.shape)}")
                    whole = p.detach().contiguous()
                    if mesh.size() > 1:
                        dist.broadcast(whole, self._modifier, group=mesh.get_group())
                    shard.copy_(_own_part(whole, mesh, placements))
                p.__class__ = DTensor
                p.__dict__.update(attributes)
                _plain_data.__set__(p, shard)
        self._held, self._shards = [], []
