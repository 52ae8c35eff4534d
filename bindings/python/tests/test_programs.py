"""Programs written for PyTorch, run as they are. Each checks its own result."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
#: Arguments of the runs of a program that has some.
ARGUMENTS = {
    "digits_cnn": [["--save-model", "model.pt", "--no-cuda"]],
    "language_model": [["--model", "LSTM", "--tied", "--lr", "5", "--epochs", "3"], ["--model", "Transformer", "--lr", "1", "--epochs", "1"]],
}
RUNS = [(path.stem, arguments) for path in sorted(PROGRAMS.glob("*.py")) for arguments in ARGUMENTS.get(path.stem, [[]])]


@pytest.mark.parametrize(("program", "arguments"), RUNS, ids=lambda value: value if isinstance(value, str) else "_".join(value[:2]))
def test_program(program, arguments, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "rushlight", str(PROGRAMS / f"{program}.py"), *arguments]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
