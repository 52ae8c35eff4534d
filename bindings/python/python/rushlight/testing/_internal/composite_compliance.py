"""Kinds of ops by their names: views, changes in place."""

_VIEWS = frozenset(
    "_conj _reshape_alias _unsafe_view alias as_strided chunk detach diagonal expand expand_as hsplit imag movedim narrow permute real select slice split "
    "split_with_sizes squeeze swapaxes t tensor_split transpose unbind unflatten unfold unsqueeze view view_as view_as_complex view_as_real vsplit".split()
)
_CHANGED_VIEWS = frozenset("as_strided_ detach_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_".split())


def _name(op):
    return op.overloadpacket.__name__


def is_view_fn(func):
    """Whether an op gives a view."""
    return _name(func) in _VIEWS


def is_inplace_view_fn(func):
    """Whether an op changes the sizes or strides of a tensor in place."""
    return _name(func) in _CHANGED_VIEWS


def is_inplace(func):
    """Whether an op changes its first argument."""
    name = _name(func)
    if name.startswith("__") and name.endswith("__"):
        return name[2] == "i" and len(name) > 5
    return name.endswith("_")
