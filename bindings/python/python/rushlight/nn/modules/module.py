"""``Module``, the base of all layers and models."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator

from ... import _C
from ..parameter import Buffer, Parameter
from ._conversion import ConversionMethods
from ._hooks import BackwardHooks, RemovableHandle, register
from ._state import _EXTRA_STATE as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401
from ._state import StateMethods, _IncompatibleKeys  # noqa: F401

__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]

Tensor = _C.Tensor


def _typename(value) -> str:
    from ..._functions import typename

    return typename(value)


def _addindent(text: str, spaces: int) -> str:
    """Indents all lines but the first."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


#: Hooks of every module, called before a module's own; programs assign empty ones to remove all.
_global_forward_pre_hooks: OrderedDict = OrderedDict()
_global_forward_hooks: OrderedDict = OrderedDict()
_global_forward_hooks_always_called: OrderedDict = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict = OrderedDict()
_global_backward_pre_hooks: OrderedDict = OrderedDict()
_global_backward_hooks: OrderedDict = OrderedDict()
_global_is_full_backward_hook: bool | None = None
#: Hooks of every module, called before a buffer, module or parameter is registered.
_global_buffer_registration_hooks: OrderedDict = OrderedDict()
_global_module_registration_hooks: OrderedDict = OrderedDict()
_global_parameter_registration_hooks: OrderedDict = OrderedDict()


def _has_any_global_hook() -> bool:
    return bool(_global_forward_pre_hooks or _global_forward_hooks or _global_backward_pre_hooks or _global_backward_hooks)


def _changed_by(hooks: OrderedDict, module, name: str, value):
    """What a module registers after hooks saw it."""
    for hook in hooks.values() if hooks else ():
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value


_BOTH_KINDS = "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."

