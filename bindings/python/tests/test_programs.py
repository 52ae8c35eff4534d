"""Programs written for PyTorch, run as they are. Each checks its own result."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
ARGUMENTS = {"digits_cnn": ["--save-model", "model.pt", "--no-cuda"]}


@pytest.mark.parametrize("program", sorted(p.stem for p in PROGRAMS.glob("*.py")))
def test_program(program, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "rushlight", str(PROGRAMS / f"{program}.py"), *ARGUMENTS.get(program, [])]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
