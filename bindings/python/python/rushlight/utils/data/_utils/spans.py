"""Spans of the loader, for the profiler."""


def profiled(iterator):
    """The span of one batch, by PyTorch's name for it."""
    from ....profiler import record_function

    return record_function(f"enumerate(DataLoader)#{type(iterator).__name__}.__next__")
