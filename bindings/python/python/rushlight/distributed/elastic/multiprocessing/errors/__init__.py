"""``torch.distributed.elastic.multiprocessing.errors``: errors that ranks report to the launcher, which raises them.

The launcher names a file for each rank in ``TORCHELASTIC_ERROR_FILE``. A function under :func:`record` writes an exception there. The launcher shows
its message, and ``elastic_launch`` raises :class:`ChildFailedError` with it."""

import dataclasses
import datetime
import functools
import json
import os
import signal
import time

from .error_handler import ErrorHandler
from .handlers import get_error_handler

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

_NOTHING = "<N/A>"


@dataclasses.dataclass
class ProcessFailure:
    """A rank that failed. ``exitcode`` is the negative number of the signal that ended it, if one did. ``message`` is the rank's report: PyTorch's
    dictionary of ``message`` and ``extraInfo``, or a text."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict = dataclasses.field(init=False)
    message: str = dataclasses.field(init=False)
    timestamp: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.error_file_data, self.message, self.timestamp = {"message": "<NONE>"}, "", int(time.time())
        if self.error_file and os.path.isfile(self.error_file):
            with open(self.error_file) as file:
                self.error_file_data = json.load(file)
            self.message = self.error_file_data["message"]
            details = self.message.get("extraInfo", {}) if isinstance(self.message, dict) else self.error_file_data
            self.timestamp = int(details.get("timestamp", 0))
        else:
            self.error_file = _NOTHING
        if not self.message and self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        elif not self.message:
            self.message = "no error was recorded: decorate the main function with torch.distributed.elastic.multiprocessing.errors.record"

    def signal_name(self):
        """The name of the signal that ended the rank."""
        try:
            return signal.Signals(-self.exitcode).name if self.exitcode < 0 else _NOTHING
        except ValueError:
            return _NOTHING

    def timestamp_isoformat(self):
        """When it failed."""
        return datetime.datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


class ChildFailedError(Exception):
    """Ranks that failed, by their rank."""

    def __init__(self, name, failures):
        if not failures:
            raise AssertionError("ChildFailedError needs a failure")
        self.name = name
        self.failures = failures
        super().__init__(self.format_msg())

    def get_first_failure(self):
        """The rank that failed first, and its failure."""
        rank = min(self.failures, key=lambda r: self.failures[r].timestamp)
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim="=", section_delim="-"):
        """The message: the first failure, then the others."""
        first, _ = self.get_first_failure()
        others = [self._describe(rank) for rank in self.failures if rank != first]
        title = f"{self.name} FAILED"
        parts = [boarder_delim * 60, title, section_delim * 60, "Root Cause (first observed failure):", self._describe(first)]
        if others:
            parts += [section_delim * 60, "Other failures:", *others]
        return "\n".join(["", *parts, boarder_delim * 60])

    def _describe(self, rank):
        failure = self.failures[rank]
        text = failure.message
        if isinstance(text, dict):
            text = text.get("extraInfo", {}).get("py_callstack", text.get("message", _NOTHING))
        name = "" if failure.exitcode >= 0 else f" ({failure.signal_name()})"
        return (
            f"  rank {rank} (local rank {failure.local_rank}, pid {failure.pid}), {failure.timestamp_isoformat()}: exitcode {failure.exitcode}{name}\n"
            + "\n".join("    " + line for line in text.rstrip().splitlines())
        )


def record(fn, error_handler=None):
    """A decorator for a program's main function: an exception is written to the file that the launcher has named, and raised."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def recorded(*args, **kwargs):
        handler.set_entrypoint_fn_name(getattr(fn, "__qualname__", None))
        handler.initialize()
        try:
            result = fn(*args, **kwargs)
        except SystemExit as end:
            if end.code == 0:
                return None
            raise
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            if failure.error_file != _NOTHING:
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise
        handler.record_success()
        return result

    return recorded
