"""The error of a checkpoint that some ranks could not write or read."""

__all__ = ["CheckpointException"]


class CheckpointException(BaseException):
    """Errors of ranks, by rank. It derives from ``BaseException``, as in PyTorch."""

    def __init__(self, msg, failures):
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self):
        """Errors by rank."""
        return self._failures

    def __str__(self):
        lines = [f"CheckpointException ranks:{self._failures.keys()}"]
        lines += [f"Traceback (most recent call last): (RANK {rank})\n{error}" for rank, error in self._failures.items()]
        return "\n".join(lines)
