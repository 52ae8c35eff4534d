"""Steps that are recorded once and replayed as one launch: ``rushlight.capture``."""

import functools

from . import _C
from ._nested import flatten, unflatten


def _refused(kind):
    return TypeError(f"capture: the step returned a {kind.__name__}, which replays cannot recreate; return tensors (in tuples, lists, dicts) or None")


class CapturedStep:
    """A function whose calls are recorded and replayed; ``capture`` makes it."""

    def __init__(self, function, device, enabled, warmup, max_graphs):
        functools.update_wrapper(self, function, updated=())
        self._function, self._device = function, device
        self._capture = _C._Capture(enabled, warmup, max_graphs)

    def __call__(self, *args, **kwargs):
        inputs = []
        form = flatten((args, kwargs), inputs, loose=True)
        kind = form, getattr(self._function, "training", None)
        try:
            hash(kind)
        except TypeError:
            raise TypeError("capture: arguments that are not tensors must be hashable: each value gets its own recording") from None
        device = self._device
        if device is None:
            device = next((t.device for t in inputs if not t.is_cpu), "cpu")

        def step(*own):
            args, kwargs = unflatten(form, iter(own))
            tensors = []
            return tensors, flatten(self._function(*args, **kwargs), tensors, (type(None),), _refused, loose=True)

        made, result = self._capture.run(kind, device, inputs, step)
        return unflatten(result, iter(made))

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
