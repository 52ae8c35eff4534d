"""``python -m rushlight [--device cpu|cuda|xpu|auto] SCRIPT ARGS…``: runs a script that says ``import torch``."""

import os
import sys

USAGE = """usage: python -m rushlight [--device cpu|cuda|xpu|auto] SCRIPT [ARGS ...]
       python -m rushlight [--device ...] -m MODULE [ARGS ...]
       python -m rushlight [--device ...] -c CODE [ARGS ...]
       python -m rushlight --trace FILE
       python -m rushlight --version
       python -m rushlight --install | --uninstall | --wheels FOLDER

Runs a program written for PyTorch: torch, torchvision, intel_extension_for_pytorch, oneccl_bindings_for_pytorch and horovod are Rushlight, also
in processes that it starts.
Python's options -u and -W may precede SCRIPT, as in a command written for python itself.
cuda, xpu and hip name the accelerator there is. --device cpu hides it; --device cuda (or xpu, hip) makes torch.cuda.is_available() say
yes without one, and tensors are on the CPU all the same.

--trace says where the time of a step went, from a trace that torch.profiler wrote, here or in PyTorch.

--install gives this environment distributions named torch, torchvision and torchaudio that are served by Rushlight, so that libraries built on PyTorch
install and import as they are; --uninstall removes them. Both leave a real torch alone. --wheels writes the two as wheels."""


def trace(file):
    """``--trace``."""
    from . import _C

    if not file:
        print(f"--trace takes a file\n{USAGE}", file=sys.stderr)
        return 2
    try:
        print(_C._profiler_summary(file), end="")
    except RuntimeError as error:
        print(f"rushlight: {error}", file=sys.stderr)
        return 1
    return 0


def shims(option, value, args):
    """``--install``, ``--uninstall`` and ``--wheels``."""
    from . import _shims

    if option == "--wheels":
        folder = value or (args.pop(0) if args else "")
        if not folder or args:
            print(f"--wheels takes one folder\n{USAGE}", file=sys.stderr)
            return 2
        for name in _shims.SHIMS:
            print(_shims.wheel(name, folder))
        return 0
    if value or args:
        print(f"{option} takes no arguments\n{USAGE}", file=sys.stderr)
        return 2
    if option == "--uninstall":
        removed = _shims.uninstall()
        print(f"removed {', '.join(removed)}" if removed else "no torch, torchvision or torchaudio of Rushlight is installed here")
        return 0
    try:
        _shims.install()
    except _shims.ShimError as error:
        print(f"rushlight: {error}", file=sys.stderr)
        return 1
    print("installed " + " and ".join(f"{name} {version}" for name, version in _shims.SHIMS.items()))
    return 0


def interpreter_options(args):
    """Applies ``-u`` and ``-W FILTER`` and returns the other arguments."""
    import warnings

    while args and (args[0] == "-u" or args[0].startswith("-W")):
        option = args.pop(0)
        if option == "-u":
            sys.stdout.reconfigure(write_through=True)
            sys.stderr.reconfigure(write_through=True)
            os.environ["PYTHONUNBUFFERED"] = "1"
        elif option != "-W" or args:
            action, _, rest = (option[2:] or args.pop(0)).partition(":")
            names = [name for name in ("default", "error", "always", "module", "once", "ignore") if action and name.startswith(action)]
            if rest or not names:
                print(f"-W {action}:{rest} is not understood here; pass it to python, before -m rushlight", file=sys.stderr)
                continue
            warnings.simplefilter(names[0])
    return args


def main(args):
    device = "auto"
    while args and args[0].startswith("--"):
        option, _, value = args.pop(0).partition("=")
        if option == "--help":
            print(USAGE)
            return 0
        if option == "--version":
            from ._version import __version__

            print(f"rushlight {__version__.partition('+rushlight')[2]}, as PyTorch {__version__.partition('+')[0]}")
            return 0
        if option == "--trace":
            return trace(value or (args.pop(0) if args else ""))
        if option in ("--install", "--uninstall", "--wheels"):
            return shims(option, value, args)
        if option != "--device":
            import difflib

            near = difflib.get_close_matches(option, ("--device", "--help", "--install", "--trace", "--uninstall", "--version", "--wheels"), 1)
            advice = f"; did you mean {near[0]}?" if near else ""
            print(f"rushlight: there is no option {option}{advice}; see python -m rushlight --help", file=sys.stderr)
            return 2
        device = value or (args.pop(0) if args else "")
    if device not in ("cpu", "cuda", "xpu", "hip", "auto"):
        print(f"--device must be cpu, cuda, xpu, hip or auto, not '{device}'\n{USAGE}", file=sys.stderr)
        return 2
    args = interpreter_options(args)
    if not args or args[0] == "-h":
        print(USAGE, file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    import runpy

    os.environ["RUSHLIGHT_DEVICE"] = device
    import rushlight

    rushlight.install()
    first = args[0]
    if first == "-m":
        sys.argv = args[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *args[2:]]
        sys.path[0] = ""
        exec(compile(args[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    elif not os.path.exists(first):
        print(f"{sys.executable}: can't open file '{os.path.abspath(first)}': [Errno 2] No such file or directory", file=sys.stderr)
        return 2
    else:
        sys.argv = args
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
