"""``torch.utils._pytree``: nested containers as lists of their leaves. Known to much public code though its name says private."""

from collections import OrderedDict, namedtuple  # noqa: F401


class TreeSpec:
    """The containers of a tree, without its leaves."""

    def __init__(self, type, context, children):
        self.type, self.context, self.children_specs = type, context, children
        self.num_leaves = 1 if type is None else sum(child.num_leaves for child in children)

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == (other.type, other.context, other.children_specs)

    __hash__ = None

    def is_leaf(self):
        return self.type is None

    def __repr__(self):
        return "*" if self.type is None else f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


LeafSpec = lambda: TreeSpec(None, None, [])  # noqa: E731

_registered = {}


def register_pytree_node(cls, flatten_fn, unflatten_fn, **names):
    """Has a class of its own taken apart: ``flatten_fn(object)`` gives children and context, ``unflatten_fn(children, context)`` the reverse."""
    _registered[cls] = flatten_fn, unflatten_fn


def _apart(tree):
    """A node's type, context and children; None for leaves."""
    kind = type(tree)
    if kind in _registered:
        children, context = _registered[kind][0](tree)
        return kind, context, list(children)
    if kind in (dict, OrderedDict):
        return kind, list(tree), list(tree.values())
    if kind in (list, tuple) or isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind, None, list(tree)
    return None


def _together(spec, children):
    if spec.type in _registered:
        return _registered[spec.type][1](children, spec.context)
    if spec.type in (dict, OrderedDict):
        return spec.type(zip(spec.context, children))
    return spec.type(*children) if hasattr(spec.type, "_fields") else spec.type(children)


def tree_flatten(tree, is_leaf=None):
    """The leaves of a tree, in order, and what is needed to put it together again."""
    node = None if is_leaf is not None and is_leaf(tree) else _apart(tree)
    if node is None:
        return [tree], LeafSpec()
    kind, context, children = node
    leaves, specs = [], []
    for child in children:
        found, spec = tree_flatten(child, is_leaf)
        leaves += found
        specs.append(spec)
    return leaves, TreeSpec(kind, context, specs)


def tree_unflatten(leaves, treespec):
    """The tree that ``tree_flatten`` took apart, with these leaves."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that holds {treespec.num_leaves} items")
    rest = iter(leaves)

    def build(spec):
        return next(rest) if spec.type is None else _together(spec, [build(child) for child in spec.children_specs])

    return build(treespec)


def tree_leaves(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """The tree with ``func`` of each leaf, and of the leaves of others at its place."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(other, is_leaf)[0] for other in rests]
    return tree_unflatten([func(*group) for group in zip(leaves, *others)], spec)


def tree_map_only(kind, func, tree, is_leaf=None):
    """``tree_map`` for leaves of some types, or that a function chooses; others stay as they are."""
    chosen = kind if callable(kind) and not isinstance(kind, type) else lambda leaf: isinstance(leaf, kind)
    return tree_map(lambda leaf: func(leaf) if chosen(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_leaves(tree, is_leaf)))
