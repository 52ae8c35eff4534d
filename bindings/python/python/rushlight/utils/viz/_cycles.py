"""``torch.utils.viz._cycles``: reports of tensors that only the garbage collector frees."""

import gc
import logging

from ... import _C

_log = logging.getLogger(__name__)


def observe_tensor_cycles(callback):
    """Calls ``callback`` with a text after a collection that frees tensors on accelerators. Returns a function that ends this."""
    gc.collect()
    found = []

    def watch(phase, info):
        if phase == "start":
            gc.set_debug(gc.DEBUG_SAVEALL)
            found.append(len(gc.garbage))
        elif found:
            before = found.pop()
            tensors = [t for t in gc.garbage[before:] if isinstance(t, _C.Tensor) and t.device.type != "cpu"]
            del gc.garbage[before:]
            gc.set_debug(0)
            if tensors:
                sizes = ", ".join(f"{tuple(t.shape)} {t.dtype}" for t in tensors[:10])
                callback(f"reference cycles held {len(tensors)} tensors on accelerators: {sizes}")

    gc.callbacks.append(watch)
    return lambda: gc.callbacks.remove(watch)


def warn_tensor_cycles():
    """Logs a warning when a collection frees tensors on accelerators. Returns a function that ends this."""
    _log.info("Watching Python reference cycles for CUDA Tensors.")
    return observe_tensor_cycles(lambda text: _log.warning("%s", text))
