"""Programs over ``torch.nn`` print what they print with PyTorch."""

import json
import math
import re

import make_nn_programs
import nn_programs
import pytest

import rushlight as torch

RECORDED = json.loads(make_nn_programs.RECORDED.read_text())
PROGRAMS = nn_programs.programs()
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def same(found, expected):
    """Whether two lines agree: their text, and their decimals closely."""
    if found == expected:
        return True
    if NUMBER.sub("#", found) != NUMBER.sub("#", expected):
        return False
    pairs = zip(map(float, NUMBER.findall(found)), map(float, NUMBER.findall(expected)))
    return all(math.isclose(a, b, rel_tol=1e-5, abs_tol=2e-6) for a, b in pairs)


def test_all_are_recorded():
    assert PROGRAMS.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    found = nn_programs.printed(PROGRAMS[name], torch).splitlines()
    for at, (line, expected) in enumerate(zip(found, RECORDED[name])):
        assert same(line, expected), f"line {at}\n  here    {line}\n  PyTorch {expected}"
    assert len(found) == len(RECORDED[name])
