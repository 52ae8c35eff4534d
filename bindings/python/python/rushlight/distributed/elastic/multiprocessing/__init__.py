"""``torch.distributed.elastic.multiprocessing``: output and errors of ranks."""

import enum
import re

from .... import _absent

__all__ = ["DefaultLogsSpecs", "LogsSpecs", "SignalException", "Std", "start_processes", "to_map"]


class SignalException(Exception):
    """A signal that ended a launcher."""

    def __init__(self, msg, sigval):
        super().__init__(msg)
        self.sigval = sigval


class Std(enum.IntFlag):
    """Which of the standard streams: ``Std.from_str("0:1,1:3")`` gives them by local rank."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm):
        """A value for all ranks, or a dictionary by local rank."""
        if re.fullmatch("[0123]", vm):
            return cls(int(vm))
        if not re.fullmatch(r"(\d+:[0123],)*\d+:[0123]", vm):
            raise ValueError(f"{vm} does not match: 0, 1, 2 or 3, or values by local rank: 0:1,1:3")
        return {int(rank): cls(int(value)) for rank, value in (item.split(":") for item in vm.split(","))}


def to_map(val_or_map, local_world_size):
    """A value for each local rank. Ranks that a dictionary lacks have ``Std.NONE``."""
    if isinstance(val_or_map, Std):
        return {rank: val_or_map for rank in range(local_world_size)}
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


class LogsSpecs:
    """Where output goes: a folder, streams that go to files only, streams that go to files as well, and the local ranks that are shown."""

    def __init__(self, log_dir=None, redirects=Std.NONE, tee=Std.NONE, local_ranks_filter=None):
        self._root_log_dir = log_dir
        self._redirects = redirects
        self._tee = tee
        self._local_ranks_filter = local_ranks_filter

    @property
    def root_log_dir(self):
        """The folder of log files, or ``None``."""
        return self._root_log_dir

    def _options(self):
        """The launcher's options."""
        def streams(value):
            return ",".join(f"{rank}:{int(bits)}" for rank, bits in value.items()) if isinstance(value, dict) else str(int(value))

        words = [f"--log-dir={self._root_log_dir}"] if self._root_log_dir else []
        for name, value in (("redirects", self._redirects), ("tee", self._tee)):
            if value:
                words.append(f"--{name}={streams(value)}")
        if self._local_ranks_filter:
            words.append("--local-ranks-filter=" + ",".join(map(str, sorted(self._local_ranks_filter))))
        return words


class DefaultLogsSpecs(LogsSpecs):
    """The only kind of :class:`LogsSpecs`."""


start_processes = _absent.absent_function(
    "torch.distributed.elastic.multiprocessing.start_processes", "use torch.distributed.launcher.api.elastic_launch"
)
