"""Parts of the loader. Modules that only worker processes need are imported with the first of them."""

import importlib.util

#: Whether the interpreter is about to end.
python_exit_status = False
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
#: Seconds between two looks at whether the other side is alive.
MP_STATUS_CHECK_INTERVAL = 5.0

def __getattr__(name):
    # Loaded when workers start, or when they are asked for by name.
    if name not in ("collate", "fetch", "pin_memory", "signal_handling", "worker"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    import importlib

    return importlib.import_module(f".{name}", __name__)
