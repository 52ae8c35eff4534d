"""The command ``rushlight`` of the package, and what a user sees of mistakes."""

import os
import subprocess
import sys

import pytest
import rushlight
import rushlight as torch


def run(*words, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, env=environment)


def test_commands_are_those_of_the_program():
    done = run("-m", "rushlight._command", "--version")
    assert done.returncode == 0 and done.stdout.startswith("rushlight 0.")
    assert "doctor" in run("-m", "rushlight._command", "--help").stdout
    done = run("-m", "rushlight._command", "docter")
    assert done.returncode == 2 and done.stderr == "rushlight: there is no command docter; did you mean doctor?\n"
    done = run("-m", "rushlight._command", "ui", "--prot", "1")
    assert done.returncode == 2 and done.stderr == "rushlight ui: --prot is no option (did you mean --port?); see rushlight ui --help\n"
    done = run("-m", "rushlight._command", "job", "--scheduler", "slurm", "--nodse", "2", "a.py")
    assert done.returncode == 2 and "did you mean --nodes?" in done.stderr
    assert run("-m", "rushlight._command", "doctor").returncode == 0


def test_a_missing_script_is_one_line(tmp_path):
    done = run("-m", "rushlight", str(tmp_path / "no.py"))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "no.py" in done.stderr
    done = run("-m", "rushlight.run", "--nproc-per-node", "2", str(tmp_path / "no.py"))
    assert done.returncode == 2 and done.stderr == f"rushlight run: there is no script {tmp_path / 'no.py'}\n"


def test_misspelt_options_and_variables():
    done = run("-m", "rushlight.run", "--nproc-per-nod", "2", "a.py")
    assert done.returncode == 2 and "did you mean --nproc-per-node?" in done.stderr
    done = run("-m", "rushlight", "--devise", "cpu", "a.py")
    assert done.returncode == 2 and "did you mean --device?" in done.stderr and len(done.stderr.splitlines()) == 1
    done = run("-c", "import rushlight", RUSHLIGHT_NUM_THREAD="2")
    assert "nothing reads the variable RUSHLIGHT_NUM_THREAD; did you mean RUSHLIGHT_NUM_THREADS?" in done.stderr


def test_scripts_run_on_rushlight_where_no_torch_is_installed(tmp_path):
    script = tmp_path / "a.py"
    script.write_text("import torch; print(torch.__name__, '+rushlight' in torch.__version__)")
    # An interpreter without site packages has no torch but the one that Rushlight serves.
    launcher = tmp_path / "python"
    root = os.path.dirname(rushlight.__path__[0])
    launcher.write_text(f"#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -S \"$@\"\n")
    launcher.chmod(0o755)
    done = run("-m", "rushlight.run", "--nproc-per-node", "2", str(script), PYTHON_EXEC=str(launcher), PYTHONPATH=os.environ.get("PYTHONPATH", root))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True") == 2, (done.stdout, done.stderr)


def test_the_build_says_the_level_in_use():
    program = "import rushlight as torch; print(torch.__config__.show(), torch.backends.cpu.get_cpu_capability())"
    assert "CPU capability usage: DEFAULT" in run("-c", program, RUSHLIGHT_CPU_ISA="portable").stdout


def test_anomalies_show_the_line_that_called_the_forward():
    x = torch.zeros(1, requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        mode = torch.autograd.detect_anomaly()
    with mode, pytest.warns(UserWarning) as told, pytest.raises(RuntimeError, match="^Function 'SqrtBackward0' returned nan values in its 0th output"):
        (x.sqrt() * 0).sum().backward()
    text = str(told[-1].message)
    assert "Error detected in SqrtBackward0. Traceback of forward call that caused the error:" in text
    assert "test_command.py" in text and "(x.sqrt() * 0).sum().backward()" in text and ".so" not in text.split("test_command.py")[-1]


def test_an_anomaly_without_its_forward():
    y = (torch.zeros(1, requires_grad=True).sqrt() * 0).sum()
    with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="No forward pass information available"), pytest.raises(RuntimeError):
        y.backward()
