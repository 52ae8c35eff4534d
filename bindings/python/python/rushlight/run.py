"""``python -m rushlight.run``: starts the ranks of a job, by torchrun's options. ``torchrun`` is this function."""

import os
import sys


def main(args=None):
    """Runs a job by the arguments of a command line, those of this program by default. Returns its exit code."""
    return _launch(sys.argv[1:] if args is None else list(args))


def _launch(arguments, folder=None):
    """Runs a job. A report of ranks that failed goes to a folder."""
    from . import _C

    if not hasattr(_C, "_launch"):
        raise RuntimeError("rushlight.run needs Linux")
    # Scripts run under the interpreter that starts them.
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    return _C._launch(arguments, [sys.executable, "-m", "rushlight.run"], folder)


if __name__ == "__main__":
    sys.exit(main())
