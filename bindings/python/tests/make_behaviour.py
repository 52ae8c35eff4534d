"""Records PyTorch's answers to the expressions of behaviour*.txt: ``python make_behaviour.py [LIST ...]`` with a Python that has torch.

The test evaluates the same expressions with Rushlight and compares. ``--check`` compares a torch of today with what is recorded. The answers to
``behaviour_graph.txt`` are in ``behaviour_graph.json``.
"""

import copy
import io
import json
import math
import pathlib
import pickle
import sys
import warnings

import numpy as np

HERE = pathlib.Path(__file__).parent


def lists():
    """The names of the lists of expressions."""
    return sorted(path.stem for path in HERE.glob("behaviour*.txt"))


def expressions(name="behaviour"):
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def recorded(name):
    """PyTorch's answers to a list."""
    return json.loads((HERE / f"{name}.json").read_text())


def names(torch):
    """What expressions can use, made anew for each."""
    return {
        "torch": torch,
        "F": torch.nn.functional,
        "nn": torch.nn,
        "math": math,
        "np": np,
        "copy": copy,
        "io": io,
        "pickle": pickle,
        "x": torch.tensor([-2.0, -0.5, 0.0, 1.0, 7.5]),
        "y": torch.tensor([1.0, -1.0, 2.0, 0.25, 3.0]),
        "m": torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]]),
        "v": torch.tensor([1.0, 2.0, -3.0]),
        "i": torch.tensor([1, 0, 3]),
        "b": torch.tensor([True, False, True]),
        "leaf": lambda *shape: (torch.arange(math.prod(shape)) * 0.7).sin().add(1.5).reshape(shape).requires_grad_(),
        "seen": lambda function, *args: seen(torch, function, *args),
    }


def seen(torch, function, *args):
    """The ops that a mode of ``__torch_dispatch__`` sees while a function and its backward pass run, each with how often, and the first leaf's gradient."""
    counts = {}

    class Counts(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            counts[str(func)] = counts.get(str(func), 0) + 1
            return func(*args, **(kwargs or {}))

    with Counts():
        made = function(*args)
        for part in made if isinstance(made, (tuple, list)) else [made]:
            (part.sum() if part.dim() else part).backward()
    return [f"{name} {count}" for name, count in sorted(counts.items())], args[0].grad


def plain(value, torch):
    """A value as JSON has it."""
    if isinstance(value, torch.Tensor):
        flat = [
            plain(v, torch) if isinstance(v, complex) else str(v) if isinstance(v, float) and not math.isfinite(v) else v
            for v in value.detach().reshape(-1).tolist()
        ]
        return {"tensor": flat, "shape": list(value.shape), "dtype": str(value.dtype)}
    if isinstance(value, (tuple, list)):
        return [plain(v, torch) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [v if math.isfinite(v) else str(v) for v in (value.real, value.imag)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"object": str(value)}


def value_of(expression, known):
    """The value of an expression, or of the last part of a program: a line of statements that starts with ``>``."""
    if not expression.startswith("> "):
        return eval(expression, known)
    *statements, last = expression[2:].split(" ; ")
    for statement in statements:
        exec(statement, known)
    return eval(last, known)


def answer(expression, torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(value_of(expression, names(torch)), torch)
        except Exception as error:
            return {"raises": [c.__name__ for c in type(error).__mro__ if c.__name__.endswith(("Error", "Exception"))]}


def same(found, expected):
    if isinstance(expected, dict) and "raises" in expected:
        # PyTorch's NotImplementedError for dtypes is a RuntimeError, which is what it is here.
        wanted = [c for c in expected["raises"] if c not in ("NotImplementedError", "_LinAlgError")][0]
        return isinstance(found, dict) and wanted in found.get("raises", ())
    if isinstance(expected, dict) and "tensor" in expected:
        return (
            isinstance(found, dict)
            and found.get("shape") == expected["shape"]
            and found.get("dtype") == expected["dtype"]
            and len(found["tensor"]) == len(expected["tensor"])
            and all(map(same, found["tensor"], expected["tensor"]))
        )
    if isinstance(expected, dict) and "complex" in expected:
        return isinstance(found, dict) and "complex" in found and same(found["complex"], expected["complex"])
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(found, expected, rel_tol=2e-5, abs_tol=1e-6)
    return type(found) is type(expected) and found == expected


def main():
    import torch

    check, chosen = "--check" in sys.argv, [word for word in sys.argv[1:] if not word.startswith("-")] or lists()
    failed = False
    for name in chosen:
        torch.manual_seed(0)
        answers = {e: answer(e, torch) for e in expressions(name)}
        if check:
            known = recorded(name)
            changed = [e for e in answers if e not in known or not same(answers[e], known[e])]
            print(f"{name}: {len(answers)} expressions, {len(changed)} differ", *changed, sep="\n  ")
            failed |= bool(changed)
            continue
        lines = [f"{json.dumps(e)}: {json.dumps(a)}" for e, a in answers.items()]
        (HERE / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
