"""``torch.utils._pytree``: nested containers as lists of their leaves. Public libraries use it although its name is private."""

import dataclasses
import json
import types
from collections import OrderedDict, defaultdict, deque, namedtuple  # noqa: F401
from typing import Any

from ._pytree_nodes import (  # noqa: F401
    BUILTIN_TYPES, CONSTANT_NODES, Context, GetAttrKey, KeyEntry, KeyPath, MappingKey, NodeDef, PyTree, SERIALIZED_TYPE_TO_PYTHON_TYPE,
    SUPPORTED_NODES, SUPPORTED_SERIALIZED_TYPES, SequenceKey, _Serialised, _defaultdict_flatten, _defaultdict_flatten_with_keys,
    _defaultdict_unflatten, _deque_flatten, _deque_flatten_with_keys, _deque_unflatten, _deregister_pytree_node, _dict_flatten,
    _dict_flatten_with_keys, _dict_unflatten, _get_node_type, _is_leaf, _is_namedtuple_instance, _list_flatten, _list_flatten_with_keys,
    _list_unflatten, _namedtuple_flatten, _namedtuple_flatten_with_keys, _namedtuple_unflatten, _ordereddict_flatten, _ordereddict_flatten_with_keys,
    _ordereddict_unflatten, _private_register_pytree_node, _register_pytree_node, _tuple_flatten, _tuple_flatten_with_keys, _tuple_unflatten,
    is_constant_class, is_namedtuple, is_namedtuple_class, is_namedtuple_instance, is_structseq, is_structseq_class, key_get, keystr,
    register_constant, register_dataclass, register_pytree_node,
)

# Structures.


@dataclasses.dataclass(init=False, frozen=True, eq=True, repr=False)
class TreeSpec:
    """The containers of a tree, without its leaves."""

    type: Any
    context: Any
    children_specs: list
    num_nodes: int = dataclasses.field(compare=False)
    num_leaves: int = dataclasses.field(compare=False)
    num_children: int = dataclasses.field(compare=False)

    def __init__(self, type, context, children_specs):
        children = list(children_specs)
        put = object.__setattr__
        put(self, "type", type), put(self, "context", context), put(self, "children_specs", children)
        leaf = type is None
        put(self, "num_nodes", 1 + sum(child.num_nodes for child in children))
        put(self, "num_leaves", 1 if leaf else sum(child.num_leaves for child in children))
        put(self, "num_children", len(children))

    def __hash__(self):
        node_type = self.type
        context = tuple(self.context) if isinstance(self.context, list) else None if node_type is defaultdict else self.context
        return hash((node_type, repr(context), tuple(map(hash, self.children_specs))))

    def is_leaf(self):
        return self.type is None

    def children(self):
        return list(self.children_specs)

    def child(self, index):
        return self.children_specs[index]

    def unflatten(self, leaves):
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree):
        """The subtrees of a tree at the positions of this structure's leaves."""
        found = []

        def walk(spec, part):
            if spec.is_leaf():
                found.append(part)
                return
            if _get_node_type(part) != spec.type:
                raise ValueError(f"Type mismatch; expected {spec.type!r}, but got {type(part)!r}.")
            children, context = SUPPORTED_NODES[spec.type].flatten_fn(part)
            children = list(children)
            if len(children) != spec.num_children:
                raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}.")
            if spec.type in (dict, OrderedDict, defaultdict):
                keys = spec.context[1] if spec.type is defaultdict else spec.context
                if set(keys) != set(part):
                    raise ValueError(f"Node keys mismatch: {sorted(map(str, set(keys) ^ set(part)))}")
                children = [part[key] for key in keys]
            elif context != spec.context:
                raise ValueError(f"Node context mismatch for {spec.type!r}: {spec.context!r} and {context!r}.")
            for inner, child in zip(spec.children_specs, children):
                walk(inner, child)

        walk(self, tree)
        return found

    def __repr__(self, indent=0):
        if self.is_leaf():
            return "*"
        inner = ", ".join(map(repr, self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inner}])"


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    def __init__(self):
        super().__init__(None, None, [])

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and other.is_leaf()

    def __hash__(self):
        return hash(None)


_LEAF_SPEC = LeafSpec()


def treespec_leaf():
    return _LEAF_SPEC


def treespec_tuple(iterable=()):
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping=(), **kwargs):
    specs = dict(mapping, **kwargs)
    return TreeSpec(dict, list(specs), list(specs.values()))


# Flattening and rebuilding.


def _flatten(tree, leaves, is_leaf):
    if _is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF_SPEC
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, leaves, is_leaf) for child in children])


def _node_parts(tree):
    """A node's type, context and children; None for leaves."""
    if _is_leaf(tree):
        return None
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return kind, context, list(children)


