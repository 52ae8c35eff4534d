"""``Graph``: steps in order, as data and as Python code."""

import builtins
import copy
import keyword
import operator
import re
from contextlib import contextmanager
from dataclasses import dataclass

from .node import Argument, Node, _qualified_name, map_arg  # noqa: F401

__all__ = ["Graph", "PythonCode"]

_BINARY = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/", operator.mod: "%", operator.pow: "**",
    operator.lshift: "<<", operator.rshift: ">>", operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.matmul: "@", operator.eq: "==",
    operator.ne: "!=", operator.lt: "<", operator.gt: ">", operator.le: "<=", operator.ge: ">=",
}
_UNARY = {operator.pos: "+", operator.neg: "-", operator.invert: "~"}


@dataclass
class PythonCode:
    """A graph as a function's text and the globals it needs."""

    src: str
    globals: dict


class _Names:
    """Names that are not in use yet."""

    def __init__(self):
        self._used = set()

    def create(self, candidate):
        candidate = re.sub(r"[^0-9a-zA-Z_]", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = "_" + candidate
        name, base, count = candidate, re.sub(r"_\d+$", "", candidate) or candidate, 0
        while name in self._used or keyword.iskeyword(name) or hasattr(builtins, name) or name in ("self", "torch", "inf", "nan", "device", "dtype"):
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        return name


class _NodeList:
    """The nodes of a graph in order."""

    def __init__(self, graph, reverse=False):
        self._graph, self._reverse = graph, reverse

    def __len__(self):
        return self._graph._len

    def __iter__(self):
        node = self._graph._root._prev if self._reverse else self._graph._root._next
        while node is not self._graph._root:
            # A node may be erased, or moved, while it is visited.
            following = node._prev if self._reverse else node._next
            if not node._erased:
                yield node
            node = (node._prev if self._reverse else node._next) if not node._erased else following

    def __reversed__(self):
        return _NodeList(self._graph, not self._reverse)


class Graph:
    """Steps in the order they run. Made by tracing, or by hand with ``placeholder``, ``call_function`` and the like."""

    def __init__(self, owning_module=None, tracer_cls=None, tracer_extras=None):
        self._root = Node(self, "", "root", "", (), {})
        self._len, self._names = 0, _Names()
        self._insert = self._root.prepend
        self.owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras

    @property
    def nodes(self):
        return _NodeList(self)

    def find_nodes(self, *, op, target=None, sort=True):
        """Nodes of a kind, and of a target if one is given."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self):
        return next(n for n in reversed(self.nodes) if n.op == "output")

    # Creation of steps.

    def create_node(self, op, target, args=None, kwargs=None, name=None, type_expr=None):
        """A step at the place of insertion: the end, unless ``inserting_before`` or ``inserting_after`` changes it."""
        name = self._names.create(name if name is not None else _suggestion(target, op))
        node = Node(self, name, op, target, args or (), kwargs or {}, type_expr)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name, type_expr=None, default_value=None):
        return self.create_node("placeholder", name, () if default_value is None else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name, type_expr=None):
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name, args=None, kwargs=None, type_expr=None):
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name, args=None, kwargs=None, type_expr=None):
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None):
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result, type_expr=None):
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node, arg_transform=lambda node: node):
        """A copy of another graph's node, its arguments translated."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g, val_map, return_output_node=False):
        """Copies all nodes of a graph but its output. Returns the value of the output."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    @contextmanager
    def _inserting(self, insert):
        before, self._insert = self._insert, insert
        try:
            yield
        finally:
            self._insert = before

    def inserting_before(self, n=None):
        """Within this context, steps are made before a node (before the first, if none is given)."""
        return self._inserting((n or self._root._next).prepend)

    def inserting_after(self, n=None):
        """Within this context, steps are made after a node, in order."""
        at = [n or self._root]

        def insert(node):
            at[0].append(node)
            at[0] = node

        return self._inserting(insert)

    # Removing steps.

    def erase_node(self, to_erase):
        """Removes a node that nothing uses."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._set((), {})
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1

    def eliminate_dead_code(self, is_impure_node=None):
        """Removes steps with unused values. Returns whether there were any."""
        before = self._len
        impure = is_impure_node or Node.is_impure
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
        return self._len < before

    def lint(self):
        """Raises unless names are unique and every node is used only by later nodes of this graph."""
        seen, names = set(), set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            for argument in node.all_input_nodes:
                if argument.graph is not self or argument not in seen:
                    raise RuntimeError(f"Argument '{argument}' of Node '{node}' was used before it has been defined!")
            seen.add(node)
            names.add(node.name)

    # As code.

    def python_code(self, root_module="self", *, verbose=False):
        """The text of ``forward``."""
        return _Writer(self, root_module).write()

    def print_tabular(self):
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, n._pretty_print_target(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for at, row in enumerate(rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)))
            if at == 0:
                print("  ".join("-" * width for width in widths))

    def __str__(self):
        inputs = [n.name for n in self.nodes if n.op == "placeholder"]
        return f"graph({', '.join('%' + i + ' : [num_users=' + str(len(n.users)) + ']' for i, n in zip(inputs, self.find_nodes(op='placeholder')))}):" + "".join(
            f"\n    {node.format_node()}" for node in self.nodes if node.op != "placeholder"
        )

    # Copies.

    def __deepcopy__(self, memo=None):
        made = Graph(tracer_cls=self._tracer_cls)
        values = {}
        made.graph_copy(self, values)
        for node in self.nodes:
            if node.op == "output":
                made.output(map_arg(node.args[0], lambda n: values[n]), node.type)
        if memo is not None:
            memo[id(self)] = made
        return made

    def __reduce__(self):
        places = {node: at for at, node in enumerate(self.nodes)}
        steps = [(n.op, n.target, map_arg(n.args, lambda a: _Place(places[a])), map_arg(n.kwargs, lambda a: _Place(places[a])), n.name) for n in self.nodes]
        return _rebuild, (steps,)


