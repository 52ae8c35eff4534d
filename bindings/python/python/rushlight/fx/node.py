"""``Node``: one step of a graph."""

import types
from typing import Any, Callable, Union

from .immutable_collections import immutable_dict, immutable_list

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

_SIDE_EFFECTS = set()

#: Types of a node's target and arguments.
Target = Union[Callable[..., Any], str]
Argument = Any


def has_side_effect(fn):
    """Keeps calls of a function from being removed as dead code. Returns the function."""
    _SIDE_EFFECTS.add(fn)
    return fn


def map_aggregate(a, fn):
    """A nested argument with ``fn`` applied to each value that is not a container."""
    if isinstance(a, tuple):
        made = tuple(map_aggregate(item, fn) for item in a)
        return made if not hasattr(a, "_fields") else type(a)(*made)
    if isinstance(a, list):
        return immutable_list(map_aggregate(item, fn) for item in a)
    if isinstance(a, dict):
        return immutable_dict((key, map_aggregate(value, fn)) for key, value in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a, fn):
    """A nested argument with ``fn`` applied to each node."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


def _qualified_name(function):
    """A function's name as programs write it."""
    module = getattr(function, "__module__", None) or "builtins"
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", repr(function))
    for compiled, public in (("rushlight._C._torch", "torch"), ("rushlight._C._nn", "torch.nn.functional"), ("rushlight._C._linalg", "torch.linalg"),
                             ("rushlight._C._special", "torch.special"), ("rushlight", "torch")):
        if module == compiled or module.startswith(compiled + "."):
            module = public + module[len(compiled):]
            break
    module = {"_operator": "operator"}.get(module, module)
    name = name.rpartition(".")[2] if name.startswith("Tensor.") else name
    return name if module == "builtins" else f"{module}.{name}"


class Node:
    """A step: a placeholder, an attribute, a call of a function, method or module, or the output. ``args`` and ``kwargs`` hold other nodes."""

    def __init__(self, graph, name, op, target, args, kwargs, return_type=None):
        if op not in ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root"):
            raise AssertionError(f"unknown op {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is expected")
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.users, self._input_nodes, self.meta, self.type = {}, {}, {}, return_type
        self._prev = self._next = self
        self._erased = False
        self._args, self._kwargs = (), {}
        self._set(args, kwargs)

    # Its place.

    @property
    def next(self):
        return self._next

    @property
    def prev(self):
        return self._prev

    def prepend(self, x):
        """Moves a node to the place before this one."""
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x):
        """Moves a node to the place after this one."""
        if x is not self:
            self._next.prepend(x)

    def _unlink(self):
        self._prev._next, self._next._prev = self._next, self._prev

    # Its arguments.

    def _set(self, args, kwargs):
        self._args, self._kwargs = map_aggregate(tuple(args), lambda v: v), map_aggregate(dict(kwargs), lambda v: v)
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = {}
        map_arg((self._args, self._kwargs), lambda node: self._input_nodes.setdefault(node))
        for node in self._input_nodes:
            node.users.setdefault(self)

    @property
    def args(self):
        return self._args

    @args.setter
    def args(self, args):
        self._set(args, self._kwargs)

    @property
    def kwargs(self):
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs):
        self._set(self._args, kwargs)

    @property
    def all_input_nodes(self):
        return list(self._input_nodes)

    def update_arg(self, idx, arg):
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx, arg):
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key, arg):
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input, new_input):
        """Replaces one argument node by another."""
        exchange = lambda node: new_input if node is old_input else node  # noqa: E731
        self._set(map_arg(self._args, exchange), map_arg(self._kwargs, exchange))

    def replace_all_uses_with(self, replace_with, delete_user_cb=lambda user: True, *, propagate_meta=False):
        """Replaces this node by another in all its users. Returns them."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def is_impure(self, impure_random=True):
        """Whether the step has side effects."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _SIDE_EFFECTS
        if self.op == "call_module":
            module = self.graph.owning_module and self.graph.owning_module.get_submodule(self.target)
            return getattr(module, "_is_impure", False)
        return self.op == "call_method" and str(self.target).endswith("_") and not str(self.target).endswith("__")

    # As text.

    @property
    def stack_trace(self):
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace):
        self.meta["stack_trace"] = trace

    def _pretty_print_target(self, target):
        return target if isinstance(target, str) else _qualified_name(target)

    def format_node(self, placeholder_names=None, maybe_return_typename=None):
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "output":
            return f"return {self.args[0]}"
        body = f"[target={self._pretty_print_target(self.target)}]"
        if self.op != "get_attr":
            body += f"(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"
        return f"%{self.name} : [num_users={len(self.users)}] = {self.op}{body}"

    def __repr__(self):
        return self.name

    def __lt__(self, other):
        node = self._next
        while node.op != "root":
            if node is other:
                return True
            node = node._next
        return False

    def __gt__(self, other):
        return other < self


def _shown(a):
    if isinstance(a, tuple):
        return "(" + ", ".join(map(_shown, a)) + ("," if len(a) == 1 else "") + ")"
    if isinstance(a, list):
        return "[" + ", ".join(map(_shown, a)) + "]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{key}: {_shown(value)}" for key, value in a.items()) + "}"
    if isinstance(a, (types.FunctionType, types.BuiltinFunctionType)):
        return _qualified_name(a)
    return f"%{a.name}" if isinstance(a, Node) else str(a)
