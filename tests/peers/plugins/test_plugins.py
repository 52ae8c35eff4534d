"""FSDP and DeepSpeed as accelerate and transformers set them up, on two CPU ranks: the losses and weights of one process.

``scripts/peers plugins`` runs this, with accelerate's sources and the transformers of its environment.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

JOB = pathlib.Path(__file__).with_name("job.py")


def train(front, strategy, ranks, folder):
    folder.mkdir()
    launcher = ["-m", "rushlight.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("ACCELERATE_", "FSDP_"))}
    seconds = float(os.environ.get("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "240"))
    command = [sys.executable, *launcher, str(JOB), front, strategy, str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        named = [line for line in lines if "Error" in line]
        raise RuntimeError(f"{front} {strategy}: {(named or lines or ['nothing said'])[-1]}\n" + "\n".join(lines[-60:]))
    return json.loads((folder / "result.json").read_text(encoding="utf-8")), torch.load(folder / "weights.pt")


@pytest.fixture(scope="session", params=["accelerate", "trainer"])
def alone(request, tmp_path_factory):
    """A front, and what it makes of one process."""
    return request.param, train(request.param, "single", 1, tmp_path_factory.mktemp("alone") / "one")


STRATEGIES = ["fsdp1", "fsdp2", "fsdp2-offload", "deepspeed1", "deepspeed2", "deepspeed2-offload", "deepspeed3", "deepspeed3-offload"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ranks_equal_one_process(strategy, alone, tmp_path):
    front, (expected, expected_weights) = alone
    result, weights = train(front, strategy, 2, tmp_path / "two")
    # The strategy has been taken up.
    assert result["wrapped"] in ("FullyShardedDataParallel", "FSDPGPT2LMHeadModel", "DeepSpeedEngine"), result["wrapped"]
    assert result["losses"] == pytest.approx(expected["losses"], rel=2e-5), (result, expected)
    assert set(weights) == set(expected_weights), set(weights) ^ set(expected_weights)
    for name, value in expected_weights.items():
        assert weights[name].shape == value.shape and (weights[name].float() - value).abs().max() < 2e-4, name
