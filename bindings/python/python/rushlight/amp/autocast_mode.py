"""``autocast``: products and convolutions in a lower precision."""

import functools
import threading

from .. import _C

_KINDS = ("cpu", "cuda", "xpu", "hip", "mps")

#: What this thread has asked for. Weights are cast anew in every call, so there is nothing to keep.
_cache = threading.local()


def is_cache_enabled():
    """Whether casts of weights may be kept."""
    return getattr(_cache, "enabled", True)


def is_autocast_available(device_type):
    """Whether autocast supports a device: always True."""
    return device_type in _KINDS


class autocast:
    """Within, matrix products and convolutions run in ``dtype`` (bfloat16 or float16), losses in float32. Also a decorator."""

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in _KINDS:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        if dtype is None:
            dtype = _C.float16 if device_type == "cuda" else _C.bfloat16
        self.device, self.fast_dtype = device_type, dtype
        if enabled and dtype not in (_C.bfloat16, _C.float16):
            import warnings

            warnings.warn(f"In {device_type} autocast, but the target dtype is not supported. Disabling autocast. Only bfloat16 and float16 are.", stacklevel=2)
            enabled = False
        self._enabled, self._cache_enabled = enabled, cache_enabled
        self._former = []

    def __enter__(self):
        self._former.append((_C._set_autocast(self.fast_dtype if self._enabled else None), is_cache_enabled()))
        if self._cache_enabled is not None:
            _cache.enabled = bool(self._cache_enabled)
        return self

    def __exit__(self, *exception):
        before, _cache.enabled = self._former.pop()
        _C._set_autocast(before)
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return decorated


def custom_fwd(fwd=None, *, device_type="cuda", cast_inputs=None):
    """For the ``forward`` of custom functions: remembers autocast's state, or runs in one precision."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx, *args, **kwargs):
        ctx._autocast = _C._autocast_dtype()
        if cast_inputs is None or ctx._autocast is None:
            return fwd(ctx, *args, **kwargs)
        cast = lambda v: v.to(cast_inputs) if isinstance(v, _C.Tensor) and v.is_floating_point() else v
        ctx._autocast = None
        with autocast(device_type, enabled=False):
            return fwd(ctx, *map(cast, args), **{k: cast(v) for k, v in kwargs.items()})

    return decorated


def custom_bwd(bwd=None, *, device_type="cuda"):
    """For the ``backward`` of custom functions: in the state that ``forward`` ran in."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx, *args, **kwargs):
        before = _C._set_autocast(ctx._autocast)
        try:
            return bwd(ctx, *args, **kwargs)
        finally:
            _C._set_autocast(before)

    return decorated
