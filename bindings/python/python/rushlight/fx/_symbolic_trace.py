"""Tracing: runs a module or function on proxies and records its steps."""

import builtins
import functools
import inspect
import math
from types import CodeType, FunctionType

from .. import _C
from .graph import Graph
from .graph_module import GraphModule
from .proxy import ParameterProxy, Proxy, TracerBase

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

Tensor = _C.Tensor

#: Functions that stay single steps: the globals they are looked up in, and their names.
_wrapped = []
_tracing = [False]


def is_fx_tracing():
    """Whether a program is being traced."""
    return _tracing[0]


is_fx_symbolic_tracing = is_fx_tracing


class PH:
    """In ``concrete_args``: an argument that stays a placeholder."""

    def __repr__(self):
        return "PH"


PH = PH()


class ProxyableClassMeta(type):
    """A metaclass that makes constructing an object of proxies a step."""

    def __call__(cls, *args, **kwargs):
        found = _first_proxy(args, kwargs)
        if found is not None:
            return found.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def wrap(fn_or_name):
    """Keeps a function of the calling module one step of graphs. Called at the top of a module, with a name, or as a decorator."""
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", None)
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    frame = inspect.currentframe().f_back
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    if not any(space is frame.f_globals and known == name for space, known in _wrapped):
        _wrapped.append((frame.f_globals, name))
    return fn_or_name


def _first_proxy(args, kwargs):
    """A proxy among arguments, also in containers."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Proxy):
            return value
        if isinstance(value, (list, tuple)) and (found := _first_proxy(value, {})) is not None:
            return found
        if isinstance(value, dict) and (found := _first_proxy((), value)) is not None:
            return found
        if isinstance(value, slice) and (found := _first_proxy((value.start, value.stop, value.step), {})) is not None:
            return found
    return None


def _as_step(function):
    """A function that becomes a step when it is given proxies."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        found = _first_proxy(args, kwargs)
        if found is None:
            return function(*args, **kwargs)
        made = found.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return call


class _Patches:
    """Attributes and globals that have other values while a program is traced."""

    def __init__(self):
        self._undo = []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for undo in reversed(self._undo):
            undo()

    def attribute(self, owner, name, value):
        before = owner.__dict__.get(name, self)
        self._undo.append(lambda: delattr(owner, name) if before is self else setattr(owner, name, before))
        setattr(owner, name, value)

    def item(self, space, name, value):
        before = space.get(name, self)
        self._undo.append(lambda: space.pop(name) if before is self else space.__setitem__(name, before))
        space[name] = value


