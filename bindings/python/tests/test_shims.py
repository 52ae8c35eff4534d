"""Distributions named torch, torchvision and torchaudio that stand for this package, in an environment of their own."""

import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

import rushlight
from rushlight import _shims

ROOT = str(pathlib.Path(rushlight.__file__).parents[1])


class Environment:
    """A virtual environment without packages that finds rushlight where these tests do."""

    def __init__(self, folder):
        venv.create(folder, with_pip=False)
        self.python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        self.site = pathlib.Path(self.run("-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip())
        (self.site / "here.pth").write_text(ROOT + "\n")

    def run(self, *args, check=True):
        done = subprocess.run([str(self.python), *args], capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stderr
        return done


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "venv")


PROBE = """
import importlib.metadata, importlib.util, sys
print(importlib.metadata.version('torch'), importlib.metadata.version('torchvision'), importlib.util.find_spec('torch') is not None)
import torch.nn.functional as F
import torch, torchvision.transforms, torchvision
from torch.utils.data import DataLoader
import rushlight
import torchaudio
print(torch is rushlight, torchvision.__name__, importlib.metadata.version("torchaudio") == torchaudio.__version__, F.relu(torch.tensor([-1.0, 2.0])).tolist())
"""


def test_installed_and_removed(environment):
    environment.run("-m", "rushlight", "--install")
    versions, modules = environment.run("-c", PROBE).stdout.splitlines()
    assert versions == f"{_shims.SHIMS['torch']} {_shims.SHIMS['torchvision']} True"
    assert modules == "True torchvision True [0.0, 2.0]"
    # torchrun comes with the shim, not with the wheel, which must not replace a real PyTorch's.
    torchrun = environment.python.parent / "torchrun"
    assert "usage" in subprocess.run([str(torchrun), "--help"], capture_output=True, text=True, timeout=120).stdout.lower()
    # A second time changes nothing.
    environment.run("-m", "rushlight", "--install")
    removed = environment.run("-m", "rushlight", "--uninstall").stdout
    assert not torchrun.exists() and environment.python.exists()
    assert "torch, torchvision, torchaudio" in removed and not [p for p in environment.site.iterdir() if p.name.startswith("torch")]
    assert environment.run("-c", "import torch", check=False).returncode != 0
    assert "no torch" in environment.run("-m", "rushlight", "--uninstall").stdout


def test_a_real_torch_is_left_alone(environment):
    info = environment.site / "torch-2.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.0.0\nSummary: Tensors\n")
    done = environment.run("-m", "rushlight", "--install", check=False)
    assert done.returncode == 1 and "torch 2.0.0 is installed here" in done.stderr and not (environment.site / "torchvision").exists()
    environment.run("-m", "rushlight", "--uninstall")
    assert info.exists()


def test_wheels(tmp_path):
    for name in _shims.SHIMS:
        path = _shims.wheel(name, tmp_path)
        with zipfile.ZipFile(path) as archive:
            listed = archive.read(f"{name}-{_shims.SHIMS[name]}.dist-info/METADATA").decode()
            assert "Requires-Dist: rushlight" in listed and f"{name}/__init__.py" in archive.namelist()
