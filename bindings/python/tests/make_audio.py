"""Records torchaudio's answers to the expressions of audio.txt: ``python make_audio.py`` with a Python that has torch and torchaudio."""

import json
import pathlib
import sys

import make_behaviour
import numpy as np

HERE = pathlib.Path(__file__).parent


def expressions():
    return [line for line in (HERE / "audio.txt").read_text().splitlines() if line.strip() and not line.startswith("#")]


def answer(expression, torch, torchaudio):
    """The value of an expression as JSON has it, or the classes of its error."""
    known = make_behaviour.names(torch)
    known.update(AF=torchaudio.functional, T=torchaudio.transforms)
    t = torch.arange(1600) / 1600.0
    known["w"] = torch.stack([torch.sin(2 * torch.pi * 50 * t) * 0.5, torch.cos(2 * torch.pi * 120 * t * t) * 0.3])
    try:
        return make_behaviour.plain(make_behaviour.value_of(expression, known), torch)
    except Exception as error:
        return {"raises": [kind.__name__ for kind in type(error).__mro__[:-1]]}


def make_flac():
    """A file by libsndfile with its samples: stereo with a constant stretch, noise and tones, so that all predictors occur."""
    import soundfile

    generator = np.random.default_rng(1)
    t = np.arange(3000)
    left = np.round(9000 * np.sin(t / 17)).astype(np.int16)
    left[1000:1600] = 12
    right = (left // 2 + generator.integers(-40, 40, 3000)).astype(np.int16)
    right[2000:2300] = generator.integers(-32768, 32767, 300)
    samples = np.stack([left, right], 1)
    soundfile.write(HERE / "sound.flac", samples, 16000, subtype="PCM_16")
    np.save(HERE / "sound.npy", samples)


if __name__ == "__main__":
    import torch

    make_flac()

    # The check of CUDA's version is for kernels that are not used here.
    torch.version.cuda = None
    import torchaudio

    found = {expression: answer(expression, torch, torchaudio) for expression in expressions()}
    (HERE / "audio.json").write_text(json.dumps(found, indent=0) + "\n")
    sys.exit(0)
