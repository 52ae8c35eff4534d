"""Examples in docstrings, and the Python programs of the pages, run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import rushlight
from test_distributed import launch


def modules():
    skip = ("rushlight.__main__", "rushlight._C")
    return ["rushlight"] + [m.name for m in pkgutil.walk_packages(rushlight.__path__, "rushlight.") if not m.name.startswith(skip)]


@pytest.mark.parametrize("name", modules())
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name), extraglobs={"torch": rushlight}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def programs():
    """The Python programs of the book and the READMEs, by page and line, and the number of ranks that run them."""
    root = Path(__file__).resolve().parents[3]
    pages = [root / "README.md", root / "bindings/python/README.md", *sorted((root / "docs/book/src").rglob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for program in re.finditer(r"^```python(?:,ranks=(\d+))?\n(.*?)^```", text, re.M | re.S):
            line = text.count("\n", 0, program.start()) + 1
            yield pytest.param(program[2], int(program[1] or 1), id=f"{page.relative_to(root)}:{line}")


@pytest.mark.parametrize(("program", "ranks"), list(programs()))
def test_programs(program, ranks, tmp_path):
    if ranks == 1:
        exec(compile(program, "page", "exec"), {"__name__": "__main__"})
    else:
        (tmp_path / "page.py").write_text(program)
        launch(ranks, tmp_path / "page.py")
