"""``parallel_apply``: modules called in threads."""

import threading

from ... import _C

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj):
    """The first tensor in nested lists, tuples and dictionaries; None if there is none."""
    if isinstance(obj, _C.Tensor):
        return obj
    values = obj.items() if isinstance(obj, dict) else obj if isinstance(obj, (list, tuple)) else ()
    return next((found for found in map(get_a_var, values) if found is not None), None)


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """Calls each module with its inputs, each in its own thread."""
    named = kwargs_tup or [{}] * len(modules)
    results, recording, cast = [None] * len(modules), _C.is_grad_enabled(), _C._autocast_dtype()

    def call(i):
        before, outer = _C._set_grad_enabled(recording), _C._set_autocast(cast)
        try:
            own = inputs[i] if isinstance(inputs[i], (list, tuple)) else (inputs[i],)
            results[i] = (True, modules[i](*own, **named[i]))
        except Exception as error:
            error.args = (f"Caught {type(error).__name__} in replica {i}: {error}",)
            results[i] = (False, error)
        finally:
            _C._set_autocast(outer)
            _C._set_grad_enabled(before)

    if len(modules) == 1:
        call(0)
    else:
        threads = [threading.Thread(target=call, args=(i,)) for i in range(len(modules))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for well, value in results:
        if not well:
            raise value
    return [value for _, value in results]
