"""Small programs over ``torch.nn``, the same for PyTorch and for Rushlight: what they print must be the same.

Each is a function of the package and of four tools: ``T(*shape)`` makes a tensor with known values, ``fill(module)`` gives a module known
parameters in float64, ``show(...)`` prints values rounded, ``err(call)`` prints the error that a call raises.
``python make_nn_programs.py``, with a Python that has torch, records what they print with PyTorch.
"""

import contextlib
import importlib
import inspect
import io
import warnings


def submodule(torch, path):
    """A package that has to be imported by itself."""
    return importlib.import_module(f"{torch.__name__}.{path}")


def programs():
    """All programs by name."""
    from . import modules, semantics, utils

    return {
        f"{family.__name__.rpartition('.')[2]}.{name}": program
        for family in (modules, semantics, utils)
        for name, program in vars(family).items()
        if inspect.isfunction(program) and list(inspect.signature(program).parameters)[:1] == ["torch"] and program is not submodule
    }


def printed(program, torch):
    """What a program prints."""

    def T(*shape, scale=1.0, shift=0.0):
        count = 1
        for size in shape:
            count *= size
        return (torch.arange(count, dtype=torch.float64) * 0.7919 + shift).sin().reshape(shape) * scale

    def fill(module):
        with torch.no_grad():
            for i, parameter in enumerate(module.parameters()):
                parameter.copy_(T(*parameter.shape, shift=i))
        return module.double()

    def show(*values):
        for value in values:
            if isinstance(value, torch.Tensor):
                elements = [round(v, 6) + 0.0 if isinstance(v, float) else v for v in value.detach().flatten().tolist()[:40]]
                value = elements, tuple(value.shape), str(value.dtype)
            print(value)

    def err(call, text=True):
        try:
            print("no error", call())
        except Exception as error:
            print(type(error).__name__, str(error).split("\n")[0][:200] if text else "")

    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program(torch, torch.nn, T, fill, show, err)
    return out.getvalue()
