"""``torch.utils._pytree``: nested containers as lists of their leaves. Known to much public code though its name says private."""

import dataclasses
import json
import types
from collections import OrderedDict, defaultdict, deque, namedtuple  # noqa: F401
from typing import Any, Callable, NamedTuple, Optional

Context = Any
PyTree = Any

# Keys: where a leaf is.


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A place in a list or tuple."""

    idx: int

    def __str__(self):
        return f"[{self.idx!r}]"

    def get(self, sequence):
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A key of a dictionary."""

    key: Any

    def __str__(self):
        return f"[{self.key!r}]"

    def get(self, mapping):
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """A field of a named tuple or an object."""

    name: str

    def __str__(self):
        return f".{self.name}"

    def get(self, obj):
        return getattr(obj, self.name)


KeyEntry = Any
KeyPath = tuple


def keystr(kp):
    """A path of keys as code writes it."""
    return "".join(str(key) for key in kp)


def key_get(obj, kp):
    """What is at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


# Kinds of nodes.


class NodeDef(NamedTuple):
    """How objects of a class are taken apart and put together."""

    type: type
    flatten_fn: Callable
    unflatten_fn: Callable
    flatten_with_keys_fn: Optional[Callable] = None


class _Serialised(NamedTuple):
    name: Optional[str]
    to_dumpable: Optional[Callable]
    from_dumpable: Optional[Callable]


SUPPORTED_NODES = {}
SUPPORTED_SERIALIZED_TYPES = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE = {}
CONSTANT_NODES = set()
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})


def register_pytree_node(
    cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None, from_dumpable_context=None, flatten_with_keys_fn=None
):
    """Has a class of its own taken apart: ``flatten_fn(object)`` gives children and context, ``unflatten_fn(children, context)`` the reverse."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _private_register_pytree_node(
        cls, flatten_fn, unflatten_fn, serialized_type_name=serialized_type_name, to_dumpable_context=to_dumpable_context,
        from_dumpable_context=from_dumpable_context, flatten_with_keys_fn=flatten_with_keys_fn,
    )


def _private_register_pytree_node(
    cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None, from_dumpable_context=None, flatten_with_keys_fn=None
):
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    SUPPORTED_SERIALIZED_TYPES[cls] = _Serialised(name, to_dumpable_context, from_dumpable_context)
    SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = cls


_register_pytree_node = _private_register_pytree_node


def _deregister_pytree_node(cls):
    SUPPORTED_NODES.pop(cls, None)
    SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(getattr(SUPPORTED_SERIALIZED_TYPES.pop(cls, None), "name", None), None)


def register_constant(cls):
    """Has objects of a class be part of the structure, with no leaves."""
    CONSTANT_NODES.add(cls)
    register_pytree_node(cls, lambda x: ([], x), lambda children, context: context, flatten_with_keys_fn=lambda x: ([], x))


