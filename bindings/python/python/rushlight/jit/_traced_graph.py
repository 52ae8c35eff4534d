"""``torch.jit._get_trace_graph``: the ops of a call as a graph of nodes and values, for tools that count or draw them.

Nodes have the names and the order of arguments of ``aten``, as PyTorch's tracer records them: composed functions (``linear``, ``batch_norm``) stay whole,
convolutions are ``_convolution``. The graph is to be read; programs that run are ``torch.jit.trace``'s.
"""

import ast
import functools
import inspect

from .. import _C, _dispatch, _trace
from ..overrides import TorchFunctionMode
from ..utils import _pytree

Tensor = _C.Tensor


class TensorType:
    """The type of a tensor's value: its dtype, sizes and device."""

    def __init__(self, tensor):
        self._dtype, self._sizes, self._strides, self._device = tensor.dtype, list(tensor.shape), list(tensor.stride()), tensor.device
        self._requires_grad = tensor.requires_grad

    def kind(self):
        return "TensorType"

    def sizes(self):
        return list(self._sizes)

    def strides(self):
        return list(self._strides)

    def dim(self):
        return len(self._sizes)

    def dtype(self):
        return self._dtype

    def device(self):
        return self._device

    def scalarType(self):
        return _SCALARS.get(str(self._dtype)[6:], str(self._dtype)[6:].capitalize())

    def requires_grad(self):
        return self._requires_grad

    def requiresGrad(self):
        return self._requires_grad

    def annotation_str(self):
        return "Tensor"

    def __str__(self):
        sizes, strides = (", ".join(map(str, numbers)) for numbers in (self._sizes, self._strides))
        return f"{self.scalarType()}({sizes}, strides=[{strides}], requires_grad={int(self._requires_grad)}, device={self._device})"


_SCALARS = {"float32": "Float", "float64": "Double", "float16": "Half", "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
            "bfloat16": "BFloat16"}


class PlainType:
    """The type of a number, a list or None."""

    def __init__(self, kind, text):
        self._kind, self._text = kind, text

    def kind(self):
        return self._kind

    def sizes(self):
        return None

    def dim(self):
        return None

    def annotation_str(self):
        return self._text

    __str__ = annotation_str


def _plain_type(value):
    if value is None:
        return PlainType("NoneType", "NoneType")
    if isinstance(value, list):
        inner = _plain_type(value[0]) if value else PlainType("TensorType", "Tensor")
        return PlainType("ListType", f"{inner}[]")
    kinds = ((bool, "BoolType", "bool"), (int, "IntType", "int"), (float, "FloatType", "float"), (str, "StringType", "str"), (Tensor, "TensorType", "Tensor"))
    return next((PlainType(kind, text) for cls, kind, text in kinds if isinstance(value, cls)), PlainType("AnyType", type(value).__name__))


class Value:
    """A value of the graph: an input, a weight, a constant, or what a node gives."""

    def __init__(self, graph, node, value):
        self._graph, self._node, self._value, self._uses = graph, node, value, []
        self._type = TensorType(value) if isinstance(value, Tensor) else _plain_type(value)
        # Tensors themselves are not kept: the graph has sizes, and constants have values.
        self._constant = None if isinstance(value, Tensor) else value
        self._number = graph._count
        graph._count += 1

    def debugName(self):
        return str(self._number)

    def unique(self):
        return self._number

    def type(self):
        return self._type

    def node(self):
        return self._node

    def uses(self):
        return list(self._uses)

    def requires_grad(self):
        return isinstance(self._type, TensorType) and self._type.requires_grad()

    def isCompleteTensor(self):
        return isinstance(self._type, TensorType)

    def toIValue(self):
        return self._constant if self._node.kind() == "prim::Constant" else None

    def __repr__(self):
        return f"{self.debugName()} defined in ({self._node})"


class Use:
    """A place where a value is used."""

    def __init__(self, user, offset):
        self.user, self.offset = user, offset


