"""An AMD GPU as programs see it: the engine for HIP over a library with HIP's ABI whose GPU is emulated (``scripts/emulated``)."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

TESTS = pathlib.Path(__file__).parent
EMULATED = TESTS.parents[2] / "scripts" / "emulated"


@pytest.fixture(scope="module")
def environment():
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler to build the emulated GPU with")
    directory = subprocess.run([EMULATED], check=True, capture_output=True, text=True, timeout=300).stdout.strip()
    path = os.pathsep.join(p for p in sys.path if p)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "RUSHLIGHT_GPU_ENGINE": "hip",
        "RUSHLIGHT_HIP_PATH": directory,
        "RUSHLIGHT_CUDA_CACHE": f"{directory}/kernels",
    }


def run(environment, *args, timeout=600):
    out = subprocess.run([sys.executable, *args], capture_output=True, text=True, env=environment, timeout=timeout)
    assert out.returncode == 0, out.stdout[-4000:] + out.stderr[-4000:]
    return out.stdout


def test_names(environment, tmp_path):
    program = """
        import sys
        import rushlight as torch

        assert torch.version.cuda is None and torch.version.hip.startswith("6.") and torch.version.rocm == torch.version.hip
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        assert torch.cuda.get_device_name() == "Emulated CDNA 2" and torch.cuda.get_device_capability() == (9, 0)
        assert torch.accelerator.current_accelerator().type == "cuda"
        x = torch.arange(6.0, device="cuda").reshape(2, 3)
        # The vendor's own name means the same device.
        assert x.device == torch.device("cuda", 0) == torch.ones(1, device="hip").device
        assert torch.cuda.current_stream().device == torch.device("cuda", 0)
        assert torch.linalg.det(x @ x.t()).cpu().item() > 0, "factorisations turn to the CPU"
        torch.save({"x": x}, sys.argv[1])
        assert torch.load(sys.argv[1])["x"].is_cuda and torch.load(sys.argv[1], map_location="cpu")["x"].tolist() == x.tolist()
        print("done")
    """
    assert "done" in run(environment, "-c", textwrap.dedent(program), str(tmp_path / "x.pt"))


def test_what_programs_do_with_cuda(environment):
    # All but a test that keeps a GPU busy, which takes an emulated one minutes.
    selection = ["-k", "not memory_waits_for_the_stream"]
    out = run(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", *selection, str(TESTS / "test_cuda.py"))
    assert "skipped" not in out and " passed" in out, out


def test_versions_without_a_gpu():
    import rushlight

    versions = [rushlight.version.cuda, rushlight.version.hip]
    assert versions.count(None) >= 1 and rushlight.version.rocm == rushlight.version.hip
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rushlight.version.nothing
