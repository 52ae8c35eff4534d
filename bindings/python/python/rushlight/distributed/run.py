"""``torch.distributed.run``, which is torchrun: the launcher of ``rushlight.run`` with PyTorch's functions."""

import argparse
import os
import shutil
import sys
import tempfile

from rushlight.numa.binding import AffinityMode, NumaOptions
from rushlight import run as _command
from rushlight.run import _launch

from .elastic.multiprocessing import DefaultLogsSpecs, Std
from .launcher.api import LaunchConfig, _raise_failures

__all__ = ["config_from_args", "determine_local_world_size", "get_args_parser", "main", "parse_args", "parse_min_max_nnodes", "run"]

# Options with a value: name, default, help. They are passed on only if they differ from their default.
_VALUES = [
    ("nnodes", "1:1", "Number of nodes, or the fewest and the most: 1:4"),
    ("nproc-per-node", "1", "Ranks of each node: a number, gpu, cpu or auto"),
    ("rdzv-backend", "static", "How launchers meet"),
    ("rdzv-endpoint", "", "Where launchers meet: HOST[:PORT]"),
    ("rdzv-id", "none", "The job's name"),
    ("rdzv-conf", "", "Further settings: key=value,..."),
    ("max-restarts", 0, "Failures that are answered by a restart"),
    ("monitor-interval", 0.1, "Seconds between looks at the ranks"),
    ("start-method", "spawn", "Taken for PyTorch's sake: ranks are always programs of their own"),
    ("event-log-handler", "null", "Taken for PyTorch's sake; only null"),
    ("role", "default", "A name for the ranks"),
    ("log-dir", None, "Folder of log files"),
    ("redirects", "0", "Streams that go to files: 0, 1, 2, 3, or by local rank"),
    ("tee", "0", "Streams that go to files and to the console"),
    ("log-line-prefix-template", None, "Prefix of each line: ${rank}, ${local_rank}, ${role_name}, ${hostname}"),
    ("local-ranks-filter", "", "Local ranks whose output is shown"),
    ("duplicate-stdout-filters", "", "Texts: lines with one of them also go to a further file"),
    ("duplicate-stderr-filters", "", "The same for standard error"),
    ("node-rank", 0, "This node's place"),
    ("master-addr", "127.0.0.1", "Host of rank 0"),
    ("master-port", None, "Port of rank 0"),
    ("local-addr", None, "Address of this node"),
    ("logs-specs", None, "Taken for PyTorch's sake; only default"),
    ("numa-binding", None, "node, socket, exclusive, core-complex or none"),
    ("signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "Signals that are forwarded to the ranks; SIGUSR1 and SIGUSR2 are by default, too"),
    ("shutdown-timeout", None, "Seconds for ranks to end before they are killed"),
]
_CHOICES = {"start-method": ["spawn", "fork", "forkserver"], "numa-binding": [mode.value for mode in AffinityMode] + ["none"]}
_SHORT = {"redirects": "-r", "tee": "-t"}
_FLAGS = [
    ("standalone", "One node, without a meeting point"),
    ("module", "The program is a Python module"),
    ("no-python", "The program is not a Python script"),
    ("run-path", "Accepted for compatibility: a script always runs in a separate interpreter"),
    ("virtual-local-rank", "LOCAL_RANK is 0 for all, and each rank sees its own GPU only"),
]


def get_args_parser():
    """PyTorch's parser of torchrun's command line. Its result is for :func:`run`."""
    parser = argparse.ArgumentParser(description="Starts the ranks of a job")
    for name, default, text in _VALUES:
        names = [_SHORT[name]] if name in _SHORT else []
        names += [f"--{name}"] + ([f"--{name.replace('-', '_')}"] if "-" in name else [])
        kind = type(default) if isinstance(default, (int, float)) else int if name == "master-port" else str
        # argparse converts a text, such as a variable's.
        parser.add_argument(*names, default=_variable(name) or default, type=kind, choices=_CHOICES.get(name), help=text)
    for name, text in _FLAGS:
        names = ["-m"] if name == "module" else []
        names += [f"--{name}"] + ([f"--{name.replace('-', '_')}"] if "-" in name else [])
        parser.add_argument(*names, action="store_true", default=_variable(name) in ("1", "true", "True"), help=text)
    parser.add_argument("training_script", help="The program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="Its arguments")
    return parser


def _variable(name):
    """The variable of an option: PET_NNODES of --nnodes."""
    return os.environ.get(f"PET_{name.replace('-', '_').upper()}")


def parse_args(args):
    """The arguments of a command line of torchrun."""
    return get_args_parser().parse_args(args)


def _command_line(args):
    """The command line of parsed arguments."""
    words = []
    for name, default, _ in _VALUES:
        value = getattr(args, name.replace("-", "_"), default)
        if name == "rdzv-conf" and value:
            # Quotes of a shell's command line that a program passes on by itself.
            value = value.strip("'\"")
        if value is not None and value != default:
            words.append(f"--{name}={value}")
    words += [f"--{name}" for name, _ in _FLAGS if getattr(args, name.replace("-", "_"), False)]
    return [*words, args.training_script, *map(str, args.training_script_args)]


def main(args=None):
    """Runs a job by torchrun's command line, this program's by default. Raises as :func:`run` does, and ``ValueError`` for options that contradict each
    other. ``rushlight.run.main`` returns an exit code instead."""
    parsed = parse_args(sys.argv[1:] if args is None else list(args))
    config, _, _ = config_from_args(parsed)
    parsed.nproc_per_node = str(config.nproc_per_node)
    run(parsed)


def run(args):
    """Runs a job by parsed arguments. Raises ``ChildFailedError`` if a rank fails, ``RuntimeError`` if the job ends badly otherwise."""
    folder = tempfile.mkdtemp(prefix="rushlight-run-")
    try:
        _raise_failures(args.training_script, _launch(_command_line(args), folder), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parse_min_max_nnodes(nnodes):
    """Minimum and maximum nodes of ``N`` or ``MIN:MAX``."""
    parts = nnodes.split(":")
    if len(parts) > 2:
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node):
    """Ranks per node: a number, or the count of ``gpu``, ``xpu``, ``cpu`` or ``auto`` on this machine."""
    import rushlight as torch

    if nproc_per_node not in ("gpu", "xpu", "cpu", "auto"):
        try:
            return int(nproc_per_node)
        except ValueError:
            raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}") from None
    devices = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    if nproc_per_node in ("gpu", "xpu") and not devices:
        name = {"gpu": "Cuda", "xpu": "Xpu"}[nproc_per_node]
        raise ValueError(f"{name} is not available. This node has no GPU that can be used; `rushlight doctor` says why")
    return devices if devices and nproc_per_node != "cpu" else len(os.sched_getaffinity(0))


def config_from_args(args):
    """``LaunchConfig``, program and arguments for parsed arguments."""
    least, most = parse_min_max_nnodes(args.nnodes)
    if not 0 < least <= most:
        raise AssertionError(f"min_nodes must be > 0 and <= max_nodes, got min_nodes={least}, max_nodes={most}")
    if args.max_restarts < 0:
        raise AssertionError("max_restarts must be >= 0")
    if args.no_python and args.module:
        raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
    if args.logs_specs not in (None, "default"):
        raise ValueError(f"Could not find entrypoint under 'torchrun.logs_specs[{args.logs_specs}]' key")
    configs = {}
    for item in filter(None, args.rdzv_conf.strip("'\"").split(",")):
        key, equals, value = item.partition("=")
        if not key.strip():
            raise ValueError("The rendezvous configuration string must have format <key1>=<value1>,...,<keyN>=<valueN>.")
        if not equals or not value.strip():
            raise ValueError(f"The rendezvous configuration option '{key}' must have a value specified.")
        configs[key.strip()] = value.strip()
    if args.rdzv_backend == "static":
        configs["rank"] = args.node_rank
    endpoint = args.rdzv_endpoint
    if not endpoint and args.rdzv_backend == "static":
        endpoint = f"{args.master_addr}:{args.master_port or 29500}"
    filters = (args.duplicate_stdout_filters, args.duplicate_stderr_filters)
    config = LaunchConfig(
        min_nodes=least, max_nodes=most, nproc_per_node=determine_local_world_size(args.nproc_per_node), run_id=args.rdzv_id, role=args.role,
        rdzv_endpoint=endpoint, rdzv_backend=args.rdzv_backend, rdzv_configs=configs, max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval, start_method=args.start_method, log_line_prefix_template=args.log_line_prefix_template,
        local_addr=args.local_addr, event_log_handler=args.event_log_handler, signals_to_handle=args.signals_to_handle,
        virtual_local_rank=args.virtual_local_rank, shutdown_timeout=None if args.shutdown_timeout is None else int(args.shutdown_timeout),
        logs_specs=DefaultLogsSpecs(args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), _local_ranks(args.local_ranks_filter)),
        duplicate_stdout_filters=_texts(filters[0]), duplicate_stderr_filters=_texts(filters[1]),
        numa_options=None if args.numa_binding in (None, "none") else NumaOptions(AffinityMode(args.numa_binding)),
    )
    program = [args.training_script, *args.training_script_args]
    if not args.no_python:
        program = [os.environ.get("PYTHON_EXEC", sys.executable), "-u", *(["-m"] if args.module else []), *program]
    return config, program[0], program[1:]


def _local_ranks(text):
    try:
        return set(map(int, filter(None, text.split(","))))
    except ValueError:
        raise ValueError("--local_ranks_filter must be a comma-separated list of integers e.g. --local_ranks_filter=0,1,2") from None


def _texts(filters):
    return [part.replace("\0", ",") for part in filters.replace(",,", "\0").split(",") if part]


if __name__ == "__main__":
    sys.exit(_command.main())
