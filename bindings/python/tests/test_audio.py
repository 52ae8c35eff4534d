"""Sound: functions and transforms must give torchaudio's answers; files must give the samples that were written."""

import io
import json
import math
import pathlib
import struct
import subprocess
import sys

import make_audio
import numpy as np
import pytest

import rushlight as torch
from rushlight import audio

HERE = pathlib.Path(__file__).parent
RECORDED = json.loads((HERE / "audio.json").read_text())


def close(found, expected):
    """Whether answers agree to the precision of sums of single-precision numbers."""
    if isinstance(expected, dict) and "tensor" in expected:
        if not isinstance(found, dict) or (found.get("shape"), found.get("dtype")) != (expected["shape"], expected["dtype"]):
            return False
        scale = max((abs(v) for v in expected["tensor"] if isinstance(v, float)), default=1.0)
        return all(close_numbers(a, b, scale) for a, b in zip(found["tensor"], expected["tensor"]))
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, dict) and "raises" in expected:
        return isinstance(found, dict) and expected["raises"][0] in found.get("raises", ())
    return found == expected


def close_numbers(a, b, scale):
    if isinstance(b, dict):
        return all(math.isclose(x, y, rel_tol=1e-4, abs_tol=1e-5 * max(scale, 1.0)) for x, y in zip(a["complex"], b["complex"]))
    return a == b or not isinstance(b, str) and math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5 * max(scale, 0.1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", make_audio.expressions())
def test_answers(expression):
    found, expected = make_audio.answer(expression, torch, audio), RECORDED[expression]
    assert close(found, expected), f"{expression}\n  here       {found}\n  torchaudio {expected}"


def test_flac():
    expected = np.load(HERE / "sound.npy")
    samples, rate = audio.load(HERE / "sound.flac")
    assert rate == 16000
    np.testing.assert_array_equal(samples.numpy().T, expected.astype(np.float32) / 32768)
    part, _ = audio.load(str(HERE / "sound.flac"), frame_offset=1500, num_frames=100, channels_first=False)
    np.testing.assert_array_equal(part.numpy(), expected[1500:1600].astype(np.float32) / 32768)
    assert audio.info(HERE / "sound.flac") == (16000, 3000, 2, 16, "FLAC")


@pytest.mark.parametrize(("encoding", "bits", "step"), [("PCM_S", 16, 2.0 ** -15), ("PCM_S", 24, 2.0 ** -23), ("PCM_S", 32, 2.0 ** -24), ("PCM_U", 8, 2.0 ** -7), ("PCM_F", 32, 0.0), ("PCM_F", 64, 0.0)])
def test_wav(tmp_path, encoding, bits, step):
    waveform = torch.linspace(-1, 0.99, 400).reshape(2, 200)
    audio.save(tmp_path / "x.wav", waveform, 8000, encoding=encoding, bits_per_sample=bits)
    found, rate = audio.load(tmp_path / "x.wav")
    assert rate == 8000 and found.shape == waveform.shape
    assert float((found - waveform).abs().max()) <= step
    assert audio.info(tmp_path / "x.wav") == (8000, 200, 2, bits, encoding)


def test_wav_of_another_writer(tmp_path):
    import wave

    samples = np.arange(-300, 300, 5, dtype=np.int16)
    with wave.open(str(tmp_path / "x.wav"), "wb") as file:
        file.setparams((1, 2, 44100, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    found, rate = audio.load(tmp_path / "x.wav", normalize=False)
    assert rate == 44100 and found.dtype == torch.int16
    np.testing.assert_array_equal(found.numpy()[0], samples)


@pytest.mark.parametrize("cut", [0, 3, 12, 20, 40, 50, 100, 700])
@pytest.mark.parametrize("kind", ["flac", "wav"])
def test_damaged_files(tmp_path, kind, cut):
    """A file that ends early is an error, or gives its first samples."""
    if kind == "flac":
        data = (HERE / "sound.flac").read_bytes()
    else:
        held = io.BytesIO()
        audio.save(held, torch.zeros(1, 400), 8000, format="wav")
        data = held.getvalue()
    try:
        found, _ = audio.load(io.BytesIO(data[:cut]))
    except (RuntimeError, struct.error):
        return
    assert kind == "wav" and found.shape[1] <= 400


def test_served_as_torchaudio():
    program = "import rushlight; rushlight.install(); import torchaudio, torchaudio.transforms as T, torch; print(T.MelSpectrogram()(torch.zeros(1, 800)).shape[1], torchaudio.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["128", "torchaudio"]


def test_stretching_in_double_precision_agrees_with_pytorch():
    """Phases add up to hundreds of turns, so that single precision loses three digits, in PyTorch too; in double precision both agree."""
    from rushlight.audio._spectral import _stretched

    places = np.arange(1600) / 1600
    left = np.sin(2 * np.pi * 50 * places) * 0.5 + 0.01 * np.sin(places * 3e4)
    right = np.cos(2 * np.pi * 120 * places * places) * 0.3 + 0.01 * np.cos(places * 7e4)
    torch.set_default_dtype(torch.float64)
    try:
        found = _stretched(torch.from_numpy(np.stack([left, right])), 2, 12, 512, None, None, None)
    finally:
        torch.set_default_dtype(torch.float32)
    expected = [0.31898423, 0.20217515, -0.20735668, 0.20688855, -0.01727612, -0.28402894, 0.02883912, -0.25875476, 0.29494031, -0.1625554]
    np.testing.assert_allclose(found[:, [100, 500, 900, 1300, 1700]].reshape(-1).numpy(), expected, atol=1e-7)