class Node:
    """An op: its name, its inputs and its outputs, and the scopes of modules that it was called in."""

    def __init__(self, graph, kind, inputs):
        self._kind, self._inputs, self._outputs, self._scope = kind, list(inputs), [], graph._state.scope()
        for at, value in enumerate(self._inputs):
            value._uses.append(Use(self, at))

    def kind(self):
        return self._kind

    def scopeName(self):
        return self._scope

    def inputs(self):
        return iter(self._inputs)

    def inputsAt(self, at):
        return self._inputs[at]

    def inputsSize(self):
        return len(self._inputs)

    def outputs(self):
        return iter(self._outputs)

    def outputsAt(self, at):
        return self._outputs[at]

    def outputsSize(self):
        return len(self._outputs)

    def output(self):
        if len(self._outputs) != 1:
            raise RuntimeError(f"{self._kind} has {len(self._outputs)} outputs, not one")
        return self._outputs[0]

    def hasAttribute(self, name):
        return self._kind == "prim::Constant" and name == "value" and self._outputs[0]._constant is not None

    def attributeNames(self):
        return ["value"] if self.hasAttribute("value") else []

    def __repr__(self):
        outputs = ", ".join(f"%{v.debugName()} : {v.type()}" for v in self._outputs)
        value = f"[value={self._outputs[0]._constant!r}]" if self.hasAttribute("value") else ""
        scope = f", scope: {self._scope}" if self._scope else ""
        return f"{outputs} = {self._kind}{value}({', '.join('%' + v.debugName() for v in self._inputs)}){scope}\n"


class Graph:
    """The nodes of a call in order."""

    def __init__(self, state):
        self._state, self._nodes, self._count = state, [], 0
        self._entry, self._exit = Node(self, "prim::Param", ()), None

    def nodes(self):
        return iter(self._nodes)

    def inputs(self):
        return self._entry.outputs()

    def outputs(self):
        return self._exit.inputs()

    def param_node(self):
        return self._entry

    def return_node(self):
        return self._exit

    def findNode(self, kind, recurse=True):
        return next((node for node in self._nodes if node.kind() == kind), None)

    def findAllNodes(self, kind, recurse=True):
        return [node for node in self._nodes if node.kind() == kind]

    def __repr__(self):
        inputs = ",\n      ".join(f"%{v.debugName()} : {v.type()}" for v in self.inputs())
        outputs = ", ".join("%" + v.debugName() for v in self.outputs())
        return f"graph({inputs}):\n" + "".join(f"  {node}" for node in self._nodes) + f"  return ({outputs})\n"


class TracingState:
    """What is known while a call is traced: ``torch._C._get_tracing_state()``."""

    def __init__(self):
        self._scopes = []
        self._graph = Graph(self)

    def scope(self):
        return "/".join(self._scopes)

    def push_scope(self, name):
        self._scopes.append(name)

    def pop_scope(self):
        self._scopes.pop()

    def current_scope(self):
        return self.scope()

    def graph(self):
        return self._graph


@functools.lru_cache(None)
def _defaults(name):
    """The parameters of a function of the table, with their defaults, by its first signature; None if it has none."""
    for _, known, signatures, _ in _C._rows():
        if known == name and signatures:
            text = signatures[0][signatures[0].index("(") + 1:signatures[0].rindex(")")]
            break
    else:
        return None
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    found = []
    for part in (p.strip() for p in parts):
        if part in ("", "*"):
            continue
        declared, equals, default = part.partition("=")
        found.append((declared.split()[-1], default if equals else inspect.Parameter.empty))
    return found


def _literal(text):
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _bound(name, args, kwargs):
    """Arguments by name and with defaults, in the order of the signature; None if they do not fit it."""
    parameters = _defaults(name)
    if parameters is None or len(args) > len(parameters) or any(key not in dict(parameters) for key in kwargs):
        return None
    found = {}
    for at, (key, default) in enumerate(parameters):
        if at < len(args):
            found[key] = args[at]
        elif key in kwargs:
            found[key] = kwargs[key]
        elif default is inspect.Parameter.empty:
            return None
        else:
            found[key] = _literal(default)
    return found


def _numbers(value, count):
    return [value] * count if isinstance(value, int) else list(value)


