"""Expressions evaluated here and by PyTorch must agree, in value, dtype, shape or exception."""

import json
import math

import make_behaviour
import pytest

import rushlight as torch

RECORDED = json.loads((make_behaviour.HERE / "behaviour.json").read_text())


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
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(found, expected, rel_tol=2e-5, abs_tol=1e-6)
    return type(found) is type(expected) and found == expected


@pytest.mark.parametrize("expression", make_behaviour.expressions())
def test_behaviour(expression):
    found, expected = make_behaviour.answer(expression, torch), RECORDED[expression]
    assert same(found, expected), f"{expression}\n  here    {found}\n  PyTorch {expected}"