def tree_flatten(tree, is_leaf=None):
    """The leaves of a tree, in order, and its structure."""
    leaves = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves, treespec):
    """The tree of a structure with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type {type(treespec)}.")
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that holds {treespec.num_leaves} items "
            f"({treespec})."
        )
    rest = iter(leaves)

    def build(spec):
        if spec.is_leaf():
            return next(rest)
        children = [build(child) for child in spec.children_specs]
        if spec.type is namedtuple and spec.context.__module__ == "rushlight.return_types":
            return spec.context(children)
        return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)

    return build(treespec)


def tree_iter(tree, is_leaf=None):
    """The leaves of a tree, one after the other."""
    yield from tree_flatten(tree, is_leaf)[0]


def tree_leaves(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_is_leaf(tree, is_leaf=None):
    return _is_leaf(tree, is_leaf)


def tree_map(func, tree, *rests, is_leaf=None):
    """The tree with ``func`` applied to each leaf and to the other trees' subtrees at its position."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(other) for other in rests]
    return tree_unflatten([func(*group) for group in zip(leaves, *others)], spec)


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls ``func`` on each leaf. Returns the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for group in zip(leaves, *[spec.flatten_up_to(other) for other in rests]):
        func(*group)
    return tree


def _chosen(kind):
    union = getattr(types, "UnionType", ())
    return kind if callable(kind) and not isinstance(kind, (type, union)) else lambda leaf: isinstance(leaf, kind)


def map_only(type_or_types_or_pred, /):
    """A decorator that applies a function to leaves of some types only."""
    chosen = _chosen(type_or_types_or_pred)
    return lambda func: lambda leaf: func(leaf) if chosen(leaf) else leaf


def tree_map_only(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """``tree_map`` for leaves of some types, or for which a predicate holds; other leaves are unchanged."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """``tree_map_`` for leaves of some types."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types, /, pred, tree, is_leaf=None):
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(type_or_types, /, pred, tree, is_leaf=None):
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """The leaves of a tree repeated to another's structure; None if it does not fit."""
    if treespec.is_leaf():
        return [tree] if _is_leaf(tree, is_leaf) else None
    if _is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    children = list(children)
    if kind != treespec.type or context != treespec.context or len(children) != treespec.num_children:
        return None
    found = []
    for child, spec in zip(children, treespec.children_specs):
        inner = _broadcast_to_and_flatten(child, spec, is_leaf)
        if inner is None:
            return None
        found += inner
    return found


# With keys.


def tree_flatten_with_path(tree, is_leaf=None):
    """Pairs of a path and a leaf, and the structure."""
    _, spec = tree_flatten(tree, is_leaf)
    return list(_with_keys((), tree, is_leaf)), spec


def _with_keys(path, tree, is_leaf):
    if _is_leaf(tree, is_leaf):
        yield path, tree
        return
    flatten = SUPPORTED_NODES[_get_node_type(tree)].flatten_with_keys_fn
    if flatten is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(tree)}. Please pass one when registering it.")
    for key, child in flatten(tree)[0]:
        yield from _with_keys((*path, key), child, is_leaf)


def tree_leaves_with_path(tree, is_leaf=None):
    return list(_with_keys((), tree, is_leaf))


def tree_iter_with_path(tree, is_leaf=None):
    yield from _with_keys((), tree, is_leaf)


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """``tree_map`` of functions that get a leaf's path first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(other) for other in rests]
    return tree_unflatten([func(path, leaf, *more) for (path, leaf), *more in zip(pairs, *others)], spec)


# As text.


def treespec_dumps(treespec, protocol=None):
    """A structure as JSON."""

    def dump(spec):
        if spec.is_leaf():
            return {"type": None, "context": None, "children_spec": []}
        known = SUPPORTED_SERIALIZED_TYPES[spec.type]
        context = known.to_dumpable(spec.context) if known.to_dumpable else _context_to_json(spec)
        return {"type": known.name, "context": context, "children_spec": [dump(child) for child in spec.children_specs]}

    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"treespec_dumps(treespec, protocol): Expected `treespec` to be instance of TreeSpec but got item of type {type(treespec)}.")
    return json.dumps([1, dump(treespec)])


def _context_to_json(spec):
    if spec.type is namedtuple:
        return json.dumps([spec.context.__name__, list(spec.context._fields)])
    if spec.type is defaultdict:
        factory = spec.context[0]
        return json.dumps([factory and f"{factory.__module__}.{factory.__qualname__}", spec.context[1]])
    return json.dumps(spec.context)


def treespec_loads(serialized):
    """A structure from JSON."""
    version, data = json.loads(serialized)
    if version != 1:
        raise ValueError(f"Unknown protocol {version}. Available protocols: [1]")

    def load(part):
        if part["type"] is None:
            return _LEAF_SPEC
        kind = SERIALIZED_TYPE_TO_PYTHON_TYPE[part["type"]]
        known = SUPPORTED_SERIALIZED_TYPES[kind]
        if known.from_dumpable:
            context = known.from_dumpable(part["context"])
        else:
            context = json.loads(part["context"])
            if kind is namedtuple:
                context = namedtuple(context[0], context[1])
            elif kind is defaultdict and context[0]:
                import importlib

                module, _, name = context[0].rpartition(".")
                context = [getattr(importlib.import_module(module), name), context[1]]
        return TreeSpec(kind, context, [load(child) for child in part["children_spec"]])

    return load(data)


def treespec_pprint(treespec):
    """A structure as text."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


class _Star(str):
    def __new__(cls):
        return super().__new__(cls, "*")

    def __repr__(self):
        return "*"


def arg_tree_leaves(*args, **kwargs):
    """The leaves of arguments."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_leaves(value)]
