"""``torch.distributed.launcher.api``: starts ranks from a Python program, as ``rushlight.run`` does from a command line."""

import dataclasses
import json
import os
import pickle
import shutil
import sys
import tempfile
import uuid
from multiprocessing import spawn

from rushlight.run import _launch

from ..elastic.multiprocessing import DefaultLogsSpecs
from ..elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclasses.dataclass
class LaunchConfig:
    """torchrun's options: nodes, ranks per node, rendezvous, maximum restarts, output.

    A job of one node needs no rendezvous. Several nodes meet at ``rdzv_endpoint`` (``HOST:PORT``); with the backend ``static``, ``rdzv_configs["rank"]`` is
    this node's place. ``start_method`` exists for compatibility: ranks are separate programs."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: object = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict = dataclasses.field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: "str | None" = None
    metrics_cfg: dict = dataclasses.field(default_factory=dict)
    local_addr: "str | None" = None
    event_log_handler: str = "null"
    numa_options: object = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: "list[str] | None" = None
    duplicate_stderr_filters: "list[str] | None" = None
    virtual_local_rank: bool = False
    shutdown_timeout: "int | None" = None

    def __post_init__(self):
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", 900)
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))
        elif self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")

    def _options(self):
        """The launcher's options."""
        words = [f"--nnodes={self.min_nodes}:{self.max_nodes}", f"--nproc-per-node={self.nproc_per_node}", f"--rdzv-id={self.run_id}"]
        words += [f"--role={self.role}", f"--max-restarts={self.max_restarts}", f"--monitor-interval={self.monitor_interval}"]
        if self.max_nodes > 1:
            configs = dict(self.rdzv_configs)
            rank = configs.pop("rank", None)
            # PyTorch's default needs a separate server; our launchers meet without one.
            words.append(f"--rdzv-backend={'c10d' if self.rdzv_backend == 'etcd' and not self.rdzv_endpoint else self.rdzv_backend}")
            words += [f"--rdzv-endpoint={self.rdzv_endpoint}"] if self.rdzv_endpoint else []
            words += [f"--node-rank={rank}"] if rank is not None and self.rdzv_backend == "static" else []
            words.append("--rdzv-conf=" + ",".join(f"{key}={value}" for key, value in configs.items()))
        texts = {
            "log-line-prefix-template": self.log_line_prefix_template,
            "local-addr": self.local_addr,
            "event-log-handler": None if self.event_log_handler == "null" else self.event_log_handler,
            "numa-binding": getattr(getattr(self.numa_options, "affinity_mode", None), "value", None),
            "signals-to-handle": None if self.signals_to_handle == LaunchConfig.signals_to_handle else self.signals_to_handle,
            "duplicate-stdout-filters": ",".join(text.replace(",", ",,") for text in self.duplicate_stdout_filters or []),
            "duplicate-stderr-filters": ",".join(text.replace(",", ",,") for text in self.duplicate_stderr_filters or []),
            "shutdown-timeout": None if self.shutdown_timeout == 30 else self.shutdown_timeout,
        }
        words += [f"--{name}={value}" for name, value in texts.items() if value not in (None, "")]
        words += ["--virtual-local-rank"] if self.virtual_local_rank else []
        return words + self.logs_specs._options()


class elastic_launch:
    """``elastic_launch(config, entrypoint)(*args)`` runs a function, or a program, in every rank. Returns the function's results by rank.

    The function must be found by importing its module, and its arguments must be picklable. Raises ``ChildFailedError`` if ranks fail."""

    def __init__(self, config, entrypoint, health_check_server=None):
        if health_check_server is not None:
            raise NotImplementedError("elastic_launch: there is no health check server; `rushlight run` ends by itself when its ranks do")
        self._config = config
        self._entrypoint = entrypoint

    def __call__(self, *args):
        return launch_agent(self._config, self._entrypoint, list(args))


def launch_agent(config, entrypoint, args, health_check_server=None):
    """Runs a job. See :class:`elastic_launch`."""
    if health_check_server is not None:
        raise NotImplementedError("launch_agent: there is no health check server; `rushlight run` ends by itself when its ranks do")
    config.run_id = config.run_id or uuid.uuid4().hex
    folder = tempfile.mkdtemp(prefix="rushlight-launch-")
    try:
        if callable(entrypoint):
            _write_function(os.path.join(folder, "function"), entrypoint, args)
            name = getattr(entrypoint, "__qualname__", repr(entrypoint))
            words = ["--no-python", sys.executable, "-m", "rushlight.distributed.elastic._rank", folder]
        elif isinstance(entrypoint, str) and entrypoint:
            name = next((str(a) for a in args if not str(a).startswith("-")), "") if entrypoint == sys.executable else entrypoint
            words = [entrypoint, *map(str, args)]
        else:
            raise TypeError(f"elastic_launch: the entrypoint should be a function or the name of a program, not {entrypoint!r}")
        code = _launch([*config._options(), *words], folder)
        _raise_failures(name, code, folder)
        return _results(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_function(path, function, args):
    preparation = spawn.get_preparation_data("rank")
    preparation["authkey"] = bytes(preparation["authkey"])
    # A function of an interactive session cannot be imported by others.
    main = sys.modules["__main__"]
    interactive = getattr(main, "__spec__", None) is None and not os.path.isfile(getattr(main, "__file__", None) or "")
    if interactive:
        preparation.pop("init_main_from_path", None)
    interactive = interactive and getattr(function, "__module__", None) == "__main__"
    pickler = pickle
    if interactive:
        try:
            import cloudpickle as pickler
        except ImportError:
            raise TypeError(f"elastic_launch: {function!r} is of an interactive session: put it into a module, or install cloudpickle") from None
    try:
        text = pickler.dumps((function, tuple(args)))
    except Exception as error:
        raise TypeError(f"elastic_launch: {function!r} and its arguments must be picklable: a function of a module, no lambda ({error})") from error
    with open(path, "wb") as file:
        pickle.dump(preparation, file)
        file.write(text)


def _raise_failures(name, code, folder):
    """Raises the launcher's error report."""
    try:
        with open(os.path.join(folder, "failures.json")) as file:
            report = json.load(file)["failures"]
    except FileNotFoundError:
        report = []
    failures = {}
    for entry in report:
        failure = ProcessFailure(entry["local_rank"], entry["pid"], entry["exitcode"], entry["error_file"] or "")
        # With fractions of a second, to tell the first failure from ranks that were stopped because of it.
        failure.timestamp = entry["time"]
        failures[entry["rank"]] = failure
    if code and failures:
        raise ChildFailedError(name, failures)
    if code:
        raise RuntimeError(f"{name}: the job ended with exit code {code}; the launcher has said why")


def _results(folder):
    """The results of the last round's ranks."""
    found = {}
    for name in os.listdir(folder):
        if name.startswith("result-") and name.endswith(".json"):
            turn, rank = map(int, name[len("result-"):-len(".json")].split("-"))
            found.setdefault(turn, {})[rank] = os.path.join(folder, name)
    results = {}
    for rank, path in sorted(found[max(found)].items()) if found else ():
        with open(path, "rb") as file:
            results[rank] = pickle.load(file)
    return results
