"""Names of a compiler that does not exist here, for libraries that ask about it."""

import contextlib
import functools
import warnings
from collections import Counter, defaultdict

#: Statistics of compilations: there are none.
counters = defaultdict(Counter)


@contextlib.contextmanager
def dynamo_timed(*args, **kwargs):
    """Measures nothing."""
    yield


def disable_cache_limit():
    """A context without effect: recordings have no limit that stops them."""
    return contextlib.nullcontext()


def is_compile_supported(device_type):
    """Whether there is a compiler: always False."""
    return False


def is_namedtuple(obj):
    """Whether an object is a named tuple."""
    return is_namedtuple_cls(type(obj))


def is_namedtuple_cls(cls):
    """Whether a class is one of named tuples."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


@functools.lru_cache(None)
def warn_once(msg, stacklevel=1):
    """A warning that is given once."""
    warnings.warn(msg, stacklevel=stacklevel + 1)


def __getattr__(name):
    from .._functions import _missing

    return _missing(__name__, name)
