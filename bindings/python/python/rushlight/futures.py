"""``torch.futures``: values that are set later."""

import concurrent.futures

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that another thread sets. Callbacks run in the thread that sets it."""

    def __init__(self, *, devices=None):
        self._inner = concurrent.futures.Future()

    def __class_getitem__(cls, parameters):
        return cls

    def done(self):
        return self._inner.done()

    def wait(self):
        """Waits for the value."""
        return self._inner.result()

    def value(self):
        """The value; an error if it is not set yet."""
        if not self.done():
            raise RuntimeError("the future has no value yet; call wait()")
        return self.wait()

    def set_result(self, result):
        self._inner.set_result(result)

    def set_exception(self, result):
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._inner.set_exception(result)

    def add_done_callback(self, callback):
        self._inner.add_done_callback(lambda _: callback(self))

    def then(self, callback):
        """A future of ``callback``'s result."""
        made = Future()

        def follow(_):
            try:
                made.set_result(callback(self))
            except Exception as error:
                made.set_exception(error)

        self._inner.add_done_callback(follow)
        return made


def collect_all(futures):
    """A future of the list of futures, done when all are."""
    futures, made = list(futures), Future()
    if not futures:
        made.set_result([])
    rest = [len(futures)]

    def count(_):
        rest[0] -= 1
        if rest[0] == 0:
            made.set_result(futures)

    for future in futures:
        future._inner.add_done_callback(count)
    return made


def wait_all(futures):
    """Waits for the values of futures."""
    return [future.wait() for future in futures]
