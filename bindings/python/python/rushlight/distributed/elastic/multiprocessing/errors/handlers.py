"""``torch.distributed.elastic.multiprocessing.errors.handlers``."""

from .error_handler import ErrorHandler

__all__ = ["get_error_handler"]


def get_error_handler():
    """The handler of :func:`record`."""
    return ErrorHandler()
