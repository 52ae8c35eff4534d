"""Figures of GPUs under PyTorch's names, by a library that answers as NVML does; the commands ``rushlight.ui`` and ``rushlight.top``."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.request

import pytest

FAKES = pathlib.Path(__file__).resolve().parents[3] / "crates/rushlight/tests/view/fakes"


@pytest.fixture(scope="module")
def nvml(tmp_path_factory):
    """A directory with an imitated NVML of two GPUs."""
    path = tmp_path_factory.mktemp("nvml")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", path / "libnvidia-ml.so.1", FAKES / "nvml.c"], check=True)
    return path


def run(program, nvml, **variables):
    environment = {**os.environ, "RUSHLIGHT_MONITOR_PATH": str(nvml), **variables}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
    return done.stdout + done.stderr


def test_figures_have_pytorchs_names_and_units(nvml):
    program = (
        "import rushlight as torch; c = torch.cuda; "
        "print(c.utilization(), c.memory_usage(0), c.device_memory_used(), c.temperature(), c.power_draw(), c.clock_rate(), type(c.power_draw()).__name__)"
    )
    assert run(program, nvml) == f"87 42 {64 << 30} 61 512345 1755 int\n"


def test_visible_devices_are_numbered_anew(nvml):
    program = "import rushlight as torch; print(torch.cuda.utilization('cuda:0'))"
    assert run(program, nvml, CUDA_VISIBLE_DEVICES="GPU-bb22") == "3\n"
    assert run(program, nvml, CUDA_VISIBLE_DEVICES="1,0") == "3\n"


def test_what_a_gpu_does_not_say_is_an_error(nvml):
    program = "import rushlight as torch\ntry: torch.cuda.power_draw(1)\nexcept RuntimeError as e: print(e)"
    assert "power_draw" in run(program, nvml)
    program = "import rushlight as torch\ntry: torch.cuda.utilization(7)\nexcept RuntimeError as e: print(e)"
    assert "there is no GPU 7; the management library knows 2" in run(program, nvml)


def test_without_a_library_the_error_says_so(tmp_path):
    program = "import rushlight as torch\ntry: torch.cuda.utilization()\nexcept RuntimeError as e: print('said:', e)\nelse: print('said: a GPU')"
    assert "said:" in run(program, tmp_path)


def test_top_and_ui(nvml, tmp_path):
    environment = {**os.environ, "RUSHLIGHT_MONITOR_PATH": str(nvml)}
    done = subprocess.run([sys.executable, "-m", "rushlight.top", "--once", "--json"], capture_output=True, text=True, timeout=120, env=environment)
    assert json.loads(done.stdout)["gpus"][0]["name"] == "Imaginary A1", done.stderr
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n')
    with subprocess.Popen([sys.executable, "-m", "rushlight.ui", "--no-token", "--port", "0", str(tmp_path)], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().split()[-1]
            for _ in range(1000):
                with urllib.request.urlopen(address + "api/runs", timeout=60) as answer:
                    found = json.load(answer)
                if found["loaded"]:
                    break
            assert found["runs"][0]["metrics"]["loss"][1] == 2
            # Ctrl-C ends it, though the interpreter waits for the command.
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == -signal.SIGINT
        finally:
            server.kill()
