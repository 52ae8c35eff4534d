"""Processes that run one function with their index."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings

__all__ = ["ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn", "start_processes"]

#: Requests a parallel start of processes. They are started one after another, which takes no longer than their imports.
ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"


class ProcessException(Exception):
    """A process that failed."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process that ended with an exception; the message has its traceback."""

    def __init__(self, msg, error_index, error_pid):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process that ended with an exit code or by a signal."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn, index, args, error_file):
    """The main function of a process. It writes an exception to a file for the parent."""
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        groups = sys.modules.get(f"{__name__.partition('.')[0]}.distributed._group")
        if groups is not None and groups._world.world is not None:
            groups.abort_process_group()
        sys.exit(1)


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, processes, error_files):
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self):
        return [process.pid for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Waits for a process to end; True if all have. If one failed the others are stopped and its error is raised."""
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        error = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                error = index
                break
        if error is None:
            if not self.sentinels:
                self._clean()
            return not self.sentinels
        self._stop(grace_period)
        raise self._error(error)

    def _stop(self, grace_period):
        if grace_period is not None:
            deadline = time.monotonic() + grace_period
            for process in self.processes:
                process.join(max(0.0, deadline - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        deadline = time.monotonic() + 30
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _error(self, index):
        # A process that raised an exception is more informative than one that was stopped because of it.
        raised = [i for i in [index, *range(len(self.processes))] if os.path.getsize(self.error_files[i])]
        try:
            if raised:
                index = raised[0]
                with open(self.error_files[index], "rb") as file:
                    text = pickle.load(file)
                message = f"\n\n-- Process {index} terminated with the following error:\n{text}"
                return ProcessRaisedException(message, index, self.processes[index].pid)
            code = self.processes[index].exitcode
            pid = self.processes[index].pid
            if code < 0:
                try:
                    name = signal.Signals(-code).name
                except ValueError:
                    name = f"<Unknown signal {-code}>"
                return ProcessExitedException(f"process {index} terminated with signal {name}", index, pid, code, name)
            return ProcessExitedException(f"process {index} terminated with exit code {code}", index, pid, code)
        finally:
            self._clean()

    def _clean(self):
        for path in self.error_files:
            if os.path.exists(path):
                os.remove(path)


class SpawnContext(ProcessContext):
    """The older name."""


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn", numa_options=None):
    """Runs ``fn(index, *args)`` in ``nprocs`` processes. With ``join`` it waits for them, otherwise it returns their ``ProcessContext``."""
    if numa_options is not None:
        raise NotImplementedError("start_processes: processes are not bound to processors; leave numa_options out")
    context = multiprocessing.get_context(start_method)
    processes, error_files = [], []
    for index in range(nprocs):
        handle, path = tempfile.mkstemp(prefix="rushlight-error-", suffix=".pickle")
        os.close(handle)
        process = context.Process(target=_run, args=(fn, index, args, path), daemon=daemon)
        process.start()
        processes.append(process)
        error_files.append(path)
    made = SpawnContext(processes, error_files)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Runs ``fn(index, *args)`` in ``nprocs`` new interpreters."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")


class _Callable(types.ModuleType):
    """``torch.multiprocessing.spawn`` is a function and a module: the module can be called."""

    def __call__(self, *args, **kwargs):
        return spawn(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
