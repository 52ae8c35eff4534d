"""``torch.distributed.run``, which is torchrun: the launcher of ``rushlight.run`` with PyTorch's functions."""

import argparse
import sys

from rushlight.run import main

__all__ = ["get_args_parser", "main", "parse_args", "run"]

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
    ("role", "default", "A name for the ranks"),
    ("log-dir", None, "Folder of log files"),
    ("redirects", "0", "Streams that go to files: 0, 1, 2, 3, or by local rank"),
    ("tee", "0", "Streams that go to files and to the console"),
    ("local-ranks-filter", "", "Local ranks whose output is shown"),
    ("node-rank", 0, "This node's place"),
    ("master-addr", "127.0.0.1", "Host of rank 0"),
    ("master-port", None, "Port of rank 0"),
    ("local-addr", None, "Address of this node"),
]
_SHORT = {"redirects": "-r", "tee": "-t"}
_FLAGS = [
    ("standalone", "One node, without a meeting point"),
    ("module", "The program is a Python module"),
    ("no-python", "The program is not a Python script"),
]


def get_args_parser():
    """PyTorch's parser of torchrun's command line. Its result is for :func:`run`."""
    parser = argparse.ArgumentParser(description="Starts the ranks of a job")
    for name, default, text in _VALUES:
        names = [_SHORT[name]] if name in _SHORT else []
        names += [f"--{name}"] + ([f"--{name.replace('-', '_')}"] if "-" in name else [])
        kind = type(default) if isinstance(default, (int, float)) else int if name == "master-port" else str
        parser.add_argument(*names, default=default, type=kind, help=text)
    for name, text in _FLAGS:
        names = ["-m"] if name == "module" else []
        names += [f"--{name}"] + ([f"--{name.replace('-', '_')}"] if "-" in name else [])
        parser.add_argument(*names, action="store_true", help=text)
    parser.add_argument("training_script", help="The program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="Its arguments")
    return parser


def parse_args(args):
    """The arguments of a command line of torchrun."""
    return get_args_parser().parse_args(args)


def _command_line(args):
    """The command line that says what parsed arguments say."""
    words = []
    for name, default, _ in _VALUES:
        value = getattr(args, name.replace("-", "_"), default)
        if value is not None and value != default:
            words.append(f"--{name}={value}")
    words += [f"--{name}" for name, _ in _FLAGS if getattr(args, name.replace("-", "_"), False)]
    return [*words, args.training_script, *map(str, args.training_script_args)]


def run(args):
    """Runs a job by parsed arguments. Raises ``RuntimeError`` if a rank fails; its message names the exit code."""
    code = main(_command_line(args))
    if code:
        raise RuntimeError(f"torch.distributed.run: the job ended with exit code {code}; the launcher has named the rank that failed")


if __name__ == "__main__":
    sys.exit(main())
