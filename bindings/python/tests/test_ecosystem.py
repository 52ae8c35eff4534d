"""Jobs of small libraries written for PyTorch, where they are installed (``scripts/ecosystem`` does those of all)."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

import rushlight

HERE = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("library", ["einops", "safetensors", "torchinfo"])
def test_library(library, tmp_path):
    # Not imported here: some import torch, which this process does not serve.
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    root = str(pathlib.Path(rushlight.__file__).parents[1])
    program = f"import sys; sys.path.append({root!r}); from rushlight.__main__ import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", program, str(HERE / "ecosystem" / "run.py"), library], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert results, done.stderr
    for result in results:
        assert "error" not in result, result["trace"]


def test_a_page_keeps_the_rows_of_other_libraries(tmp_path):
    spec = importlib.util.spec_from_file_location("table", HERE / "ecosystem" / "table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    page = tmp_path / "page.md"
    page.write_text(f"Above.\n\n{table.MARKS[0]}\n\n{table.MARKS[1]}\n\nBelow.\n")
    table.write_page(page, {"first": [("a", "agrees to 1e-07", 1.0, 2.0)], "second": [("b", "runs", None, None)]})
    before = page.read_text().splitlines()
    table.write_page(page, {"second": [("b", "agrees to 2e-07", 1.0, 3.0)]}, keep=True)
    after = page.read_text().splitlines()
    changed = [(a, b) for a, b in zip(before, after) if a != b]
    assert len(before) == len(after) and changed == [("| second | not installed | b | runs |  |", "| second | not installed | b | equal to 2e-07 | 3.0 |")]
    assert after[-5].startswith("2 of 4 libraries tried run unmodified") and "liger_kernel" in after[-5]
    table.write_page(page, {"second": [("b", "KeyError: 'c'", None, None)]})
    assert "0 of 3 libraries" in page.read_text() and "second: see its row;" in page.read_text()
    assert "| first |" not in page.read_text()
