"""Information about the current worker process."""


class WorkerInfo:
    """``id``, ``num_workers``, ``seed``, and the worker's copy of the ``dataset``."""

    def __init__(self, id, num_workers, seed, dataset):
        self.__dict__.update(id=id, num_workers=num_workers, seed=seed, dataset=dataset)

    def __setattr__(self, name, value):
        raise RuntimeError(f"Cannot assign attributes to {type(self).__name__} objects")

    def __repr__(self):
        return "WorkerInfo(" + ", ".join(f"{k}={v}" for k, v in self.__dict__.items()) + ")"


#: Set when a worker process begins.
current = None


def get_worker_info():
    """The current worker, or None in the main process."""
    return current
