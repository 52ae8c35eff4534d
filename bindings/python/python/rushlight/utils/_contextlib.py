"""Context managers that are decorators, too: the base classes that libraries derive their own from."""

import functools
import inspect

from ..autograd.grad_mode import _Decorating


class _DecoratorContextManager(_Decorating):
    """A context manager as a decorator of functions and generators; each call enters a ``clone`` of it."""

    def __enter__(self):
        raise NotImplementedError(f"{type(self).__name__}: define __enter__")

    def __exit__(self, *exception):
        raise NotImplementedError(f"{type(self).__name__}: define __exit__")

    def clone(self):
        """A fresh instance, for one call."""
        return self.__class__()

    def _again(self):
        return self.clone()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same for classes without arguments, which also decorate without parentheses."""

    def __new__(cls, orig_func=None):
        if orig_func is None:
            return super().__new__(cls)
        return cls()(orig_func)


class _Factory(_Decorating):
    def __init__(self, make):
        self._again = make


def context_decorator(ctx, func):
    """A function that runs within a context: ``ctx`` is a context manager that can be entered again, or a function that makes one."""
    if inspect.isclass(func):
        raise RuntimeError(f"Cannot decorate classes: {func}; decorate its methods")
    make = ctx if inspect.isclass(ctx) or callable(ctx) and not hasattr(ctx, "__enter__") else functools.partial(_same, ctx)
    return _Factory(make)(func)


def _same(ctx):
    return ctx
