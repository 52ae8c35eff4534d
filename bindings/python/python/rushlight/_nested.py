"""Arguments and results of recorded functions, taken apart into tensors and a form."""

from . import _C

Tensor = _C.Tensor


def flatten(value, tensors, allowed=None, refused=None, loose=False):
    """Appends the tensors of nested containers to a list and returns the rest in a comparable form.

    A part that is no tensor and of none of the ``allowed`` types raises ``refused(type)``. ``loose``: dictionaries of other classes become plain ones.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    kind = type(value)
    if kind is dict or loose and isinstance(value, dict):
        return dict, tuple((key, flatten(part, tensors, allowed, refused, loose)) for key, part in value.items())
    if kind in (tuple, list) or isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, tuple(flatten(part, tensors, allowed, refused, loose) for part in value)
    if allowed is not None and not isinstance(value, allowed):
        raise refused(kind)
    # With the type: 1, 1.0 and True are equal.
    return None, (kind, value)


def unflatten(form, tensors):
    """The value of a form, with the tensors of an iterator."""
    if form is Tensor:
        return next(tensors)
    kind, parts = form
    if kind is None:
        return parts[1]
    if kind is dict:
        return {key: unflatten(part, tensors) for key, part in parts}
    parts = [unflatten(part, tensors) for part in parts]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
