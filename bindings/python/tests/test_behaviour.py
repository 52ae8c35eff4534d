"""Expressions evaluated here and by PyTorch must agree, in value, dtype, shape or exception."""

import json

import make_behaviour
import pytest

import rushlight as torch

RECORDED = json.loads((make_behaviour.HERE / "behaviour.json").read_text())


@pytest.mark.parametrize("expression", make_behaviour.expressions())
def test_behaviour(expression):
    found, expected = make_behaviour.answer(expression, torch), RECORDED[expression]
    assert make_behaviour.same(found, expected), f"{expression}\n  here    {found}\n  PyTorch {expected}"
