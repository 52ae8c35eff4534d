"""``torch.distributed.launch``: the old name of the launcher. Ranks read ``LOCAL_RANK``; ``--use-env`` is the default."""

import sys

from rushlight.run import main as _main

from .run import parse_args

__all__ = ["launch", "main", "parse_args"]


def main(args=None):
    """Runs a job with command-line arguments, by default this program's. Returns its exit code."""
    arguments = sys.argv[1:] if args is None else list(args)
    return _main([word for word in arguments if word not in ("--use-env", "--use_env")])


def launch(args):
    """Runs a job by parsed arguments."""
    from .run import run

    run(args)


if __name__ == "__main__":
    sys.exit(main())
