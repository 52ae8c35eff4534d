"""``python -m rushlight.ui``: shows training runs in a browser, as ``rushlight ui`` does."""

import signal
import sys


def main(args=None):
    """Runs the command by its arguments, those of this program by default. Returns its exit code."""
    from . import _C

    if not hasattr(_C, "_ui"):
        raise RuntimeError("rushlight.ui needs Linux")
    # The command runs outside the interpreter, which could not handle Ctrl-C meanwhile.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _C._ui(sys.argv[1:] if args is None else list(args))


if __name__ == "__main__":
    sys.exit(main())
