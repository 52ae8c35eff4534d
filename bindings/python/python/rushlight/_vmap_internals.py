"""``torch._vmap_internals``: older names of ``torch.vmap``."""

from .func import vmap


def _vmap(func, in_dims=0, out_dims=0, allow_none_pass_through=False):
    """``vmap(func, in_dims, out_dims)``; a function may return None if that is allowed."""
    if not allow_none_pass_through:
        return vmap(func, in_dims, out_dims)

    def run(*args):
        given = []

        def inner(*inner_args):
            found = func(*inner_args)
            several = isinstance(found, tuple)
            given[:] = [several, *(found if several else (found,))]
            return tuple(value for value in given[1:] if value is not None)

        rest = iter(vmap(inner, in_dims, out_dims)(*args))
        found = tuple(None if value is None else next(rest) for value in given[1:])
        return found if given[0] else found[0]

    return run
