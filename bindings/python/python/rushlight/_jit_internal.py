"""Marks for TorchScript's compiler that libraries import. None of them changes what a function does."""

from typing import Final, List  # noqa: F401

from .futures import Future  # noqa: F401
from .jit import _overload, _overload_method, export, ignore, is_scripting, unused  # noqa: F401


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """A function that calls one of two by an argument that is True or False, given by name or by its place."""

    def run(*args, **kwargs):
        chosen = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if chosen else if_false)(*args, **kwargs)

    run.__doc__ = if_true.__doc__ or if_false.__doc__
    run.__module__, run.__name__ = module_name or run.__module__, func_name or run.__name__
    return run


def _copy_to_script_wrapper(fn):
    """The function."""
    return fn


class _Broadcasting:
    """``BroadcastingList2[int]``: a number, or a list of two."""

    def __getitem__(self, kind):
        return List[kind]


BroadcastingList1 = _Broadcasting()
BroadcastingList2 = _Broadcasting()
BroadcastingList3 = _Broadcasting()
