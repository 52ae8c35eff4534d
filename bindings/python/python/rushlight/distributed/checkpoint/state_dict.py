"""State dicts of models and optimizers whose names do not depend on wrappers or ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ... import _C
from ...autograd.grad_mode import no_grad
from .. import _collectives, _group, _objects
from . import _parts

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

#: Parts of names that wrappers add.
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


@dataclasses.dataclass
class StateDictOptions:
    """How state dicts are made and loaded: see PyTorch."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _checked(options, submodules=None):
    options = options or StateDictOptions()
    if submodules is not None:
        raise NotImplementedError("state_dict: submodules is not supported; take the entries of the whole state dict by their prefix")
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


def _wrapper_prefixes(model):
    """Prefixes of names that belong to wrappers, by the module that has them."""
    from ...nn.parallel import DataParallel, DistributedDataParallel

    return {name: module for name, module in model.named_modules() if isinstance(module, (DataParallel, DistributedDataParallel))}


def _names(model):
    """From a parameter's name in the model to its name without wrappers."""
    wrapped = _wrapper_prefixes(model)

    def plain(name):
        kept, path = [], []
        for part in name.split("."):
            parent = ".".join(path)
            path.append(part)
            if part in _WRAPPERS[1:] or (part == "module" and parent in wrapped):
                continue
            kept.append(part)
        return ".".join(kept)

    return plain


def _value(value, options):
    if not _parts.is_tensor(value):
        return value
    if options.full_state_dict and _parts.is_distributed(value):
        value = value.full_tensor()
    if options.cpu_offload and isinstance(value, _C.Tensor):
        value = value.detach().cpu()
    return value


def _kept(result, options):
    """A whole state in the CPU's memory is rank 0's alone."""
    if options.full_state_dict and options.cpu_offload and _group.is_initialized() and _group.get_rank() != 0:
        return {}
    return result


def get_model_state_dict(model, *, submodules=None, options=None):
    """A model's state, by names without wrappers."""
    options = _checked(options, submodules)
    plain = _names(model)
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad} if options.ignore_frozen_params else ()
    state = {plain(name): _value(value, options) for name, value in model.state_dict().items() if name not in frozen}
    return _kept(state, options)


def _optimizers(optimizers):
    return tuple(optimizers) if isinstance(optimizers, Iterable) else (optimizers,)


def _parameter_names(model):
    plain = _names(model)
    return {id(p): plain(name) for name, p in model.named_parameters()}


def _init_optim_state(optimizer):
    """Makes the state that an optimizer makes in its first step, without changing a parameter."""
    if optimizer.state:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if any(p.grad is not None for p in parameters):
        return
    rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
    decays = [group.get("weight_decay") for group in optimizer.param_groups]
    values = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.grad = _C._torch.zeros_like(p.detach()) if not _parts.is_distributed(p) else p.detach() * 0
    for group in optimizer.param_groups:
        if "lr" in group:
            group["lr"] = 0.0 if not isinstance(group["lr"], _C.Tensor) else _C.tensor(0.0)
    optimizer.step(closure=None)
    with no_grad():
        for p, value in zip(parameters, values):
            _parts.into_local(p).copy_(_parts.into_local(value))
    for group, rate, decay in zip(optimizer.param_groups, rates, decays):
        group["lr"] = rate
        if decay is not None:
            group["weight_decay"] = decay
    optimizer.zero_grad(set_to_none=True)


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options=None):
    """The optimizers' state, by parameters' names."""
    options = _checked(options, submodules)
    names = _parameter_names(model)
    result = {"state": {}, "param_groups": []}
    for optimizer in _optimizers(optimizers):
        _init_optim_state(optimizer)
        numbered = optimizer.state_dict()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        missing = [i for i, p in enumerate(parameters) if id(p) not in names]
        if missing:
            raise RuntimeError(f"state_dict: parameter {missing[0]} of the optimizer does not belong to the model")
        for number, state in numbered["state"].items():
            result["state"][names[id(parameters[number])]] = {key: _value(value, options) for key, value in state.items()}
        for group in numbered["param_groups"]:
            result["param_groups"].append({**group, "params": [names[id(parameters[i])] for i in group["params"]]})
    result = _kept(result, options)
    return _flattened(result) if options.flatten_optimizer_state_dict and result else result


def _flattened(state):
    flat = {f"state.{name}.{key}": value for name, values in state["state"].items() for key, value in values.items()}
    for group in state["param_groups"]:
        for name in group["params"]:
            flat |= {f"param_groups.{name}.{key}": value for key, value in group.items() if key != "params"}
    return flat


def _unflattened(flat, optimizer, names):
    state, groups = {}, []
    for group in optimizer.param_groups:
        own = [names[id(p)] for p in group["params"]]
        for name in own:
            prefix = f"state.{name}."
            found = {key[len(prefix):]: value for key, value in flat.items() if key.startswith(prefix)}
            if found:
                state[name] = found
        prefix = f"param_groups.{own[0]}." if own else None
        settings = {key[len(prefix):]: value for key, value in flat.items() if prefix and key.startswith(prefix)}
        groups.append({**settings, "params": own})
    return {"state": state, "param_groups": groups}