def _convolution(name, a):
    dims = int(name[-2])
    transposed = "transpose" in name
    padding = a["padding"]
    if padding == "valid":
        padding = 0
    elif padding == "same":
        padding = [dilation * (size - 1) // 2 for dilation, size in zip(_numbers(a["dilation"], dims), a["weight"].shape[2:])]
    further = _numbers(a["output_padding"] if transposed else 0, dims)
    places = (_numbers(a["stride"], dims), _numbers(padding, dims), _numbers(a["dilation"], dims))
    return "_convolution", [a["input"], a["weight"], a["bias"], *places, transposed, further, a["groups"], False, False, True, True]


def _batch_norm(name, a):
    return name, [a["input"], a["weight"], a["bias"], a["running_mean"], a["running_var"], a["training"], a["momentum"], a["eps"], True]


def _instance_norm(name, a):
    return name, [a["input"], a["weight"], a["bias"], a["running_mean"], a["running_var"], a["use_input_stats"], a["momentum"], a["eps"], True]


def _normalised(name, a):
    return name, [*a.values(), True]


def _embedding(name, a):
    padding = -1 if a.get("padding_idx") is None else a["padding_idx"]
    return name, [a["weight"], a["input"], padding, a.get("scale_grad_by_freq", False), a.get("sparse", False)]


def _softmax(name, a):
    return name, [a["input"], a["dim"], a.get("dtype")]


def _inplace(name, a):
    rest = [value for key, value in a.items() if key != "inplace"]
    return (name + "_" if a.get("inplace") else name), rest


def _interpolate(name, a):
    mode, image = a["mode"], a["input"]
    dims = image.dim() - 2
    kind = {"nearest": "upsample_nearest", "nearest-exact": "_upsample_nearest_exact", "linear": "upsample_linear", "bilinear": "upsample_bilinear",
            "trilinear": "upsample_trilinear", "bicubic": "upsample_bicubic"}.get(mode)
    if kind is None:
        return name, list(a.values())
    size = None if a["size"] is None else _numbers(a["size"], dims)
    scale = a["scale_factor"]
    scale = None if scale is None else [float(scale)] * dims if isinstance(scale, (int, float)) else [float(s) for s in scale]
    aligned = [] if "nearest" in mode else [bool(a["align_corners"])]
    return f"{kind}{dims}d", [image, size, *aligned, scale]


_ORDERS = {
    **{f"conv{kind}{d}d": _convolution for kind in ("", "_transpose") for d in (1, 2, 3)}, "batch_norm": _batch_norm, "instance_norm": _instance_norm,
    "layer_norm": _normalised, "group_norm": _normalised, "embedding": _embedding, "softmax": _softmax, "log_softmax": _softmax, "interpolate": _interpolate,
    **{name: _inplace for name in "relu relu6 selu silu mish hardswish hardsigmoid celu elu leaky_relu dropout hardtanh threshold".split()},
}
#: Names of the tracer for other names of the same function.
_NAMES = {"relu6": "hardtanh", "max_pool1d_with_indices": "max_pool1d", "max_pool2d_with_indices": "max_pool2d", "max_pool3d_with_indices": "max_pool3d"}
_QUESTIONS = frozenset(
    "size dim numel nelement stride is_contiguous data_ptr is_floating_point is_complex element_size __len__ type get_device requires_grad_ __repr__ __format__ "
    "__hash__ storage_offset".split()
) | _trace._READS


class _Recorder(TorchFunctionMode):
    """Records calls as nodes."""

    def __init__(self, state):
        self._graph, self._values, self._alive, self._inside = state.graph(), {}, [], []

    def enter(self, tensor):
        """The value of an input or a weight."""
        value = Value(self._graph, self._graph._entry, tensor)
        self._graph._entry._outputs.append(value)
        self._keep(tensor, value)
        return value

    def _keep(self, tensor, value):
        self._values[id(tensor)] = value
        self._alive.append(tensor)

    def value(self, item):
        """The value of an argument; constants and lists are nodes of their own."""
        if isinstance(item, Tensor) and id(item) in self._values:
            return self._values[id(item)]
        if isinstance(item, tuple):
            item = list(item)
        if isinstance(item, list) and (not item or any(isinstance(i, Tensor) for i in item) or all(isinstance(i, int) for i in item)):
            node = Node(self._graph, "prim::ListConstruct", [self.value(i) for i in item])
        else:
            node = Node(self._graph, "prim::Constant", ())
        self._graph._nodes.append(node)
        made = Value(self._graph, node, item)
        node._outputs.append(made)
        if isinstance(item, Tensor):
            self._keep(item, made)
        return made

    def add(self, kind, args, result):
        """A node, with a value for each tensor of the result."""
        node = Node(self._graph, f"aten::{kind}", [self.value(arg) for arg in args])
        self._graph._nodes.append(node)
        if isinstance(result, list) and result and all(isinstance(r, Tensor) for r in result):
            listed = Value(self._graph, node, list(result))
            node._outputs.append(listed)
            node = Node(self._graph, "prim::ListUnpack", [listed])
            self._graph._nodes.append(node)
        for leaf in _pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                made = Value(self._graph, node, leaf)
                node._outputs.append(made)
                self._keep(leaf, made)
        return result

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "__get__":
            owner, result = getattr(func.__self__, "__name__", ""), func(*args)
            turned = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "adjoint"}.get(owner)
            return result if turned is None else self.add(turned, args[:1], result)
        if name in _QUESTIONS:
            return func(*args, **kwargs)
        if name == "__getitem__":
            return _dispatch.as_aten(func, args, kwargs, lambda op, given, more: self.add(op.overloadpacket.__name__, given, op(*given, **more)))
        if name == "__setitem__":
            func(*args)
            return self.add("index_put_", [args[0], args[2] if isinstance(args[2], Tensor) else None], None)
        if name in _trace._OPERATORS:
            op, swapped = _trace._OPERATORS[name]
            return self.add(op.partition(".")[2], args[::-1] if swapped else args, func(*args))
        if _trace._names().get(func) is not None or isinstance(func, type(len)) or type(func).__name__ in ("method_descriptor", "wrapper_descriptor"):
            return self._op(_dispatch.name_of(func), func, args, kwargs)
        inner = getattr(func, "__wrapped__", None)
        if inner is None and func in self._inside:
            return func(*args, **kwargs)
        self._inside.append(func)
        try:
            with self:
                return (inner or func)(*args, **kwargs)
        finally:
            self._inside.pop()

    def _op(self, name, func, args, kwargs):
        bound = _bound(name, args, kwargs)
        given = [*args, *kwargs.values()] if bound is None else list(bound.values())
        if bound is not None and name in _ORDERS:
            # Before the call: an op in place changes its argument.
            name, given = _ORDERS[name](name, bound)
        elif name == "einsum":
            operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else list(args[1:])
            given = [args[0], operands, None]
        elif name in ("add", "sub", "add_", "sub_") and len(given) == 2:
            given = [*given, 1]
        return self.add(_NAMES.get(name, name), given, func(*args, **kwargs))


