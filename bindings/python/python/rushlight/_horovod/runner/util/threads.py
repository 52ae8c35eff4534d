"""``horovod.runner.util.threads``: functions in threads of their own."""

import threading

__all__ = ["in_thread"]


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Starts ``target(*args)`` in a thread and returns it. With ``silent`` its exceptions are not printed."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args).__name__}; (arg,) is a tuple of one")

    def quiet(*given):
        try:
            target(*given)
        except Exception:
            return

    thread = threading.Thread(target=quiet if silent else target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread
