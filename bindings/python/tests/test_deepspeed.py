"""DeepSpeed's front over processes of this machine, against one process with PyTorch's names."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._deepspeed import WarmupCosineLR, WarmupDecayLR, WarmupLR
from rushlight._deepspeed._config import Config
from test_distributed import launch

RANKS = pathlib.Path(__file__).with_name("model_parallel_ranks.py")


#: Ranks, stages, offloading; ``scripts/nightly ranks`` sets another number of ranks.
CASES = [(1, 0, "none"), (2, 0, "none"), (2, 1, "none"), (2, 2, "cpu"), (4, 2, "none")]
if "RUSHLIGHT_TEST_RANKS" in os.environ:
    CASES = [(int(os.environ["RUSHLIGHT_TEST_RANKS"]), stage, "cpu" if stage else "none") for stage in range(4)]


@pytest.mark.parametrize("size, stage, offload", CASES)
def test_training_equals_one_process(size, stage, offload):
    launch(size, RANKS, "deepspeed_trains", stage, offload)


@pytest.mark.parametrize("offload", ["none", "cpu"])
def test_stage_3(tmp_path, offload):
    launch(2, RANKS, "deepspeed_trains", 3, offload)


@pytest.mark.parametrize("size", [1, 4])
def test_models_are_built_in_shards(size):
    launch(size, RANKS, "deepspeed_built")


@pytest.mark.parametrize("stage", [1, 3])
def test_states_in_files(tmp_path, stage):
    launch(2, RANKS, "deepspeed_trains", stage, "nvme", tmp_path)


def test_stage_3_continues_from_a_checkpoint(tmp_path):
    launch(2, RANKS, "deepspeed_saves", tmp_path, 3)
    launch(4, RANKS, "deepspeed_continues", tmp_path, 3)


@pytest.mark.parametrize("writers, readers, stages", [(2, 4, (2, 1)), (4, 1, (1, 0))])
def test_other_ranks_continue_from_a_checkpoint(tmp_path, writers, readers, stages):
    launch(writers, RANKS, "deepspeed_saves", tmp_path, stages[0])
    assert (tmp_path / "latest").read_text() == "global_step3"
    launch(readers, RANKS, "deepspeed_continues", tmp_path, stages[1])


@pytest.mark.parametrize("kind, stage", [("bf16", 2), ("fp16", 1)])
def test_half_precision(kind, stage):
    launch(2, RANKS, "deepspeed_half", kind, stage)


def test_configurations():
    config = Config({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}, 2)
    assert (config.batch, config.micro_batch, config.accumulation, config.stage) == (24, 4, 3, 0)
    assert Config({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, 2).accumulation == 4
    for wrong, reason in [
        ({}, "needs to be set"),
        ({"train_batch_size": 8, "zero_optimisation": {}}, "'zero_optimisation' is not supported; did you mean 'zero_optimization'"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}}, "offload_optimizer.nvme_path"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "tape"}}}, "offload_optimizer.device"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": 1, "stages": 3}}, "'zero_optimization.stages' is not supported"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": 4}}, "should be 0, 1, 2 or 3"),
        ({"train_batch_size": 8, "autotuning": {"enabled": True}}, "'autotuning' is not supported"),
        ({"train_batch_size": "auto"}, "'auto'"),
        ({"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2}, "Check batch related parameters"),
        ({"train_batch_size": 8, "fp16": {"enabled": True}, "bf16": {"enabled": True}}, "cannot both"),
    ]:
        with pytest.raises(ValueError, match=reason):
            Config(wrong, 2)


def test_schedules():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5)
    schedule = WarmupLR(optimizer, 0.1, 1.1, 10, "linear")
    assert schedule.get_last_lr() == [0.1]
    for _ in range(6):
        schedule.step()
    assert abs(optimizer.param_groups[0]["lr"] - 0.6) < 1e-9
    decay = WarmupDecayLR(optimizer, 20, 0.0, 1.0, 10)
    decay.step(15)
    assert abs(decay.get_last_lr()[0] - 0.5) < 1e-9
    decay.step(3)
    assert abs(decay.get_last_lr()[0] - 0.60206) < 1e-5
    optimizer.param_groups[0]["lr"] = 2.0
    cosine = WarmupCosineLR(optimizer, 20, 0.0, 10, 0.1, "linear")
    cosine.step(5)
    assert abs(cosine.get_last_lr()[0] - 1.0) < 1e-9
    cosine.step(19)
    assert abs(cosine.get_last_lr()[0] - 0.2) < 1e-9


def test_programs_import_it(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}))
    program = tmp_path / "program.py"
    program.write_text(f"""
