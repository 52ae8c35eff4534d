"""Flattening of other classes in graphs."""

SUPPORTED_NODES, SUPPORTED_NODES_EXACT_MATCH = {}, {}


def register_pytree_flatten_spec(cls, flatten_fn, flatten_fn_exact_match=None):
    """Registers a function that flattens a class by the structure of another object."""
    SUPPORTED_NODES[cls] = flatten_fn
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match


def tree_flatten_spec(pytree, spec):
    """The leaves of a tree that has another's structure."""
    if spec.is_leaf():
        return [pytree]
    if spec.type in SUPPORTED_NODES:
        children = SUPPORTED_NODES[spec.type](pytree, spec)
    else:
        from ..utils._pytree import _node_parts

        children = _node_parts(pytree)[2]
    return [leaf for child, inner in zip(children, spec.children_specs) for leaf in tree_flatten_spec(child, inner)]
