"""Steps that are recorded once and replayed as one launch: ``rushlight.capture``."""

import functools

from . import _C

Tensor = _C.Tensor


def _flatten(value, tensors, what):
    """Appends the tensors of nested containers to a list and returns the rest in a comparable form."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if isinstance(value, dict):
        return dict, tuple((key, _flatten(part, tensors, what)) for key, part in value.items())
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_flatten(part, tensors, what) for part in value)
    if what == "return" and value is not None:
        raise TypeError(
            f"capture: the step returned a {type(value).__name__}, which replays cannot recreate; return tensors (in tuples, lists, dicts) or None"
        )
    return None, value


def _unflatten(form, tensors):
    if form is Tensor:
        return next(tensors)
    kind, parts = form
    if kind is None:
        return parts
    if kind is dict:
        return {key: _unflatten(part, tensors) for key, part in parts}
    parts = [_unflatten(part, tensors) for part in parts]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


class CapturedStep:
    """A function whose calls are recorded and replayed; ``capture`` makes it."""

    def __init__(self, function, device, enabled, warmup, max_graphs):
        functools.update_wrapper(self, function, updated=())
        self._function, self._device = function, device
        self._capture = _C._Capture(enabled, warmup, max_graphs)
        self._kinds, self._outputs = {}, {}

    def __call__(self, *args, **kwargs):
        inputs, outputs = [], self._outputs
        form = _flatten((args, kwargs), inputs, "take")
        key = (
            form, getattr(self._function, "training", None), _C.is_grad_enabled(), _C._autocast_dtype(),
            tuple((t.dtype, tuple(t.shape)) for t in inputs),
        )
        try:
            kind = self._kinds.setdefault(key, len(self._kinds))
        except TypeError:
            raise TypeError("capture: arguments that are not tensors must be hashable: each value gets its own recording") from None
        device = self._device
        if device is None:
            device = next((t.device for t in inputs if not t.is_cpu), "cpu")

        def step(*own):
            args, kwargs = _unflatten(form, iter(own))
            tensors = []
            outputs[kind] = _flatten(self._function(*args, **kwargs), tensors, "return")
            return tensors

        made = self._capture.run(kind, device, inputs, step)
        return _unflatten(outputs[kind], iter(made))

    @property
    def graphs(self):
        """Number of recordings."""
        return self._capture.graphs

    def set_enabled(self, enabled):
        """Whether calls are recorded and replayed; otherwise the function just runs."""
        self._capture.set_enabled(enabled)

    def clear(self):
        """Forgets all recordings; the next calls make new ones."""
        self._capture.clear()


def capture(function=None, *, device=None, enabled=True, warmup=2, max_graphs=8):
    """A function whose work on an accelerator is recorded once, for each kind of arguments, and then replayed by one launch.

    The first ``warmup`` calls run without capture, the next is recorded: forward, backward, clipping, the optimizer's step, all that the function does on the
    device. Later calls copy their tensors to where the recording reads them and replay it, without running the function. On the CPU it just runs.

    >>> import rushlight as torch
    >>> layer = torch.nn.Linear(3, 1)
    >>> optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    >>> @torch.capture
    ... def step(x, y):
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.mse_loss(layer(x), y)
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> for _ in range(5):
    ...     loss = step(torch.ones(4, 3), torch.zeros(4, 1))
    >>> loss.requires_grad
    False

    New at every replay are the arguments that are tensors, random numbers, and an optimizer's learning rate, options and number of
    steps. So losses, state dicts and schedules are those of steps that are not captured; ``scheduler.step()`` belongs outside. Whatever else Python
    computes in the function happens only while it is recorded: pass what changes as a tensor. Other arguments, ``train()`` and ``eval()`` of a captured module, grad
    mode and ``autocast`` are recorded apart, up to ``max_graphs``; a function that uses a model needs a capture for each of its modes.

    Arguments are data, to which no gradient flows; with ``device`` given they are moved there. The results have no history either. Calls that wait
    for the device (``item()``, printing, copies to the host) raise an error that names the call, and change nothing.
    """
    if function is None:
        return functools.partial(capture, device=device, enabled=enabled, warmup=warmup, max_graphs=max_graphs)
    if warmup < 1:
        raise ValueError(f"capture: warmup must be at least 1, got {warmup}: warm-up calls compile kernels and create optimizer state")
    return CapturedStep(function, device, enabled, warmup, max_graphs)
