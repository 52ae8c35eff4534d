"""A rank of ``test_plugins.py``: trains a small GPT-2 by accelerate or by transformers' Trainer and writes its losses and weights.

    job.py accelerate|trainer STRATEGY FOLDER

A world of one process trains on the whole batch, two on halves of it. Results are in FOLDER/result.json and FOLDER/weights.pt.
"""

import json
import os
import sys

import torch
import transformers

BATCH, STEPS, LENGTH, VOCABULARY = 8, 4, 12, 61
SIZE = int(os.environ.get("WORLD_SIZE", "1"))


def model():
    torch.manual_seed(3)
    sizes = dict(n_layer=2, n_embd=32, n_head=2, n_positions=16, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0)
    without = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, tie_word_embeddings=False)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **without))


def data():
    ids = torch.randint(0, VOCABULARY, (BATCH * STEPS, LENGTH), generator=torch.Generator().manual_seed(5))
    return [{"input_ids": row, "labels": row} for row in ids]


def deepspeed_configuration(stage, offload):
    zero = {"stage": stage, "overlap_comm": True, "stage3_gather_16bit_weights_on_model_save": True}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu"}
    return {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": 1.0,
        "zero_optimization": zero, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    }


def pretend_gpus():
    """accelerate takes up FSDP and DeepSpeed where it finds GPUs only. Everything after its choice of a backend is the same on CPU ranks."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState._prepare_backend = lambda self, *args, **kwargs: ("gloo", DistributedType.MULTI_GPU)


def by_accelerate(strategy, folder):
    from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin

    words = {}
    if strategy.startswith("fsdp"):
        version = int(strategy[4])
        words["fsdp_plugin"] = FullyShardedDataParallelPlugin(
            fsdp_version=version, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["GPT2Block"],
            reshard_after_forward=True if version == 2 else "FULL_SHARD", state_dict_type="FULL_STATE_DICT" if version == 1 else "SHARDED_STATE_DICT",
            cpu_offload="offload" in strategy, cpu_ram_efficient_loading=False, sync_module_states=False,
        )
    elif strategy.startswith("deepspeed"):
        words["deepspeed_plugin"] = DeepSpeedPlugin(hf_ds_config=deepspeed_configuration(int(strategy[9]), "offload" in strategy))
    accelerator = Accelerator(cpu=strategy == "single", **words)
    module = model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(data(), batch_size=BATCH // SIZE)
    module, optimizer, loader = accelerator.prepare(module, optimizer, loader)
    losses = []
    for batch in loader:
        loss = module(**batch).loss
        accelerator.backward(loss)
        if not strategy.startswith("deepspeed"):
            accelerator.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    if strategy != "single":
        # A checkpoint of accelerate's comes back.
        accelerator.save_state(os.path.join(folder, "state"))
        accelerator.backward(module(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.load_state(os.path.join(folder, "state"))
    weights = accelerator.get_state_dict(module)
    sharded = type(module).__name__
    if accelerator.is_main_process:
        write(folder, losses, weights, sharded)
    accelerator.end_training()


def by_trainer(strategy, folder):
    words = {"use_cpu": True}
    if strategy.startswith("fsdp"):
        settings = {"transformer_layer_cls_to_wrap": ["GPT2Block"], "cpu_ram_efficient_loading": False, "sync_module_states": False, "fsdp_version": int(strategy[4])}
        words = {"fsdp": "full_shard auto_wrap offload" if "offload" in strategy else "full_shard auto_wrap", "fsdp_config": settings}
    elif strategy.startswith("deepspeed"):
        words = {"deepspeed": deepspeed_configuration(int(strategy[9]), "offload" in strategy)}
    arguments = transformers.TrainingArguments(
        output_dir=os.path.join(folder, "trainer"), per_device_train_batch_size=BATCH // SIZE, num_train_epochs=1, learning_rate=1e-2, max_grad_norm=1.0,
        logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, lr_scheduler_type="constant", optim="adamw_torch", **words,
    )

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    trainer = InOrder(model=model(), args=arguments, train_dataset=data())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if trainer.is_world_process_zero():
        write(folder, losses, weights, type(trainer.model_wrapped).__name__)


def write(folder, losses, weights, wrapped):
    torch.save({name.replace("module.", ""): value.detach().cpu() for name, value in weights.items()}, os.path.join(folder, "weights.pt"))
    with open(os.path.join(folder, "result.json"), "w", encoding="utf-8") as file:
        json.dump({"losses": losses, "wrapped": wrapped}, file)


if __name__ == "__main__":
    if SIZE > 1:
        pretend_gpus()
    {"accelerate": by_accelerate, "trainer": by_trainer}[sys.argv[1]](*sys.argv[2:])
