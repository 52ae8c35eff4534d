"""DAWN's walk-through: a small GPT over characters by Lightning 1.9, with the changes that its manual makes for Intel's GPUs.

    mpirun -n 2 python -m rushlight train.py --enable_progress_bar 0 --num_nodes 2 --devices 1 --strategy ddp --precision bf16 --max_epochs 2
"""

import os
import time
from argparse import ArgumentParser

# XPUAccelerator must be imported before PyTorch or Lightning
import xpu

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
import oneccl_bindings_for_pytorch  # noqa: F401
import pytorch_lightning as L
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import rank_zero_info  # noqa: F401


class Characters(torch.utils.data.Dataset):
    """Windows of a text, shifted by one."""

    def __init__(self, text, block):
        self.alphabet = sorted(set(text))
        places = {character: at for at, character in enumerate(self.alphabet)}
        self.data, self.block = torch.tensor([places[character] for character in text]), block

    def __len__(self):
        return (len(self.data) - 1) // self.block

    def __getitem__(self, index):
        window = self.data[index * self.block : (index + 1) * self.block + 1]
        return window[:-1], window[1:]


class GPT(L.LightningModule):
    """A decoder of characters."""

    def __init__(self, alphabet, block, layers, heads, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(alphabet, width), nn.Embedding(block, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.blocks, self.head = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Linear(width, alphabet)

    def forward(self, x):
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        return self.head(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device)), mask=mask))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x).flatten(0, 1).float(), y.flatten())
        self.log("train_loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class XPUMetricsCallback(Callback):
    """Time and memory of an epoch."""

    def on_train_epoch_start(self, trainer, pl_module):
        torch.xpu.reset_peak_memory_stats(self.root_gpu(trainer))
        torch.xpu.synchronize(self.root_gpu(trainer))
        self.start_time = time.time()

    def on_train_epoch_end(self, trainer, pl_module):
        torch.xpu.synchronize(self.root_gpu(trainer))
        max_memory = torch.xpu.max_memory_allocated(self.root_gpu(trainer)) / 2**20
        epoch_time = time.time() - self.start_time
        max_memory = trainer.strategy.reduce(torch.tensor(max_memory, device=trainer.strategy.root_device))
        epoch_time = trainer.strategy.reduce(torch.tensor(epoch_time, device=trainer.strategy.root_device))
        if trainer.is_global_zero:
            print(f"Average Epoch time: {epoch_time:.2f} seconds")
            print(f"Average Peak memory {max_memory:.2f}MiB", flush=True)

    def root_gpu(self, trainer):
        return trainer.strategy.root_device.index


def main(args):
    os.environ["RANK"] = str(int(os.environ["PMI_RANK"]))
    os.environ["WORLD_SIZE"] = str(int(os.environ["PMI_SIZE"]))
    init_process_group(backend="ccl")
    text = "a rush dipped in fat gives a small light; many of them light a hall. " * 60
    data = Characters(text, 32)
    L.seed_everything(0)
    model = GPT(len(data.alphabet), 32, args.n_layer, args.n_head, args.n_embd)
    callbacks = []
    if torch.xpu.is_available():
        torch.set_float32_matmul_precision("high")
        callbacks.append(XPUMetricsCallback())
    strategy = xpu.DDPXPUStrategy(process_group_backend="nccl")
    trainer = xpu.Trainer.from_argparse_args(
        args, gradient_clip_val=1.0, callbacks=callbacks, enable_checkpointing=False, strategy=strategy, logger=False, enable_model_summary=False
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=args.batch_size))
    if trainer.is_global_zero:
        loss = trainer.callback_metrics["train_loss_epoch"].item()
        weight = sum(p.detach().double().abs().sum().item() for p in model.parameters())
        print(f"ranks {trainer.world_size} device {trainer.strategy.root_device.type} loss {loss:.4f} weights {weight:.3f}", flush=True)
    destroy_process_group()


if __name__ == "__main__":
    parser = L.Trainer.add_argparse_args(ArgumentParser())
    for name, value in {"n_layer": 1, "n_head": 2, "n_embd": 32, "batch_size": 8}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    main(parser.parse_args())