#: The dicts a module has, in the order of PyTorch's ``__dict__``.
_DICTS = (
    "_parameters", "_buffers", "_modules", "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)


class Module(ConversionMethods, StateMethods):
    """A part of a model. Subclasses call ``super().__init__()``, assign parameters and modules to attributes, and define ``forward``.

    >>> import rushlight as torch
    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = torch.nn.Linear(3, 2)
    ...     def forward(self, x):
    ...         return self.fc(x).relu()
    >>> net = Net()
    >>> net(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    >>> net
    Net(
      (fc): Linear(in_features=3, out_features=2, bias=True)
    )
    """

    dump_patches: bool = False
    training: bool
    call_super_init: bool = False
    #: Whether a call has to check for hooks. Registering one sets it on the module; a global hook sets it here.
    _hooked: bool = False
    _is_full_backward_hook: bool | None = None

    def __init__(self, *args, **kwargs) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        own = self.__dict__
        own["training"] = True
        for name in _DICTS:
            own[name] = {} if name in ("_parameters", "_buffers", "_modules") else OrderedDict()
        own["_non_persistent_buffers_set"] = set()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *input):
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args, **kwargs):
        if self._hooked:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    # Attributes.

    def __getattr__(self, name: str):
        # Unrolled for speed: every use of a parameter or module in a forward pass comes through here.
        own = self.__dict__
        if "_parameters" in own:
            found = own["_parameters"]
            if name in found:
                return found[name]
            found = own["_modules"]
            if name in found:
                return found[name]
            found = own["_buffers"]
            if name in found:
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in own:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
            return
        if isinstance(value, Module):
            modules = own.get("_modules")
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            modules[name] = _changed_by(_global_module_registration_hooks, self, name, value)
            return
        if name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)")
            own["_parameters"][name] = None
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as child module '{name}' (torch.nn.Module or None expected)")
            own["_modules"][name] = None
        elif isinstance(value, Buffer):
            if "_buffers" not in own:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            own.pop(name, None)
            self.register_buffer(name, value, value.persistent)
        elif name in own.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
                )
            own["_buffers"][name] = _changed_by(_global_buffer_registration_hooks, self, name, value)
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        own = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in own.get(kind, ()):
                del own[kind][name]
                if kind == "_buffers":
                    own["_non_persistent_buffers_set"].discard(name)
                return
        object.__delattr__(self, name)

    def _forget(self, name: str, *kinds: str) -> None:
        """Removes a name so that it can be registered as another kind."""
        own = self.__dict__
        own.pop(name, None)
        for kind in kinds:
            own[kind].pop(name, None)
        own["_non_persistent_buffers_set"].discard(name)

    def _check_name(self, name, what: str, kind: str) -> None:
        if kind not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' + (f", got: {name}" if what == "module" else ""))
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[kind]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter under a name."""
        self._check_name(name, "parameter", "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)")
            if not param.is_leaf:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To express "
                    f"'{name}' as a function of another Tensor, compute the value in the forward() method."
                )
        self._parameters[name] = _changed_by(_global_parameter_registration_hooks, self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is state but not a parameter; part of ``state_dict`` if it is persistent."""
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor) and not hasattr(tensor, "__torch_function__"):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = _changed_by(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a module under a name."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name(name, "module", "_modules")
        self._modules[name] = _changed_by(_global_module_registration_hooks, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """``add_module``."""
        self.add_module(name, module)

    def get_submodule(self, target: str) -> Module:
        """The module at a path of names joined by dots; this one for ``""``."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Sets a module at a path; with ``strict`` it must exist already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        found = getattr(module, name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return module._buffers[name]

    # Members.

    def named_modules(self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator:
        """This module and all within, with their paths."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all within."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator:
        """The modules directly within, with their names."""
        memo = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly within."""
        for _, module in self.named_children():
            yield module

    def _named_members(self, get_members_fn, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator:
        memo = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in memo:
                    continue
                if remove_duplicate:
                    memo.add(value)
                yield path + ("." if path else "") + name, value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator:
        """Parameters with their paths."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters of this module and those within."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator:
        """Buffers with their paths."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers of this module and those within."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # Changes of the whole module.

    def apply(self, fn: Callable[[Module], None]):
        """Calls ``fn`` with every module within, then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True):
        """Sets training mode for this module and those within."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Sets evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True):
        """Sets whether gradients of the parameters are recorded."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of the parameters, or sets them to zero."""
        for p in self.parameters():
            gradient = p.grad
            if gradient is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                p.grad = gradient.detach().zero_()

    def compile(self, *args, **kwargs) -> None:
        """Compiles this module's calls in place, as ``torch.compile`` does for a new module."""
        from ..._compile import compile

        forward = self.forward
        compiled = compile(forward, *args, **kwargs)
        object.__setattr__(self, "forward", compiled)

    # Hooks.

    def register_forward_pre_hook(self, hook, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args)`` before ``forward``; a result replaces the arguments."""
        self._hooked = True
        flags = ((self._forward_pre_hooks_with_kwargs, with_kwargs),)
        return register(self._forward_pre_hooks, hook, prepend=prepend, flags=flags)

    def register_forward_hook(
        self, hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(module, args, output)`` after ``forward``; a result replaces the output.

        >>> import rushlight as torch
        >>> layer = torch.nn.ReLU()
        >>> with layer.register_forward_hook(lambda module, args, output: output + 1):
        ...     layer(torch.tensor([-1.0, 2.0]))
        tensor([1., 3.])
        """
        self._hooked = True
        flags = ((self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call))
        return register(self._forward_hooks, hook, prepend=prepend, flags=flags)

    def register_full_backward_pre_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` when the gradients of the outputs are known; it may return others."""
        self._hooked = True
        return register(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are known; it may return others."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(_BOTH_KINDS)
        self._is_full_backward_hook = True
        self._hooked = True
        return register(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook) -> RemovableHandle:
        """The old name of ``register_full_backward_hook``, with the same effect."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(_BOTH_KINDS)
        self._is_full_backward_hook = False
        self._hooked = True
        return register(self._backward_hooks, hook)

    def _call_with_hooks(self, args: tuple, kwargs: dict):
        """A call with all hooks. Those with ``always_call`` are called even when something raises."""
        own = self._forward_pre_hooks or self._forward_hooks or self._backward_pre_hooks or self._backward_hooks
        if not own:
            # All were removed: calls are direct again.
            self.__dict__.pop("_hooked", None)
            if not _has_any_global_hook():
                Module._hooked = False
                return self.forward(*args, **kwargs)
        called: set = set()
        try:
            return self._call_in_order(args, kwargs, called)
        except Exception:
            for hooks, always, with_kwargs in self._forward_hook_families():
                for id_, hook in list(hooks.items()):
                    if id_ not in always or id_ in called:
                        continue
                    try:
                        hook(self, args, kwargs, None) if id_ in with_kwargs else hook(self, args, None)
                    except Exception as error:
                        kind = "global module" if hooks is _global_forward_hooks else "module"
                        warnings.warn(
                            f"{kind} forward hook with ``always_call=True`` raised an exception that was silenced as another error was raised in forward: {error}",
                            stacklevel=2,
                        )
            raise

    def _forward_hook_families(self):
        yield _global_forward_hooks, _global_forward_hooks_always_called, _global_forward_hooks_with_kwargs
        yield self._forward_hooks, self._forward_hooks_always_called, self._forward_hooks_with_kwargs

    def _call_in_order(self, args: tuple, kwargs: dict, called: set):
        for id_, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
            if id_ in self._forward_pre_hooks_with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        pre = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
        full = [*_global_backward_hooks.values(), *self._backward_hooks.values()]
        backward = BackwardHooks(self, pre, full) if pre or full else None
        if backward is not None:
            args = backward.inputs(args)
        result = self.forward(*args, **kwargs)
        for hooks, _, with_kwargs in self._forward_hook_families():
            for id_, hook in list(hooks.items()):
                called.add(id_)
                changed = hook(self, args, kwargs, result) if id_ in with_kwargs else hook(self, args, result)
                if changed is not None:
                    result = changed
        if backward is None:
            return result
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                f"For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received {type(result)}", stacklevel=3
            )
        return backward.outputs(result)

    # Printing and pickling.

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """A subclass's settings, printed between the parentheses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        lines = extra_lines + child_lines
        if len(extra_lines) == 1 and not child_lines:
            return f"{self._get_name()}({extra})"
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({inside})"

    def __dir__(self):
        names = {*object.__dir__(self), *self._parameters, *self._modules, *self._buffers}
        return sorted(name for name in names if not name[:1].isdigit())

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        for name in _DICTS:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        if any(self.__dict__[kind] for kind in kinds):
            self.__dict__["_hooked"] = True


def _register_for_all(hooks: OrderedDict, hook, flags: tuple = ()) -> RemovableHandle:
    Module._hooked = True
    return register(hooks, hook, flags=flags)


def register_module_buffer_registration_hook(hook) -> RemovableHandle:
    """Calls ``hook(module, name, buffer)`` before a module registers a buffer; a result replaces it."""
    return register(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook) -> RemovableHandle:
    """Calls ``hook(module, name, submodule)`` before a module registers another; a result replaces it."""
    return register(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook) -> RemovableHandle:
    """Calls ``hook(module, name, parameter)`` before a module registers a parameter; a result replaces it."""
    return register(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook) -> RemovableHandle:
    """Calls ``hook(module, args)`` before the forward pass of every module."""
    return _register_for_all(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Calls ``hook(module, args, output)`` after the forward pass of every module."""
    flags = ((_global_forward_hooks_with_kwargs, with_kwargs), (_global_forward_hooks_always_called, always_call))
    return _register_for_all(_global_forward_hooks, hook, flags)


def register_module_full_backward_pre_hook(hook) -> RemovableHandle:
    """Calls ``hook(module, grad_output)`` in the backward pass of every module."""
    return _register_for_all(_global_backward_pre_hooks, hook)


_BOTH_KINDS_FOR_ALL = _BOTH_KINDS.replace("on a single Module", "as a global Module hook")


def register_module_full_backward_hook(hook) -> RemovableHandle:
    """Calls ``hook(module, grad_input, grad_output)`` in the backward pass of every module."""
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is False:
        raise RuntimeError(_BOTH_KINDS_FOR_ALL)
    _global_is_full_backward_hook = True
    return _register_for_all(_global_backward_hooks, hook)


def register_module_backward_hook(hook) -> RemovableHandle:
    """The old name of ``register_module_full_backward_hook``, with the same effect."""
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is True:
        raise RuntimeError(_BOTH_KINDS_FOR_ALL)
    _global_is_full_backward_hook = False
    return _register_for_all(_global_backward_hooks, hook)
