"""Expressions evaluated here and by PyTorch must agree, in value, dtype, shape or exception."""

import make_behaviour
import pytest

import rushlight as torch

RECORDED = {name: make_behaviour.recorded(name) for name in make_behaviour.lists()}
CASES = [(name, expression) for name in RECORDED for expression in make_behaviour.expressions(name)]


@pytest.mark.parametrize(("name", "expression"), CASES, ids=[expression for _, expression in CASES])
def test_behaviour(name, expression):
    found, expected = make_behaviour.answer(expression, torch), RECORDED[name][expression]
    assert make_behaviour.same(found, expected), f"{expression}\n  here    {found}\n  PyTorch {expected}"
