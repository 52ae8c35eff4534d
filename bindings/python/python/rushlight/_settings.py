"""Settings of the process: seeds, precision, determinism, threads, autocast, ``compile``."""

from . import _C
from .amp.autocast_mode import autocast  # noqa: F401


def manual_seed(seed):
    """Seeds the default generator, which it returns."""
    _C._manual_seed(int(seed))
    return default_generator


class _DefaultGenerator:
    """The default generator of random functions."""

    device = _C.device("cpu")
    initial_seed = staticmethod(_C.initial_seed)
    get_state = staticmethod(_C.get_rng_state)
    seed = staticmethod(_C.seed)

    def manual_seed(self, seed):
        _C._manual_seed(seed)
        return self

    def set_state(self, state):
        _C.set_rng_state(state)
        return self


default_generator = _DefaultGenerator()

_settings = {"precision": "highest", "deterministic": 0, "warn_always": False, "fill": True, "warn only": False}


def set_float32_matmul_precision(precision):
    """Precision of float32 products: 'high' and 'medium' allow TF32 on accelerators. The CPU always uses float32."""
    if precision not in ("highest", "high", "medium"):
        import warnings

        warnings.warn(f"{precision!r} is not one of 'highest', 'high' and 'medium', and changes nothing", stacklevel=2)
        return
    _settings["precision"] = precision
    _C._allow_tf32(precision != "highest")


def get_float32_matmul_precision():
    """The precision set last, here or by ``backends.cuda.matmul.allow_tf32``."""
    if not _C._allow_tf32():
        return "highest"
    return "high" if _settings["precision"] == "highest" else _settings["precision"]


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Every op is deterministic, on any number of threads; the mode only decides whether the memory of ``empty`` is filled."""
    _set_deterministic((1 if warn_only else 2) if mode else 0)
    _settings["warn only"] = bool(warn_only)


def _set_deterministic(mode):
    _settings["deterministic"], _settings["warn only"] = mode, mode == 1
    _C._fill_fresh_memory(mode > 0 and _settings["fill"])


def fill_fresh_memory(fill):
    """Whether the memory of ``empty`` is filled under deterministic algorithms."""
    _settings["fill"] = fill
    _set_deterministic(_settings["deterministic"])


def fills_fresh_memory():
    """The setting of ``fill_fresh_memory``."""
    return _settings["fill"]


def are_deterministic_algorithms_enabled():
    """The mode set last."""
    return _settings["deterministic"] > 0


def is_deterministic_algorithms_warn_only_enabled():
    """The mode set last."""
    return _settings["warn only"]


def set_deterministic_debug_mode(debug_mode):
    """0 or 'default', 1 or 'warn', 2 or 'error'."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    names = {"default": 0, "warn": 1, "error": 2}
    if isinstance(debug_mode, str) and debug_mode not in names:
        raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, or `error`, but got {debug_mode}")
    mode = names.get(debug_mode, debug_mode)
    if mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {mode}")
    _set_deterministic(mode)


def get_deterministic_debug_mode():
    """The mode set last."""
    return _settings["deterministic"]


def set_vital(name, attr, value):
    """Whether the value was noted for a report at the end of the process: never, as there is no such report."""
    return False


def set_warn_always(b):
    """Whether warnings are repeated."""
    _settings["warn_always"] = b


def is_warn_always_enabled():
    """The setting of ``set_warn_always``."""
    return _settings["warn_always"]


def set_flush_denormal(mode):
    """Not supported: returns False, as PyTorch does on such machines."""
    if not isinstance(mode, bool):
        raise RuntimeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return False


def set_default_tensor_type(t):
    """The dtype and device of new tensors, by the name of a tensor type."""
    from ._functions import _type_names

    name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
    for place in ("cpu", "cuda"):
        for dtype, known in _type_names(place).items():
            if known == name:
                _C.set_default_dtype(dtype)
                return _C.set_default_device(place)
    raise TypeError(f"invalid type object: {t}")


def _watch_forks():
    import os

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_C._before_fork, after_in_parent=lambda: _C._after_fork(False), after_in_child=lambda: _C._after_fork(True)
        )


_watch_forks()


def get_num_interop_threads():
    """Always 1: ops of one thread run one after the other."""
    return 1


def set_num_interop_threads(n):
    """Accepted without effect: ops of one thread run one after the other."""
    if n <= 0:
        raise RuntimeError("Expected positive number of threads")


def is_anomaly_enabled():
    """Whether the search for NaN in backward passes is on."""
    return _C.is_anomaly_enabled()


def is_autocast_enabled(device_type=None):
    """Whether autocast is on for this thread."""
    return _C._autocast_dtype() is not None


def is_autocast_available(device_type):
    """Whether a device's ops take part in autocast."""
    return device_type in ("cpu", "cuda", "xpu", "hip")


def get_autocast_dtype(device_type):
    """The lower precision of autocast."""
    return _C._autocast_dtype() or (_C.bfloat16 if device_type == "cpu" else _C.float16)


def get_device_module(device=None):
    """The package of a device's functions."""
    import importlib

    kind = _C.device(device).type if device is not None else "cpu"
    return importlib.import_module(f".{kind}", __package__)


def get_file_path(*parts):
    """A path inside this package."""
    import os

    return os.path.join(os.path.dirname(os.path.dirname(__file__)), *parts)


from ._compile import compile  # noqa: E402,F401
