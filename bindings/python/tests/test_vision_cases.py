"""Networks and ops of torchvision against numbers that torchvision gave (``make_vision_cases.py``)."""

import json
import pathlib

import pytest
from vision_cases import Cases

import rushlight as torch
from rushlight.vision import models, ops

EXPECTED = json.loads((pathlib.Path(__file__).parent / "vision_cases.json").read_text())
CASES = Cases(torch, models, ops)


def compare(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        if isinstance(value, str):
            assert found[name] == value, name
        else:
            scale = max(abs(v) for v in value[1:] or value)
            assert found[name] == pytest.approx(value, rel=2e-4, abs=1e-4 * scale + 1e-7), name


@pytest.mark.parametrize("name", CASES.networks())
def test_network(name):
    compare(CASES.network(name), EXPECTED[f"network {name}"])


@pytest.mark.parametrize("name", CASES.WHOLE)
def test_state_dict(name):
    compare(CASES.whole(name), EXPECTED[f"whole {name}"])


@pytest.mark.parametrize("name", ["faster_rcnn", "retinanet", "fcos"])
def test_detector(name):
    compare(CASES.detector(name), EXPECTED[f"detector {name}"])


def test_functions():
    found = CASES.functions()
    compare({name: Cases.summary(value) for name, value in found.items()}, EXPECTED["functions"])
