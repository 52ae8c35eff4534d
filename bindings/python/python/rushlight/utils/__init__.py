"""Data loading, checkpoints of activations, hooks: ``torch.utils``."""

_MODULES = frozenset("_contextlib _foreach_utils _python_dispatch _pytree _sympy benchmark checkpoint cpp_extension data deterministic dlpack flop_counter hooks model_zoo tensorboard".split())


def __getattr__(name):
    if name in _MODULES:
        import importlib

        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing(__name__, name)


def __dir__():
    return sorted(set(globals()) | _MODULES)
