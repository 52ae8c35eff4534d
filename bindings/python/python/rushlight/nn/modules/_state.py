"""Reading and writing a module's state: ``state_dict`` and ``load_state_dict``."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Mapping

from ... import _C
from ..parameter import Parameter, is_lazy
from ._hooks import RemovableHandle, register

Tensor = _C.Tensor
_EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The keys that ``load_state_dict`` missed in the dict, and the unexpected ones."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class StateMethods:
    """The part of ``Module`` that reads and writes its state."""

    _version: int = 1

    # Writing.

    def state_dict(self, *args, destination=None, prefix: str = "", keep_vars: bool = False):
        """Parameters and persistent buffers by name, with the versions of modules in its attribute ``_metadata``.

        >>> import rushlight as torch
        >>> list(torch.nn.Linear(2, 1).state_dict())
        ['weight', 'bias']
        """
        if args:
            # The old order of arguments, by position.
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            changed = hook(self, destination, prefix, local_metadata)
            if getattr(hook, "_from_public_api", False):
                if changed is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif changed is not None:
                destination = changed
        return destination

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = param if keep_vars or is_lazy(param) else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars or is_lazy(buffer) else buffer.detach()
        if self._has_extra_state():
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def get_extra_state(self):
        """Additional state of a subclass in its ``state_dict``."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called. Override it together with set_extra_state()."
        )

    def set_extra_state(self, state) -> None:
        """Restores the result of ``get_extra_state``."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called. Override it together with get_extra_state()."
        )

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not StateMethods.get_extra_state

    def register_state_dict_pre_hook(self, hook) -> RemovableHandle:
        """Calls ``hook(module, prefix, keep_vars)`` before ``state_dict`` is made."""
        return register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict`` is made; it may change the dict."""
        hook._from_public_api = True
        return register(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register this function by _register_state_dict_hook: it was previously registered via register_state_dict_post_hook; wrap it to do both"
            )
        return register(self._state_dict_hooks, hook)

    # Reading.

    def load_state_dict(self, state_dict: Mapping, strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copies tensors of a ``state_dict`` into this module and those within, or puts them in place with ``assign``."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing_keys: list = []
        unexpected_keys: list = []
        error_msgs: list = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        def load(module, local_state_dict, prefix=""):
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata["assign_to_params_buffers"] = assign
            module._load_from_state_dict(local_state_dict, prefix, local_metadata, True, missing_keys, unexpected_keys, error_msgs)
            for name, child in module._modules.items():
                if child is not None:
                    child_prefix = prefix + name + "."
                    load(child, {k: v for k, v in local_state_dict.items() if k.startswith(child_prefix)}, child_prefix)
            incompatible = _IncompatibleKeys(missing_keys, unexpected_keys)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, incompatible) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values: "
                        "change the lists of incompatible keys in place"
                    )

        load(self, state_dict)
        if strict:
            for what, keys in (("Unexpected", unexpected_keys), ("Missing", missing_keys)):
                if keys:
                    quoted = ", ".join(f'"{key}"' for key in keys)
                    error_msgs.insert(0, f"{what} key(s) in state_dict: {quoted}. ")
        if error_msgs:
            listed = "\n\t".join(error_msgs)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return _IncompatibleKeys(missing_keys, unexpected_keys)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        """Reads this module's own tensors. Subclasses override it to read older versions."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        persistent = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        local = {k: v for k, v in (*self._parameters.items(), *persistent.items()) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, param in local.items():
            key = prefix + name
            if key in state_dict:
                problem = self._load_tensor(name, key, param, state_dict[key], assign)
                if problem is not None:
                    error_msgs.append(problem)
            elif strict:
                missing_keys.append(key)
        extra_key = prefix + _EXTRA_STATE
        if self._has_extra_state():
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    first, _, rest = key[len(prefix) :].partition(".")
                    if first not in self._modules if rest else first not in local:
                        unexpected_keys.append(key)

    def _load_tensor(self, name: str, key: str, param: Tensor, given, assign: bool) -> str | None:
        """Loads one tensor. Returns an error text or None."""
        if not isinstance(given, Tensor):
            return (
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint '
                f"but received {type(given)}"
            )
        if is_lazy(param):
            if is_lazy(given):
                return None
            if not assign:
                param.materialize(given.shape)
        elif is_lazy(given):
            return f'While copying the parameter named "{key}", the tensor of the checkpoint has no size yet: can\'t access the shape of an uninitialized parameter or buffer'
        elif param.dim() == 0 and given.dim() == 1 and given.shape[0] == 1:
            # Files of old versions store scalars as vectors of one element.
            given = given[0]
        if not is_lazy(param) and given.shape != param.shape:
            return (
                f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
                f"the shape in current model is {param.shape}."
            )
        if param.is_meta and not given.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, which is a no-op. (Did you mean to "
                "pass `assign=True` to assign items in the state dictionary to their corresponding key in the module instead of copying them in place?)",
                stacklevel=2,
            )
        try:
            if assign:
                if isinstance(param, Parameter):
                    if not isinstance(given, Parameter):
                        given = Parameter(given, requires_grad=param.requires_grad)
                    else:
                        given.requires_grad_(param.requires_grad)
                setattr(self, name, given)
            else:
                recording = _C._set_grad_enabled(False)
                try:
                    param.copy_(given)
                finally:
                    _C._set_grad_enabled(recording)
        except Exception as error:
            action = "swapping" if assign else "copying"
            return (
                f'While {action} the parameter named "{key}", whose dimensions in the model are {param.size()} and '
                f"whose dimensions in the checkpoint are {given.size()}, an exception occurred : {error.args}."
            )
        return None

    def register_load_state_dict_pre_hook(self, hook) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module: bool = False) -> RemovableHandle:
        return register(self._load_state_dict_pre_hooks, _WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook) -> RemovableHandle:
        """Calls ``hook(module, incompatible_keys)`` after loading; it may change the lists of keys in place."""
        return register(self._load_state_dict_post_hooks, hook)


class _WithModule:
    """A hook whose first argument is the module; it is copied and pickled with the module."""

    def __init__(self, hook, module):
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, *args):
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __getstate__(self):
        return {"hook": self.hook, "module": self.module()}

    def __setstate__(self, state):
        self.hook, self.module = state["hook"], weakref.ref(state["module"])
