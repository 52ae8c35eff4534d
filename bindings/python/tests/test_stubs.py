"""The type stubs: written from the op table, and part of an installed package."""

import ast
import pathlib
import subprocess
import sys

import pytest
import rushlight

HERE = pathlib.Path(__file__).resolve().parent
FILES = ["__init__.pyi", "linalg.pyi", "special.pyi", "nn/functional.pyi"]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stubs")
    subprocess.run([sys.executable, str(HERE.parent / "stubs.py"), str(folder)], check=True)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_stubs_parse_and_name_what_exists(stubs, name):
    module = rushlight if name == "__init__.pyi" else __import__("rushlight." + name[:-4].replace("/", "."), fromlist=["_"])
    tree = ast.parse((stubs / name).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert len(functions) > 20
    assert not [f for f in functions if not hasattr(module, f)]


def test_stubs_have_signatures(stubs):
    text = (stubs / "__init__.pyi").read_text()
    assert "def matmul(input: Tensor, other: Tensor, *, out: Any = ...)" in text
    assert "def add_(self" in text


def test_the_installed_package_has_them(stubs):
    package = pathlib.Path(rushlight.__file__).parent
    assert (package / "py.typed").exists()
    for name in FILES:
        assert (package / name).read_text() == (stubs / name).read_text()
