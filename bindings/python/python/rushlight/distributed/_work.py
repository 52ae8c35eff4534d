"""Handles of running collectives."""

from __future__ import annotations

from ..futures import Future
from ._stores import _seconds


class _WorkFuture(Future):
    """The future of a collective. It completes in the thread that waits for it or queries it."""

    def __init__(self, work, value):
        super().__init__()
        self._work, self._value = work, value

    def _settle(self, wait):
        if self._inner.done() or not (wait or self._work.is_completed()):
            return
        try:
            self._work.wait()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(self._value)

    def done(self):
        self._settle(False)
        return super().done()

    def wait(self):
        self._settle(True)
        return super().wait()

    def value(self):
        self._settle(False)
        return super().value()

    def then(self, callback):
        return _Then(self, super().then(callback))


class _Then(Future):
    """The future of a callback on a collective's future."""

    def __init__(self, before, inner):
        super().__init__()
        self._before, self._inner = before, inner._inner

    def done(self):
        return self._before.done() and super().done()

    def _wait_before(self):
        try:
            self._before.wait()
        except Exception:
            # The callback has seen it, or this future carries it.
            pass

    def wait(self):
        self._wait_before()
        return super().wait()

    def value(self):
        self._before.done()
        return super().value()

    def then(self, callback):
        return _Then(self, super().then(callback))


class Work:
    """A collective that was started. Its tensors must not be used until ``wait`` returns."""

    def __init__(self, work, result=None):
        self._work, self._result, self._error = work, result, None

    def wait(self, timeout=None):
        """Waits for the collective; returns True, or raises the collective's error."""
        try:
            self._work.wait(_seconds(timeout))
        except Exception as error:
            self._error = error
            raise
        self._finish()
        return True

    def _finish(self):
        """Runs the remaining work after the collective."""

    def is_completed(self):
        """Whether it is done, successfully or not."""
        return self._work.is_completed()

    def is_success(self):
        """Whether it is done successfully."""
        if not self.is_completed():
            return False
        try:
            return self.wait()
        except Exception:
            return False

    def exception(self):
        """The exception it ended with, or None."""
        if self.is_completed():
            self.is_success()
        return self._error

    def _source_rank(self):
        """The rank of the group that a receive receives from."""
        peer = getattr(self._work, "peer", None)
        if peer is None:
            raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv or recv-from-any call.")
        return peer

    def synchronize(self):
        """Waits for the collective."""
        self.wait()

    def result(self):
        """The tensors it writes to."""
        self.wait()
        return self._result

    def get_future(self):
        """A future of the tensors it writes to."""
        return _WorkFuture(self, self._result)


class _Done:
    """The core's side of a finished collective."""

    def wait(self, timeout=None):
        pass

    def is_completed(self):
        return True
