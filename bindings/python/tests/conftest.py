"""What all tests use: the package, whether installed or in the tree, under the name ``torch``."""

import importlib.util
import os
import pathlib
import sys

if importlib.util.find_spec("rushlight") is None:
    TREE = str(pathlib.Path(__file__).parents[1] / "python")
    sys.path.insert(0, TREE)
    # For programs that tests start.
    os.environ["PYTHONPATH"] = os.pathsep.join([TREE, *filter(None, [os.environ.get("PYTHONPATH")])])

import pytest

import rushlight


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random numbers and the same settings."""
    rushlight.manual_seed(0)
    yield
    rushlight.set_default_dtype(rushlight.float32)
