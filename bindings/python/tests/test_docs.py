"""Examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import rushlight


def modules():
    skip = ("rushlight.__main__", "rushlight._C")
    return ["rushlight"] + [m.name for m in pkgutil.walk_packages(rushlight.__path__, "rushlight.") if not m.name.startswith(skip)]


@pytest.mark.parametrize("name", modules())
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name), extraglobs={"torch": rushlight}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0
