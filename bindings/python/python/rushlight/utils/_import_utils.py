"""Whether optional packages are installed."""

import functools
import importlib.util


def _check_module_exists(name):
    """Whether a module can be imported; it is not loaded."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


@functools.lru_cache
def dill_available():
    """Whether ``dill`` can be imported."""
    return _check_module_exists("dill")


@functools.lru_cache
def import_dill():
    """The package ``dill``, or None."""
    if not dill_available():
        return None
    import dill

    return dill
