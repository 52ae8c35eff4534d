"""Context managers that control recording. Each is also a decorator, as in PyTorch."""

import threading

from .. import _C

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class _Decorating:
    """A context manager that can decorate functions, generators and, without parentheses, functions at once."""

    def _again(self):
        return type(self)()

    def __call__(self, function):
        import functools
        import inspect

        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args, **kwargs):
                # The mode applies while the generator's code runs, not between its values.
                running = function(*args, **kwargs)
                sent, failed = None, None
                while True:
                    try:
                        with self._again():
                            value = running.send(sent) if failed is None else running.throw(failed)
                    except StopIteration as done:
                        return done.value
                    try:
                        sent, failed = (yield value), None
                    except GeneratorExit:
                        running.close()
                        raise
                    except BaseException as error:
                        sent, failed = None, error

            return generator

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with self._again():
                return function(*args, **kwargs)

        return decorated


class _Mode(_Decorating):
    def __new__(cls, function=None):
        mode = super().__new__(cls)
        if function is None:
            return mode
        return mode(function)

    def __exit__(self, *exception):
        _C._set_grad_enabled(self._before)


class no_grad(_Mode):
    """Ops within are not recorded."""

    def __enter__(self):
        self._before = _C._set_grad_enabled(False)


class enable_grad(_Mode):
    """Ops within are recorded, also inside ``no_grad``."""

    def __enter__(self):
        self._before = _C._set_grad_enabled(True)


class set_grad_enabled(_Decorating):
    """Turns recording on or off at once; as a context manager, until the block ends."""

    def __init__(self, mode):
        self.mode = bool(mode)
        self._before = _C._set_grad_enabled(self.mode)

    def __call__(self, function):
        # As a decorator it applies within the function only.
        _C._set_grad_enabled(self._before)
        return super().__call__(function)

    def _again(self):
        return type(self)(self.mode)

    def __enter__(self):
        _C._set_grad_enabled(self.mode)

    def __exit__(self, *exception):
        _C._set_grad_enabled(self._before)


class inference_mode(_Decorating):
    """Like ``no_grad``, and tensors made within can never be part of a graph."""

    def __new__(cls, mode=True):
        made = super().__new__(cls)
        if isinstance(mode, bool):
            made.mode = mode
            return made
        made.mode = True
        return made(mode)

    def _again(self):
        return type(self)(self.mode)

    def __enter__(self):
        self._before = _C.is_grad_enabled(), _C._set_inference_mode(self.mode)

    def __exit__(self, *exception):
        grad, inference = self._before
        _C._set_inference_mode(inference)
        _C._set_grad_enabled(grad)


class _Multithreading(threading.local):
    enabled = True


_multithreading = _Multithreading()


class set_multithreading_enabled(_Decorating):
    """Remembered only: the backward pass has one thread per call, and its ops use the pool's."""

    def __init__(self, mode):
        self.mode = mode
        self._before, _multithreading.enabled = _multithreading.enabled, mode

    def _again(self):
        return type(self)(self.mode)

    def __enter__(self):
        _multithreading.enabled = self.mode

    def __exit__(self, *exception):
        _multithreading.enabled = self._before
