"""The reducer of ``DistributedDataParallel``: sends gradients in buckets while backward runs. The work is in Rust (``crates/dist``); hooks are Python's."""

from __future__ import annotations

import weakref

from ... import _C


class GradBucket:
    """A bucket as communication hooks see it."""

    def __init__(self, index, last, buffer, parameters, gradients):
        self._index, self._last, self._buffer, self._parameters, self._gradients = index, last, buffer, parameters, gradients

    def index(self):
        return self._index

    def buffer(self):
        """The gradients as one flat tensor."""
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer = buffer

    def gradients(self):
        """The gradients as views of it."""
        return list(self._gradients)

    def parameters(self):
        return list(self._parameters)

    def is_last(self):
        return self._last


class Reducer:
    """Averages the gradients of named parameters over a group."""

    def __init__(self, named, pg, cap, as_view=False, find_unused=False, static=False, zero_missing=False):
        self.parameters = [p for _, p in named]
        self._hook = None
        self._reducer = _C._Reducer(list(named), pg._group, cap, as_view, find_unused, static, zero_missing)

    def _weak(self, method):
        """A method as a function that does not keep the reducer alive: Rust's references are not seen by the garbage collector."""
        reducer = weakref.ref(self)

        def call(*args):
            alive = reducer()
            if alive is None:
                raise RuntimeError("DistributedDataParallel: the module is gone, but a backward pass still uses it")
            return method(alive, *args)

        return call

    @property
    def hook(self):
        """The communication hook and its state."""
        return self._hook

    @hook.setter
    def hook(self, hook):
        self._hook = hook
        self._reducer.set_hook(self._weak(Reducer._send))

    def _send(self, index, last, buffer, members, gradients):
        hook, state = self._hook
        return hook(state, GradBucket(index, last, buffer, [self.parameters[i] for i in members], gradients))

    def set_divisor(self, ranks):
        """Divides sums by a number of ranks while some have run out of inputs; None for all."""
        self._reducer.set_divisor(ranks)

    def set_static_graph(self):
        self._reducer.set_static_graph()

    def before_forward(self, sync):
        self._reducer.begin(sync)

    def after_forward(self, outputs):
        """Finds parameters that outputs do not depend on."""
        self._reducer.after_forward(outputs)

    def prepare_for_forward(self):
        """PyTorch's name of the beginning of a pass."""
        self.before_forward(True)

    def prepare_for_backward(self, outputs):
        """PyTorch's name: the next backward pass ends with the exchange, also if its forward pass ran within ``no_sync``. Parameters that the outputs, a
        tensor or several, do not depend on are not waited for."""
        self.before_forward(True)
        outputs = [outputs] if isinstance(outputs, _C.Tensor) else list(outputs)
        if outputs:
            self.after_forward(outputs)

    def shadow(self):
        """A pass of a rank without inputs: takes part in the all-reduces with zero gradients."""
        self._reducer.shadow()
