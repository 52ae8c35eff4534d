"""Records PyTorch's answers to the expressions of behaviour.txt: ``python make_behaviour.py`` with a Python that has torch.

The test evaluates the same expressions with Rushlight and compares.
"""

import json
import math
import pathlib
import warnings

import numpy as np

HERE = pathlib.Path(__file__).parent


def expressions():
    lines = (HERE / "behaviour.txt").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def names(torch):
    """What expressions can use, made anew for each."""
    return {
        "torch": torch,
        "F": torch.nn.functional,
        "nn": torch.nn,
        "math": math,
        "np": np,
        "x": torch.tensor([-2.0, -0.5, 0.0, 1.0, 7.5]),
        "y": torch.tensor([1.0, -1.0, 2.0, 0.25, 3.0]),
        "m": torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]]),
        "v": torch.tensor([1.0, 2.0, -3.0]),
        "i": torch.tensor([1, 0, 3]),
        "b": torch.tensor([True, False, True]),
    }


def plain(value, torch):
    """A value as JSON has it."""
    if isinstance(value, torch.Tensor):
        flat = [str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in value.detach().reshape(-1).tolist()]
        return {"tensor": flat, "shape": list(value.shape), "dtype": str(value.dtype)}
    if isinstance(value, (tuple, list)):
        return [plain(v, torch) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"object": str(value)}


def answer(expression, torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(eval(expression, names(torch)), torch)
        except Exception as error:
            return {"raises": [c.__name__ for c in type(error).__mro__ if c.__name__.endswith(("Error", "Exception"))]}


def main():
    import torch

    torch.manual_seed(0)
    recorded = {e: answer(e, torch) for e in expressions()}
    lines = [f"{json.dumps(e)}: {json.dumps(a)}" for e, a in recorded.items()]
    (HERE / "behaviour.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