def is_constant_class(cls):
    return cls in CONSTANT_NODES


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Has the fields of a data class be its children."""
    names = list(field_names) if field_names is not None else [f.name for f in dataclasses.fields(cls) if f.init and f.name not in (drop_field_names or ())]

    def flatten(obj):
        there = [name for name in names if getattr(obj, name) is not None]
        return [getattr(obj, name) for name in there], [there, [name for name in names if name not in there]]

    def with_keys(obj):
        children, context = flatten(obj)
        return [(GetAttrKey(name), child) for name, child in zip(context[0], children)], context

    def unflatten(children, context):
        return cls(**dict(zip(context[0], children)), **dict.fromkeys(context[1]))

    _private_register_pytree_node(cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=with_keys)


def _list_flatten(d):
    return d, None


def _list_unflatten(values, context):
    return list(values)


def _list_flatten_with_keys(d):
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _tuple_flatten(d):
    return list(d), None


def _tuple_unflatten(values, context):
    return tuple(values)


_tuple_flatten_with_keys = _list_flatten_with_keys


def _dict_flatten(d):
    return list(d.values()), list(d.keys())


def _dict_unflatten(values, context):
    return dict(zip(context, values))


def _dict_flatten_with_keys(d):
    values, context = _dict_flatten(d)
    return [(MappingKey(key), value) for key, value in zip(context, values)], context


_ordereddict_flatten, _ordereddict_flatten_with_keys = _dict_flatten, _dict_flatten_with_keys


def _ordereddict_unflatten(values, context):
    return OrderedDict(zip(context, values))


def _defaultdict_flatten(d):
    values, context = _dict_flatten(d)
    return values, [d.default_factory, context]


def _defaultdict_unflatten(values, context):
    return defaultdict(context[0], _dict_unflatten(values, context[1]))


def _defaultdict_flatten_with_keys(d):
    values, context = _defaultdict_flatten(d)
    return [(MappingKey(key), value) for key, value in zip(context[1], values)], context


def _deque_flatten(d):
    return list(d), d.maxlen


def _deque_unflatten(values, context):
    return deque(values, maxlen=context)


def _deque_flatten_with_keys(d):
    return [(SequenceKey(i), v) for i, v in enumerate(d)], d.maxlen


def _namedtuple_flatten(d):
    return list(d), type(d)


def _namedtuple_unflatten(values, context):
    return context(*values)


def _namedtuple_flatten_with_keys(d):
    return [(GetAttrKey(name), value) for name, value in zip(d._fields, d)], type(d)


for _kind, _name in (
    (list, "list"), (tuple, "tuple"), (dict, "dict"), (OrderedDict, "ordereddict"), (defaultdict, "defaultdict"), (deque, "deque"), (namedtuple, "namedtuple"),
):
    _private_register_pytree_node(
        _kind, globals()[f"_{_name}_flatten"], globals()[f"_{_name}_unflatten"], flatten_with_keys_fn=globals()[f"_{_name}_flatten_with_keys"],
        serialized_type_name=f"collections.{_kind.__name__}" if _name not in ("list", "tuple", "dict") else f"builtins.{_name}",
    )


def is_namedtuple_class(cls):
    """Whether a class was made by ``namedtuple``."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple) and hasattr(cls, "_make")


def is_namedtuple(obj):
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


_is_namedtuple_instance = is_namedtuple_instance = lambda tree: is_namedtuple_class(type(tree))  # noqa: E731


def is_structseq_class(cls):
    """Whether a class is one of the interpreter's named tuples, such as ``time.struct_time``."""
    return isinstance(cls, type) and cls.__base__ is tuple and isinstance(getattr(cls, "n_fields", None), int)


def is_structseq(obj):
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def _get_node_type(tree):
    kind = type(tree)
    if kind in SUPPORTED_NODES:
        return kind
    # `torch.return_types` are named tuples whose class takes one tuple.
    return namedtuple if is_namedtuple_class(kind) else kind


def _is_leaf(tree, is_leaf=None):
    return is_leaf is not None and is_leaf(tree) or _get_node_type(tree) not in SUPPORTED_NODES


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
        """The parts of a tree at the places of this structure's leaves."""
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


# Taking apart and putting together.


def _flatten(tree, leaves, is_leaf):
    if _is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF_SPEC
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, leaves, is_leaf) for child in children])


def _apart(tree):
    """A node's type, context and children; None for leaves."""
    if _is_leaf(tree):
        return None
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return kind, context, list(children)


def tree_flatten(tree, is_leaf=None):
    """The leaves of a tree, in order, and what is needed to put it together again."""
    leaves = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves, treespec):
    """The tree that ``tree_flatten`` took apart, with these leaves."""
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
    """The tree with ``func`` of each leaf, and of what others have at its place."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(other) for other in rests]
    return tree_unflatten([func(*group) for group in zip(leaves, *others)], spec)


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls ``func`` of each leaf. Returns the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for group in zip(leaves, *[spec.flatten_up_to(other) for other in rests]):
        func(*group)
    return tree


def _chosen(kind):
    union = getattr(types, "UnionType", ())
    return kind if callable(kind) and not isinstance(kind, (type, union)) else lambda leaf: isinstance(leaf, kind)


def map_only(type_or_types_or_pred, /):
    """A decorator: a function for leaves of some types, others stay as they are."""
    chosen = _chosen(type_or_types_or_pred)
    return lambda func: lambda leaf: func(leaf) if chosen(leaf) else leaf


def tree_map_only(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """``tree_map`` for leaves of some types, or that a function chooses; others stay as they are."""
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
    """A structure in words."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


class _Star(str):
    def __new__(cls):
        return super().__new__(cls, "*")

    def __repr__(self):
        return "*"


def arg_tree_leaves(*args, **kwargs):
    """The leaves of arguments."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_leaves(value)]
