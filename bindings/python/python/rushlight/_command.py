"""The command ``rushlight`` that comes with the package: the same as the program of that name."""

import os
import signal
import sys


def main(args=None):
    """Runs the command by its arguments, those of this program by default. Returns its exit code."""
    from . import _C

    args = sys.argv[1:] if args is None else list(args)
    if not hasattr(_C, "_command"):
        raise RuntimeError("the command rushlight needs Linux")
    if args[:1] == ["run"]:
        # Scripts run under the interpreter that starts them.
        os.environ.setdefault("PYTHON_EXEC", sys.executable)
    else:
        # The command runs outside the interpreter, which could not handle Ctrl-C meanwhile.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _C._command(args, [sys.executable, "-m", "rushlight._command"])


if __name__ == "__main__":
    sys.exit(main())