import argparse
import rushlight
rushlight.install()
import deepspeed, torch
args = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args(["--deepspeed", "--deepspeed_config", {str(config)!r}])
model = torch.nn.Linear(2, 1)
engine, optimizer, loader, schedule = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters(), training_data=[torch.ones(2)] * 4)
for x in loader:
    engine.backward(engine(x).sum())
    engine.step()
assert engine.global_steps == 2 and schedule is None and isinstance(optimizer, torch.optim.SGD)
""")
    launch(1, program)


def test_names_that_libraries_use():
    import importlib.metadata

    import rushlight._deepspeed as deepspeed
    from rushlight import _install

    assert deepspeed.runtime.lr_schedules.VALID_LR_SCHEDULES == ["WarmupCosineLR", "WarmupDecayLR", "WarmupLR"]
    deepspeed.utils.logging.logger.setLevel("WARNING")
    assert deepspeed.comm.is_available() and deepspeed.comm.get_local_rank() == 0
    assert deepspeed.accelerator.get_accelerator().device_name() in ("cpu", "cuda", "xpu")
    deepspeed.checkpointing.configure(None, partition_activations=False)
    with pytest.raises(NotImplementedError, match="partition_activations"):
        deepspeed.checkpointing.configure(None, partition_activations=True)
    with deepspeed.zero.Init(enabled=True, config_dict_or_path={}):
        model = torch.nn.Linear(2, 2)
    weights = [model.weight.detach().clone() for _ in range(2)]
    model(torch.ones(1, 2)).sum().backward()
    for kind, optimizer in zip((torch.optim.AdamW, deepspeed.ops.adam.FusedAdam), weights):
        p = optimizer.requires_grad_()
        p.grad = model.weight.grad.clone()
        kind([p], lr=0.1, weight_decay=0.0).step()
    assert torch.equal(*weights)
    # Lightning compares the version of the distribution.
    context = importlib.metadata.DistributionFinder.Context(name="deepspeed")
    assert [d.version for d in _install._finder.find_distributions(context)] == [deepspeed.__version__]
    config = {"train_batch_size": 2, "aio": {"block_size": 1}, "activation_checkpointing": {"partition_activations": False}}
    assert deepspeed.Config(config, 1).batch == 2
    with pytest.raises(ValueError, match="cpu_checkpointing"):
        deepspeed.Config({**config, "activation_checkpointing": {"cpu_checkpointing": True}}, 1)


def test_initialize_takes_what_the_plan_writes(tmp_path):
    """A model and a machine of files; what is written trains on as many ranks."""
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100,
        "max_position_embeddings": 32,
    }))
    machine, written = tmp_path / "machine.json", tmp_path / "plan.json"
    machine.write_text(json.dumps({"like": "h100", "devices": 2, "memory_gb": 0.01}))
    command = [sys.executable, "-m", "rushlight._command", "plan", "--machine", str(machine), "--batch", "16", "--precision", "f32", "--data-parallel", "--write", str(written)]
    found = subprocess.run([*command, "--model", str(tmp_path)], capture_output=True, text=True)
    assert found.returncode == 0 and "on 2 devices" in found.stdout, found
    plan = json.loads(written.read_text())
    assert plan["plan"]["mesh"] == {"pp": 1, "dp": 2, "tp": 1} and not plan["bf16"]["enabled"], plan
    launch(2, RANKS, "deepspeed_planned", written)
    launch(2, RANKS, "deepspeed_planned", written, variables={"RUSHLIGHT_PLAN": str(written)})
    with pytest.raises(ValueError, match="the plan is for 2 devices, not for 4 ranks"):
        Config(plan, 4)
    plan["plan"]["mesh"] = {"pp": 1, "dp": 1, "tp": 2}
    with pytest.raises(ValueError, match="tp 2.*parallelize_module"):
        Config(plan, 2)
    found = subprocess.run([*command, "--layers", "2", "--hidden", "64"], capture_output=True, text=True)
    assert found.returncode == 1 and "--heads" in found.stderr, found
    found = subprocess.run([*command, "--model", "8c"], capture_output=True, text=True)
    assert found.returncode == 2 and "config.json" in found.stderr, found
    found = subprocess.run([*command, "--layers", "2", "--hidden", "64", "--heads", "4", "--vocabulary", "100", "--sequence", "16"], capture_output=True, text=True)
    assert found.returncode == 0 and "own" in found.stdout, found