_current = None


def tracing_state():
    """The state of the trace under way; None outside of one."""
    return _current


def _get_trace_graph(f, args=(), kwargs=None, strict=True, _force_outplace=False, return_inputs=False, _return_inputs_states=False):
    """Calls a function or module and returns the graph of its ops, and what it returned (with ``return_inputs`` also its arguments)."""
    global _current
    if _current is not None:
        raise RuntimeError("_get_trace_graph: a trace is under way already")
    if _return_inputs_states:
        raise NotImplementedError("_get_trace_graph: values of inputs after the call are not kept; leave _return_inputs_states out")
    args = args if isinstance(args, tuple) else (args,)
    kwargs = kwargs or {}
    _current = TracingState()
    recorder = _Recorder(_current)
    try:
        for leaf in _pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor):
                recorder.enter(leaf)
        if hasattr(f, "state_dict"):
            for tensor in f.state_dict(keep_vars=True).values():
                if isinstance(tensor, Tensor):
                    recorder.enter(tensor)
        with recorder:
            outputs = f(*args, **kwargs)
        graph = _current.graph()
        graph._exit = Node(graph, "prim::Return", [recorder.value(leaf) for leaf in _pytree.tree_leaves(outputs)])
    finally:
        _current = None
    return (graph, outputs, args) if return_inputs else (graph, outputs)