@dataclass(frozen=True)
class _Place:
    """A node in a pickled graph, by its number."""

    index: int


def _rebuild(steps):
    from .node import map_aggregate

    graph, made = Graph(), []
    for op, target, args, kwargs, name in steps:
        place = lambda value: made[value.index] if isinstance(value, _Place) else value  # noqa: E731
        made.append(graph.create_node(op, target, map_aggregate(args, place), map_aggregate(kwargs, place), name))
    return graph


def _suggestion(target, op):
    if op == "output":
        return "output"
    name = target if isinstance(target, str) else getattr(target, "__name__", "call")
    # `__getitem__` and the like lose their underscores.
    name = name.lstrip("*").replace(".", "_").strip("_") or "call"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if isinstance(target, str) and op == "call_module" else name.lower()


class _Writer:
    """Writes a graph as a function."""

    def __init__(self, graph, root):
        import rushlight

        self._graph, self._root = graph, root
        self._globals, self._taken = {"torch": rushlight, "device": rushlight.device, "inf": float("inf"), "nan": float("nan")}, {}
        self._used = {n.name for n in graph.nodes}

    def _name(self, value, hint):
        """The name of a value that has no literal."""
        if id(value) not in self._taken:
            base, count = re.sub(r"[^0-9a-zA-Z_]", "_", hint), 0
            name = base
            while name in self._globals or name in self._used or hasattr(builtins, name):
                count += 1
                name = f"{base}_{count}"
            self._globals[name] = value
            self._taken[id(value)] = name
        return self._taken[id(value)]

    def _function(self, function):
        path = _qualified_name(function)
        if getattr(builtins, path, None) is function:
            return path
        if path.startswith("torch."):
            found = self._globals["torch"]
            for part in path.split(".")[1:]:
                found = getattr(found, part, None) if found is not None else None
            if found is function:
                return path
        return self._name(function, path.replace(".", "_"))

    def _value(self, value):
        import rushlight

        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return "(" + ", ".join(map(self._value, value)) + ("," if len(value) == 1 else "") + ")"
        if isinstance(value, tuple):
            return f"{self._name(type(value), type(value).__name__)}({', '.join(map(self._value, value))})"
        if isinstance(value, list):
            return "[" + ", ".join(map(self._value, value)) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self._value(item)}" for key, item in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self._value(value.start)}, {self._value(value.stop)}, {self._value(value.step)})"
        if isinstance(value, rushlight.dtype):
            return repr(value)
        if value is Ellipsis or value is None or isinstance(value, (bool, int, float, str, bytes, complex)) and type(value).__module__ == "builtins":
            return "..." if value is Ellipsis else repr(value)
        if isinstance(value, rushlight.device):
            return repr(value)
        if callable(value) and hasattr(value, "__name__"):
            return self._function(value)
        return self._name(value, f"_constant_{type(value).__name__}")

    def _call(self, node):
        arguments = [self._value(a) for a in node.args] + [f"{key} = {self._value(v)}" for key, v in node.kwargs.items()]
        return ", ".join(arguments)

    def _expression(self, node):
        if node.op == "get_attr":
            return _access(self._root, node.target)
        if node.op == "call_module":
            return f"{_access(self._root, node.target)}({self._call(node)})"
        if node.op == "call_method":
            rest = [self._value(a) for a in node.args[1:]] + [f"{key} = {self._value(v)}" for key, v in node.kwargs.items()]
            return f"{self._value(node.args[0])}.{node.target}({', '.join(rest)})"
        if node.target in _BINARY and len(node.args) == 2 and not node.kwargs:
            return f"{self._value(node.args[0])} {_BINARY[node.target]} {self._value(node.args[1])}"
        if node.target in _UNARY and not node.kwargs:
            return f"{_UNARY[node.target]}{self._value(node.args[0])}"
        if node.target is operator.getitem:
            return f"{self._value(node.args[0])}[{self._value(node.args[1])}]"
        if node.target is getattr and len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
            return f"{self._value(node.args[0])}.{node.args[1]}"
        return f"{self._function(node.target)}({self._call(node)})"

    def write(self):
        last = {}
        for node in self._graph.nodes:
            for argument in node.all_input_nodes:
                last[argument] = node
        parameters, lines = [], []
        for node in self._graph.nodes:
            if node.op == "placeholder":
                default = f" = {self._value(node.args[0])}" if node.args else ""
                stars = "*" * (len(str(node.target)) - len(str(node.target).lstrip("*")))
                parameters.append(f"{stars}{node.name}{default}")
                continue
            if node.op == "output":
                lines.append(f"return {self._value(node.args[0])}")
                continue
            # Values are deleted after their last use, as in the program that was traced.
            gone = [a.name for a in node.all_input_nodes if last[a] is node]
            if not node.users:
                gone.append(node.name)
            after = ";  " + " = ".join(gone) + " = None" if gone else ""
            lines.append(f"{node.name} = {self._expression(node)}{after}")
        body = "\n".join(f"    {line}" for line in lines) or "    pass"
        return PythonCode(f"def forward({', '.join([self._root, *parameters])}):\n{body}\n", self._globals)


def _access(root, path):
    """An attribute's path as an expression; parts that are not identifiers, as in ``Sequential``, use ``getattr``."""
    for part in path.split("."):
        root = f"{root}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f"getattr({root}, {part!r})"
    return root
