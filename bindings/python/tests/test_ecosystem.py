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
