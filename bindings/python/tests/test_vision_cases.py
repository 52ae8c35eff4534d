"""Networks and ops of torchvision against numbers that torchvision gave (``make_vision_cases.py``)."""

import json
import pathlib

import pytest
from vision_cases import Cases

import rushlight as torch
from rushlight.vision import models, ops, transforms

EXPECTED = json.loads((pathlib.Path(__file__).parent / "vision_cases.json").read_text())
CASES = Cases(torch, models, ops, transforms)


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


def test_pictures():
    compare(CASES.pictures(), EXPECTED["pictures"])


@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix", "RandomPerspective", "RandomEqualize", "RandomAutocontrast"])
def test_drawn_transforms(name):
    make = getattr(transforms, name)
    change, images = make(), CASES.numbers(2, 3, 20, 24).abs().mul(255).to(torch.uint8)
    torch.manual_seed(3)
    found = [change(images) for _ in range(12)]
    assert all(t.shape == images.shape and t.dtype == images.dtype for t in found)
    assert any(not torch.equal(t, images) for t in found)
    torch.manual_seed(3)
    assert all(torch.equal(change(images), t) for t in found)
    assert repr(change).startswith(name)


def test_sizes_of_operations():
    space = transforms.RandAugment()._augmentation_space(31, 20, 24)
    assert [space[name] if space[name] is None else (round(space[name][0], 4), round(space[name][-1], 4), len(space[name])) for name in space] == [
        None, (0.0, 0.3, 31), (0.0, 0.3, 31), (0.0, 10.8761, 31), (0.0, 9.0634, 31), (0.0, 30.0, 31), *[(0.0, 0.9, 31)] * 4, (8, 4, 31), (255.0, 0.0, 31), None, None,
    ]
