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
        from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError
        args = run.get_args_parser().parse_args(["--nproc_per_node=2", "--max-restarts", "0", {program!r}, "0", "--lr", "1"])
        assert (args.nproc_per_node, args.max_restarts, args.training_script_args) == ("2", 0, ["0", "--lr", "1"])
        run.run(args)
        try:
            run.run(run.parse_args(["--nproc-per-node=2", {program!r}, "4"]))
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            assert failure.exitcode == 4 and failure.local_rank == rank, error
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


ELASTIC = """
    import os, signal, sys
    from rushlight.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
    from rushlight.distributed.launcher.api import LaunchConfig, elastic_launch

    def product(factor):
        return factor * int(os.environ["RANK"]), os.environ["WORLD_SIZE"]

    def second_time(marker):
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise RuntimeError("the first time")
        return "well"

    def fails(kind):
        if os.environ["RANK"] == "1":
            if kind == "signal":
                os.kill(os.getpid(), signal.SIGSEGV)
            raise KeyError("no such layer")
        signal.pause()

    def config(**options):
        return LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, **options)

    if __name__ == "__main__":
        assert elastic_launch(config(rdzv_backend="c10d", rdzv_endpoint="localhost:0"), product)(3) == {0: (0, "2"), 1: (3, "2")}
        assert elastic_launch(config(max_restarts=1), second_time)(0) == {0: "well", 1: "well"}
        from rushlight._horovod.runner import run

        assert run(product, args=(3,), np=2) == [(0, "2"), (3, "2")]
        try:
            run(product, args=(3,), np=2, hosts="a:1,b:1")
        except NotImplementedError as error:
            assert "hosts" in str(error)
        else:
            sys.exit("no error")
        try:
            elastic_launch(config(max_restarts=0), fails)("error")
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            assert (error.name, rank, failure.local_rank, failure.exitcode) == ("fails", 1, 1, 1), error
            assert failure.message["message"] == "KeyError: 'no such layer'" and "in fails" in failure.message["extraInfo"]["py_callstack"]
            assert error.failures[0].exitcode == -signal.SIGTERM and error.failures[0].signal_name() == "SIGTERM"
            assert "fails FAILED" in str(error) and "no such layer" in str(error) and failure.timestamp_isoformat()[:2] == "20"
        else:
            sys.exit("no error")
        try:
            elastic_launch(config(max_restarts=0), fails)("signal")
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            assert (rank, failure.exitcode) == (1, -signal.SIGSEGV) and "SIGSEGV" in failure.message, error
        logs = DefaultLogsSpecs(log_dir=sys.argv[1], redirects=Std.ALL)
        assert elastic_launch(config(run_id="r", logs_specs=logs), "echo")("hello") == {}
        assert open(os.path.join(sys.argv[1], "r", "attempt_0", "1", "stdout.log")).read() == "hello" + chr(10)
        try:
            elastic_launch(config(), lambda: 0)()
        except TypeError as error:
            assert "picklable" in str(error)
        print("as in PyTorch")
"""


def test_elastic_launch(tmp_path):
    script = tmp_path / "elastic.py"
    script.write_text(textwrap.dedent(ELASTIC))
    result = run(str(script), str(tmp_path / "logs"))
    assert result.stdout.splitlines()[-1:] == ["as in PyTorch"], result.stderr
    assert "its error: KeyError: 'no such layer'" in result.stderr


def test_record_writes_what_pytorch_writes(tmp_path, monkeypatch):
    import json

    from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record

    @record
    def main(x):
        if x == 0:
            sys.exit(0)
        raise ValueError(f"bad {x}")

    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    assert main(0) is None
    with pytest.raises(ValueError, match="bad 3"):
        main(3)
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "ValueError: bad 3" and message["extraInfo"]["py_callstack"].startswith("Traceback")
    failure = ProcessFailure(local_rank=1, pid=997, exitcode=1, error_file=str(path))
    assert failure.message == message and failure.timestamp == int(message["extraInfo"]["timestamp"])
    assert ProcessFailure(0, 997, -9, "").signal_name() == "SIGKILL"

    # A launcher inside a rank passes its rank's error on.
    outer = tmp_path / "outer.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(outer))

    @record
    def launcher():
        raise ChildFailedError("trainer", {4: failure})

    with pytest.raises(ChildFailedError) as caught:
        launcher()
    assert caught.value.name == "trainer" and caught.value.get_first_failure()[0] == 4
    assert json.loads(outer.read_text())["message"]["errorCode"] == 1


def test_configurations_from_command_lines():
    from rushlight.distributed import run as module
    from rushlight.distributed.elastic.multiprocessing import Std

    args = module.parse_args("--nnodes=1:2 --nproc-per-node=3 --rdzv-backend=c10d --rdzv-endpoint=h:1 --rdzv-conf=timeout=5 --tee=0:1 -m pkg.train --lr 1".split())
    config, program, words = module.config_from_args(args)
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node, config.rdzv_configs["timeout"]) == (1, 2, 3, "5")
    assert words == ["-u", "-m", "pkg.train", "--lr", "1"] and program
    assert config._options()[-1] == "--tee=0:1" and Std.from_str("2") is Std.ERR
    with pytest.raises(ValueError):
        Std.from_str("x")
    with pytest.raises(RuntimeError, match="MIN:MAX"):
        module.parse_min_max_nnodes("1:2:3")


def test_a_function_of_an_interactive_session_needs_help():
    code = "from rushlight.distributed.launcher import *\ndef f(): pass\nelastic_launch(LaunchConfig(1, 1, 1), f)()"
    result = subprocess.run([sys.executable], input=code, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        assert "put it into a module, or install cloudpickle" in result.stderr
    else:
        assert result.returncode == 0, result.stderr


def test_the_elastic_sampler_has_pytorchs_order():
    from rushlight.distributed.elastic.utils.data import ElasticDistributedSampler

    shares = []
    for rank in range(2):
        sampler = ElasticDistributedSampler(range(11), num_replicas=2, rank=rank, start_index=4)
        sampler.set_epoch(3)
        shares.append(list(sampler))
        assert len(sampler) == 4
    assert shares == [[9, 8, 4, 5], [7, 10, 6, 9]]
    with pytest.raises(ValueError, match="Start index 11"):
        ElasticDistributedSampler(range(11), 2, 0, start_index=11)


@pytest.mark.parametrize("words, error, message", [
    ("--nnodes a", ValueError, "invalid literal"),
    ("--nnodes 1:2:3", RuntimeError, "MIN:MAX"),
    ("--nnodes 2:1", AssertionError, "min_nodes must be > 0 and <= max_nodes"),
    ("--max-restarts -1", AssertionError, "max_restarts must be >= 0"),
    ("--nproc-per-node foo", ValueError, "Unsupported nproc_per_node value: foo"),
    ("--no-python --module", ValueError, "Don't use both"),
    ("--rdzv-conf a", ValueError, "option 'a' must have a value"),
    ("--redirects 9", ValueError, "9 does not match"),
    ("--tee a:b", ValueError, "a:b does not match"),
    ("--local-ranks-filter a", ValueError, "comma-separated list of integers"),
    ("--logs-specs no", ValueError, "Could not find entrypoint"),
    ("--start-method zz", SystemExit, "2"),
])
def test_wrong_options_raise_as_in_pytorch(words, error, message, capsys):
    from rushlight.distributed import run

    with pytest.raises(error, match=message):
        run.config_from_args(run.parse_args([*words.split(), "x"]))
