"""``Proxy``: represents a value while a program is traced."""

import dis
import inspect
import operator

from .. import _C
from .node import Node, map_aggregate

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase"]

Tensor = _C.Tensor


class TraceError(ValueError):
    """Control flow that depends on values."""


class TracerBase:
    """The tracer's interface for proxies."""

    graph = None
    record_stack_traces = False
    trace_asserts = False

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node):
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        """Creates a step and the proxy of its value."""
        node = self.create_node(kind, target, self.create_arg(tuple(args)), self.create_arg(dict(kwargs)), name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a):
        """An argument in the form of nodes: converts proxies to nodes, recurses into containers, keeps plain values."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            made = [self.create_arg(item) for item in a]
            return tuple(made) if type(a).__module__.endswith(".return_types") else self.create_node("call_function", type(a), tuple(made), {})
        if isinstance(a, (tuple, list)):
            return (tuple if isinstance(a, tuple) else list)(self.create_arg(item) for item in a)
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        plain = (Node, str, int, float, bool, complex, bytes, _C.dtype, _C.device, _C.layout, _C.memory_format, type(None), type(...))
        if isinstance(a, plain) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key):
        if isinstance(self.create_arg(key), Node):
            raise RuntimeError("Keys for dictionaries used as an argument cannot contain a Node.")
        return key

    def to_bool(self, obj):
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj):
        """Iteration; the unpacking code determines the number of values."""
        frame = inspect.currentframe().f_back.f_back
        for instruction in dis.get_instructions(frame.f_code):
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return (obj[i] for i in range(instruction.argval))
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs function argument; "
            "mark the function with torch.fx.wrap, or its module as a leaf"
        )

    def keys(self, obj):
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Appends steps to a graph."""

    def __init__(self, graph):
        self.graph = graph
        self.scope, self.module_stack, self.node_name_to_scope = None, {}, {}


class Proxy:
    """Represents a value. Functions of ``torch``, operators, methods and attributes of it become steps of the graph."""

    def __init__(self, node, tracer=None):
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, k):
        if k in ("tracer", "node"):
            # An object that is being copied has neither attribute.
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__ = state

    def __deepcopy__(self, memo):
        made = Proxy.__new__(Proxy)
        made.__dict__.update(self.__dict__)
        return made

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        return self.tracer.iter(self)

    def __abs__(self):
        return self.tracer.create_proxy("call_function", abs, (self,), {})

    def __bool__(self):
        return self.tracer.to_bool(self)

    def __len__(self):
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call torch.fx.wrap('len') at module scope")

    def __contains__(self, item):
        return self.tracer.to_bool(self)

    def __index__(self):
        raise TraceError("symbolically traced variables cannot be used as indices of Python's own sequences")

    def keys(self):
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, orig_method, types, args=None, kwargs=None):
        args, kwargs = args or (), kwargs or {}
        tracers = {}

        def note(value):
            if isinstance(value, Proxy):
                tracers[value.tracer] = None

        map_aggregate(tuple(args), note)
        map_aggregate(dict(kwargs), note)
        if len(tracers) > 1:
            raise RuntimeError(f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}")
        tracer = next(iter(tracers))
        name = getattr(orig_method, "__name__", "")
        if name == "einsum" and len(args) == 2 and isinstance(args[1], (list, tuple)):
            # As PyTorch passes them: one by one.
            args = (args[0], *args[1])
        if getattr(Tensor, name, None) is orig_method:
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


class Attribute(Proxy):
    """An attribute of a value, which becomes a step when it is used other than by calling it."""

    def __init__(self, root, attr):
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node = None

    @property
    def node(self):
        # A call of a method needs no step for the attribute.
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __getattr__(self, k):
        if k in ("root", "attr", "tracer", "_node"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter, whose size is known while tracing."""

    def __init__(self, tracer, node, name, param):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self):
        return f"ParameterProxy({self.name})"

    shape = property(lambda self: self.param.shape)
    ndim = property(lambda self: self.param.ndim)

    def size(self, *args):
        return self.param.size(*args)

    def dim(self):
        return self.param.dim()

    def numel(self):
        return self.param.numel()

    def nelement(self):
        return self.param.nelement()


def _operator(function, name, reflected=False):
    def apply(self, *args):
        if reflected:
            (other,) = args
            return self.tracer.create_proxy("call_function", function, (other, self), {})
        return self.tracer.create_proxy("call_function", function, (self, *args), {})

    apply.__name__ = name
    setattr(Proxy, name, apply)


for _name in "add sub mul floordiv truediv mod pow lshift rshift and or xor matmul".split():
    _function = getattr(operator, _name + ("_" if _name in ("and", "or") else ""))
    _operator(_function, f"__{_name}__")
    _operator(_function, f"__r{_name}__", reflected=True)
for _name in "eq ne lt gt le ge getitem pos neg invert".split():
    _operator(getattr(operator, _name), f"__{_name}__")
Proxy.__hash__ = object.__hash__
