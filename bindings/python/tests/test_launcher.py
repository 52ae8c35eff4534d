"""``python -m rushlight.run`` and its other names. What ranks and launchers do is tested in Rust."""

import os
import subprocess
import sys
import textwrap

import pytest

FOREIGN = ("SLURM_", "PMI_", "OMPI_", "PET_", "TORCHELASTIC_", "PALS_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k not in ("RANK", "WORLD_SIZE", "PYTHON_EXEC")}
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)

PROGRAM = textwrap.dedent("""
    import os, sys
    print(*(os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")), sys.executable, sys.argv[1:])
    sys.exit(int(sys.argv[1]))
""")


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def run(*args, **kwargs):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=ENVIRONMENT, timeout=120, **kwargs)


@pytest.mark.parametrize("names", [["-m", "rushlight.run"], ["-m", "rushlight", "-m", "torch.distributed.run"], ["-m", "rushlight.distributed.run"]])
def test_ranks_run_under_this_interpreter(names, program):
    result = run(*names, "--standalone", "--nproc_per_node=2", program, "0", "--lr")
    assert result.returncode == 0, result.stderr
    expected = [f"[rank{r}]: {r} 2 {r} {sys.executable} ['0', '--lr']" for r in range(2)]
    assert sorted(result.stdout.splitlines()) == expected


def test_modules_and_exit_codes(program):
    result = run("-m", "rushlight.run", "--nproc-per-node", "2", "-m", "program", "5", cwd=os.path.dirname(program))
    assert result.returncode == 5, result.stderr
    assert "failed: exit code 5" in result.stderr


def test_the_launcher_leaves_the_interpreter_as_it_was(program):
    code = f"""
        import signal, subprocess, sys
        from rushlight.run import main
        other = subprocess.Popen(["sleep", "60"])
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert main(["--nproc-per-node", "2", {program!r}, "3"]) == 3
        assert main(["--frobnicate"]) == 2
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
        assert other.poll() is None
        other.kill()
        assert other.wait() == -9
        print("as it was")
    """
    result = run("-c", textwrap.dedent(code))
    assert result.stdout.splitlines()[-1:] == ["as it was"], result.stderr
