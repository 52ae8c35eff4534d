"""``torch.distributed.run``, which is torchrun: the launcher of ``rushlight.run``."""

import sys

from rushlight.run import main

__all__ = ["main"]


def _needs_arguments(*args, **kwargs):
    """PyTorch's functions over parsed arguments; the launcher here parses its own."""
    raise NotImplementedError("rushlight's launcher takes a command line: call torch.distributed.run.main([\"--nproc-per-node=2\", \"train.py\"])")


get_args_parser = parse_args = run = elastic_launch = _needs_arguments

if __name__ == "__main__":
    sys.exit(main())