def get_state_dict(model, optimizers, *, submodules=None, options=None):
    """The states of a model and of its optimizers."""
    return get_model_state_dict(model, submodules=submodules, options=options), get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options)


def _spread(state, options):
    """Rank 0's whole state on every rank."""
    if not options.broadcast_from_rank0 or not _group.is_initialized() or _group.get_world_size() == 1:
        return state
    described = [None]
    if _group.get_rank() == 0:
        described = [{key: (tuple(v.shape), (str(v.dtype), v.device.type)) if isinstance(v, _C.Tensor) else (None, v) for key, v in state.items()}]
    _objects.broadcast_object_list(described)
    result = {}
    for key, (shape, rest) in described[0].items():
        if shape is None:
            result[key] = rest
            continue
        if _group.get_rank() == 0:
            value = state[key].detach().clone()
        else:
            dtype, device = rest
            value = _C._torch.empty(shape, dtype=getattr(_C, dtype.rpartition(".")[2]), device=device)
        _collectives.broadcast(value, 0)
        result[key] = value
    return result


def _into(target, value, like=None):
    """Copies a value into a tensor; of a whole tensor, a ``DTensor`` takes this rank's part, and so does a state that is sharded like the parameter ``like``."""
    sharded = target if _parts.is_distributed(target) else like
    with no_grad():
        if sharded is not None and _parts.is_distributed(sharded) and not _parts.is_distributed(value) and tuple(value.shape) == tuple(sharded.shape):
            _, local, offsets, _ = _parts.local_part(sharded)
            for dim, (start, size) in enumerate(zip(offsets, local.shape)):
                value = value.narrow(dim, start, size)
        _parts.into_local(target).copy_(_parts.into_local(value))


def _made(target, value):
    """A parameter of the meta device with memory and values: of a ``DTensor`` this rank's part."""
    if not _parts.is_distributed(target):
        return value.detach().clone()
    if not _parts.is_distributed(value):
        _, _, offsets, _ = _parts.local_part(target)
        for dim, (start, size) in enumerate(zip(offsets, target.to_local().shape)):
            value = value.narrow(dim, start, size)
    local = _parts.into_local(value).detach().clone().to(target.device_mesh.device_type)
    return target._like(local)


def set_model_state_dict(model, model_state_dict, *, options=None):
    """Loads what ``get_model_state_dict`` returned, in any job. A model on the meta device gets its memory by this."""
    options = _checked(options)
    state = _spread(model_state_dict, options)
    plain, own = _names(model), model.state_dict()
    known = {plain(name): name for name in own}
    missing = [name for name in known if name not in state]
    unexpected = [name for name in state if name not in known]
    if options.strict and (missing or unexpected):
        from ...nn import Module

        kind = type(model).__name__ if isinstance(model, Module) else "model"
        raise RuntimeError(f"Error(s) in loading state_dict for {kind}:\n\tMissing key(s): {missing}\n\tUnexpected key(s): {unexpected}")
    plain_state, made = {}, {}
    for name, value in state.items():
        if name not in known:
            continue
        target = own[known[name]]
        if _parts.is_tensor(target):
            if tuple(target.shape) != tuple(value.shape):
                raise RuntimeError(f"state_dict: '{name}' has shape {tuple(value.shape)}, the model's has {tuple(target.shape)}")
            if target.device.type == "meta":
                made[known[name]] = _made(target, value)
            else:
                _into(target, value)
        else:
            plain_state[known[name]] = value
    if plain_state:
        model.load_state_dict(plain_state, strict=False)
    if made:
        model.load_state_dict(made, strict=False, assign=True)
    from ...nn.modules.module import _IncompatibleKeys

    return _IncompatibleKeys(missing, unexpected)


def set_optimizer_state_dict(model, optimizers, optim_state_dict, *, options=None):
    """Loads what ``get_optimizer_state_dict`` returned, in any job."""
    options = _checked(options)
    names = _parameter_names(model)
    if options.broadcast_from_rank0 and _group.is_initialized() and _group.get_world_size() > 1:
        flat = optim_state_dict if options.flatten_optimizer_state_dict or not optim_state_dict else _flattened(optim_state_dict)
        optim_state_dict = _spread(flat, options)
        options = dataclasses.replace(options, flatten_optimizer_state_dict=True)
    for optimizer in _optimizers(optimizers):
        _init_optim_state(optimizer)
        state = _unflattened(optim_state_dict, optimizer, names) if options.flatten_optimizer_state_dict else optim_state_dict
        groups = {name: group for group in state["param_groups"] for name in group["params"]}
        for group in optimizer.param_groups:
            for p in group["params"]:
                name = names[id(p)]
                if name not in groups:
                    if options.strict:
                        raise RuntimeError(f"state_dict: the optimizer's state has no parameter '{name}'")
                    continue
                for key, value in groups[name].items():
                    if key != "params":
                        group[key] = value
                own = optimizer.state[p]
                for key, value in state["state"].get(name, {}).items():
                    if _parts.is_tensor(own.get(key)) and _parts.is_tensor(value):
                        _into(own[key], value, p)
                    else:
                        own[key] = value


def set_state_dict(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    """Loads what ``get_state_dict`` returned."""
    keys = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return keys
