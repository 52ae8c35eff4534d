"""``torch.testing``: ``assert_close``."""

from .. import _C

Tensor = _C.Tensor

# Relative and absolute tolerances by dtype, as in PyTorch.
_TOLERANCES = {_C.float16: (1e-3, 1e-5), _C.bfloat16: (1.6e-2, 1e-5), _C.float32: (1.3e-6, 1e-5), _C.float64: (1e-7, 1e-7)}
_TOLERANCES.update({_C.complex32: _TOLERANCES[_C.float16], _C.complex64: _TOLERANCES[_C.float32], _C.complex128: _TOLERANCES[_C.float64]})


def assert_close(
    actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True, check_dtype=True, check_layout=True,
    check_stride=False, msg=None,
):
    """Raises an AssertionError unless two tensors (or numbers, or containers of them) are close."""
    if (rtol is None) != (atol is None):
        raise ValueError("Both 'rtol' and 'atol' must be either specified or unspecified.")
    if not allow_subclasses and type(actual) is not type(expected):
        raise AssertionError(f"None of the pairs of values can be compared: {type(actual)} and {type(expected)}")
    options = dict(
        allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device, check_dtype=check_dtype, check_layout=check_layout,
        check_stride=check_stride, msg=msg,
    )
    if isinstance(expected, dict):
        if set(actual) != set(expected):
            raise AssertionError(f"The keys of the mappings do not match: {sorted(actual)} and {sorted(expected)}")
        return [assert_close(actual[k], expected[k], **options) for k in expected] and None
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(actual) != len(expected):
            raise AssertionError(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}")
        return [assert_close(a, e, **options) for a, e in zip(actual, expected)] and None
    numbers = not isinstance(actual, Tensor) and not isinstance(expected, Tensor)
    a, e = (v if isinstance(v, Tensor) else _C.tensor(v, dtype=_C.float64 if isinstance(v, float) else None) for v in (actual, expected))
    if a.layout != e.layout and check_layout:
        raise AssertionError(f"The values for attribute 'layout' do not match: {a.layout} != {e.layout}.")
    a, e = (t.to_dense() if t.layout != _C.strided else t for t in (a, e))
    if a.shape != e.shape:
        raise AssertionError(f"The values for attribute 'shape' do not match: {a.shape} != {e.shape}.")
    if check_dtype and a.dtype != e.dtype and not numbers:
        raise AssertionError(f"The values for attribute 'dtype' do not match: {a.dtype} != {e.dtype}.")
    if check_device and a.device != e.device and not numbers:
        raise AssertionError(f"The values for attribute 'device' do not match: {a.device} != {e.device}.")
    if check_stride and a.stride() != e.stride():
        raise AssertionError(f"The values for attribute 'stride()' do not match: {a.stride()} != {e.stride()}.")
    a, e = a.to(e.device) if a.device != e.device else a, e
    if rtol is None:
        known = [_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, e)]
        rtol, atol = max(k[0] for k in known), max(k[1] for k in known)
    wide = _C.complex128 if a.is_complex() or e.is_complex() else _C.float64
    a, e = a.to(wide), e.to(wide)
    close = (a == e) | ((a - e).abs() <= atol + rtol * e.abs()) & e.isfinite()
    if equal_nan:
        close = close | a.isnan() & e.isnan()
    if close.all():
        return None
    wrong = close.numel() - close.sum().item()
    worst = (a - e).abs().max().item()
    text = f"Tensor-likes are not close!\n\nMismatched elements: {wrong} / {close.numel()}\nGreatest absolute difference: {worst}"
    raise AssertionError(msg(text) if callable(msg) else msg or text)


def make_tensor(*shape, dtype, device="cpu", low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False, memory_format=None):
    """A tensor of uniform random numbers."""
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if noncontiguous and memory_format is not None:
        raise ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive")
    if dtype == _C.bool:
        low, high = 0, 2
    low = (-9 if dtype.is_signed else 0) if low is None else low
    high = (9 if dtype.is_floating_point else 10) if high is None else high
    made = _C._torch.rand(list(shape), dtype=_C.float64) * (high - low) + low
    made = (made if dtype.is_floating_point else made.floor()).to(device, dtype)
    if noncontiguous and made.dim():
        made = made.repeat_interleave(2, -1)[..., ::2]
    elif memory_format is not None:
        made = made.contiguous(memory_format=memory_format)
    if exclude_zero:
        made = made.masked_fill(made == 0, 1)
    return made.requires_grad_(requires_grad)