class Tracer(TracerBase):
    """Runs a module on proxies. Override ``is_leaf_module`` to choose the modules that stay single steps."""

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._autowrap_modules, self._autowrap_functions = tuple(autowrap_modules), set(autowrap_functions)
        self.param_shapes_constant = param_shapes_constant
        self.root, self.tensor_attrs, self.submodule_paths = None, {}, None

    def is_leaf_module(self, m, module_qualified_name):
        """Whether a module is one step: modules of ``torch.nn`` are, except ``Sequential``."""
        from ..nn import Sequential

        module = type(m).__module__
        return module.startswith(("rushlight.nn", "torch.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod):
        """A module's name in the one that is traced."""
        for name, module in self.root.named_modules(remove_duplicate=False):
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m, forward, args, kwargs):
        """A module's call: a step if it is a leaf, else traced through."""
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def create_arg(self, a):
        """Parameters, buffers and other tensors become attributes of the module."""
        from ..nn import Module, Parameter

        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
            name = self.tensor_attrs.get(id(a), (None, None))[0]
            if name is None:
                name = self._new_attribute("_tensor_constant", a)
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Module) and not isinstance(a, Proxy):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        try:
            return super().create_arg(a)
        except NotImplementedError:
            if type(a) in (object,) or getattr(type(a), "__module__", "") == "builtins":
                raise
            return self.create_node("get_attr", self._new_attribute(f"_{type(a).__name__}_constant_", a), (), {})

    def _new_attribute(self, base, value):
        number = 0
        while hasattr(self.root, f"{base}{number}"):
            number += 1
        setattr(self.root, f"{base}{number}", value)
        # Keeps the value alive, so that its address is not reused.
        self.tensor_attrs[id(value)] = (f"{base}{number}", value)
        return f"{base}{number}"

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """Placeholders for a function's parameters."""
        code = inspect.unwrap(root_fn).__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = iter(code.co_varnames)
        args = []
        skip = 0
        if is_module:
            next(names)
            skip, args = 1, [self.root]
        defaults = {p.name: p.default for p in inspect.signature(root_fn).parameters.values() if p.default is not inspect.Parameter.empty}
        concrete = concrete_args or {}
        keywords = {}
        for at in range(skip, total):
            name = next(names)
            if name in concrete and concrete[name] is not PH:
                made = concrete[name]
                self.create_node("placeholder", name, (made,) if isinstance(made, (int, float, str, bool, type(None))) else (), {})
            else:
                default = (defaults[name],) if name in defaults else ()
                made = self.create_proxy("placeholder", name, default, {})
            if at < code.co_argcount:
                args.append(made)
            else:
                keywords[name] = made
        spread, named = [], None
        if code.co_flags & inspect.CO_VARARGS:
            spread = [self.create_proxy("placeholder", "*" + next(names), (), {})]
        if code.co_flags & inspect.CO_VARKEYWORDS:
            named = self.create_proxy("placeholder", "**" + next(names), (), {})
        return args, keywords, spread, named

    def trace(self, root, concrete_args=None):
        """The graph of a module or function."""
        from ..nn import Module

        if isinstance(root, Module):
            self.root = root
            function = getattr(type(root), "forward")
        else:
            self.root, function = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}
        self._note_tensors(self.root, "")
        before, _tracing[0] = _tracing[0], True
        try:
            args, keywords, spread, named = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
            with _Patches() as patches:
                self._patch(patches)
                if spread or named is not None:
                    result = _call_spread(function, args, keywords, spread, named)
                else:
                    result = function(*args, **keywords)
                self.create_node("output", "output", (self.create_arg(result),), {})
        finally:
            _tracing[0] = before
        return self.graph

    def _note_tensors(self, module, prefix):
        from ..nn import Parameter

        for name, value in module.__dict__.items():
            if isinstance(value, Tensor) and not isinstance(value, Parameter):
                self.tensor_attrs[id(value)] = (prefix + name, value)
        for name, child in module.named_children():
            self._note_tensors(child, f"{prefix}{name}.")

    def _patch(self, patches):
        from ..nn import Module, Parameter

        call, get = Module.__call__, Module.__getattr__
        proxies = {}

        def module_call(module, *args, **kwargs):
            return self.call_module(module, lambda *a, **k: call(module, *a, **k), args, kwargs)

        def module_getattr(module, name):
            value = get(module, name)
            return self.getattr(name, value, proxies) if isinstance(value, (Parameter, Tensor)) else value

        patches.attribute(Module, "__call__", module_call)
        patches.attribute(Module, "__getattr__", module_getattr)
        for space, name in _wrapped:
            function = space.get(name, getattr(builtins, name, None))
            if function is not None:
                patches.item(space, name, _as_step(function))
        for module in self._autowrap_modules:
            for name, value in list(vars(module).items()):
                if not name.startswith("_") and callable(value) and not isinstance(value, type):
                    patches.item(vars(module), name, _as_step(value))

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """A module's attribute while tracing: a parameter becomes a step."""
        from ..nn import Parameter

        named = self.root.named_parameters() if isinstance(attr_val, Parameter) else self.root.named_buffers()
        for name, value in named:
            if value is attr_val:
                if name not in parameter_proxy_cache:
                    factory = (lambda node: ParameterProxy(self, node, name, attr_val)) if self.param_shapes_constant else None
                    parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
                return parameter_proxy_cache[name]
        return attr_val


def _call_spread(function, args, keywords, spread, named):
    """Calls a function whose ``*args`` and ``**kwargs`` are single proxies: its body sees them as such."""
    code = function.__code__
    plain = code.replace(
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS), co_argcount=code.co_argcount + len(spread) + (named is not None) + code.co_kwonlyargcount,
        co_kwonlyargcount=0,
    )
    assert isinstance(plain, CodeType)
    changed = FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)
    return changed(*args, *keywords.values(), *spread, *([] if named is None else [named]))


def symbolic_trace(root, concrete_args=None):
    """A module or function as a ``GraphModule``."""
    from ..nn import Module

    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
