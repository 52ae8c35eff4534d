"""Node classes of ``torch.utils._pytree``: their keys, and how they are flattened and rebuilt."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple  # noqa: F401
from typing import Any, Callable, NamedTuple, Optional

Context = Any
PyTree = Any

# Keys: the position of a leaf.


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """An index of a list or tuple."""

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
    """A path of keys in Python's syntax."""
    return "".join(str(key) for key in kp)


def key_get(obj, kp):
    """The object at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


# Node classes.


class NodeDef(NamedTuple):
    """How objects of a class are flattened and rebuilt."""

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
    """Registers a class: ``flatten_fn(object)`` returns children and context, ``unflatten_fn(children, context)`` rebuilds the object."""
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
    """Makes objects of a class part of the structure, without leaves."""
    CONSTANT_NODES.add(cls)
    register_pytree_node(cls, lambda x: ([], x), lambda children, context: context, flatten_with_keys_fn=lambda x: ([], x))


def is_constant_class(cls):
    return cls in CONSTANT_NODES


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Registers a data class with its fields as children."""
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
