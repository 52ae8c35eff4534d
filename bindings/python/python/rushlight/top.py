"""``python -m rushlight.top``: shows GPUs and processors in the terminal, as ``rushlight top`` does."""

import signal
import sys


def main(args=None):
    """Runs the command by its arguments, those of this program by default. Returns its exit code."""
    from . import _C

    if not hasattr(_C, "_top"):
        raise RuntimeError("rushlight.top needs Linux")
    # The command runs outside the interpreter, which could not handle Ctrl-C meanwhile.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _C._top(sys.argv[1:] if args is None else list(args), [sys.executable, "-m", "rushlight.top"])


if __name__ == "__main__":
    sys.exit(main())
