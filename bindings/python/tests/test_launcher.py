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


def test_pytorchs_functions_over_parsed_arguments(program):
    code = f"""
        from rushlight.distributed import run
        args = run.get_args_parser().parse_args(["--nproc_per_node=2", "--max-restarts", "0", {program!r}, "0", "--lr", "1"])
        assert (args.nproc_per_node, args.max_restarts, args.training_script_args) == ("2", 0, ["0", "--lr", "1"])
        run.run(args)
        try:
            run.run(run.parse_args(["--nproc-per-node=2", {program!r}, "4"]))
        except RuntimeError as error:
            assert "exit code 4" in str(error), error
            print("told")
    """
    result = run("-c", textwrap.dedent(code))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("'--lr', '1'") == 2 and result.stdout.strip().endswith("told")


def test_one_ranks_signal_stops_all_after_the_same_step(tmp_path):
    script = tmp_path / "preempted.py"
    script.write_text(textwrap.dedent("""
        import os, signal, sys, time
        import rushlight.distributed as dist
        from rushlight.preemption import Preemption
        dist.init_process_group("gloo")
        preemption = Preemption()
        for step in range(10000):
            if step == 5 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGUSR1)
            if preemption.agreed():
                print("stopped", step, flush=True)
                dist.destroy_process_group()
                sys.exit(preemption.requeue())
    """))
    result = run("-m", "rushlight.run", "--nproc-per-node=2", str(script))
    assert result.returncode == 75, result.stderr
    stopped = [line.split()[-1] for line in result.stdout.splitlines() if "stopped" in line]
    assert stopped == ["6", "6"]
