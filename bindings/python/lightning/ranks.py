"""Data parallel by Lightning: two ranks, which Lightning starts itself or a launcher has started.

    python ranks.py OUTCOME.json                     Lightning starts the second rank (``ddp``)
    python ranks.py OUTCOME.json --strategy ddp_spawn
    torchrun --nproc-per-node 2 ranks.py OUTCOME.json
    rushlight run --nproc-per-node 2 ranks.py OUTCOME.json

Rank 0 writes the losses and the weights' sum, which must be those of every other way.
"""

import argparse
import json
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch
from small_model import QUIET, Net, data, pl


class Ranked(Net):
    """Logs means over ranks."""

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch), sync_dist=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--strategy", default="ddp")
    args = parser.parse_args()
    net = Ranked()
    trainer = pl.Trainer(accelerator="cpu", devices=2, num_nodes=1, strategy=args.strategy, max_epochs=2, **QUIET)
    # Lightning gives each rank its share of the samples.
    trainer.fit(net, torch.utils.data.DataLoader(data(), batch_size=4), torch.utils.data.DataLoader(data(16), batch_size=4))
    if trainer.is_global_zero:
        metrics = {name: value.item() for name, value in sorted(trainer.callback_metrics.items())}
        with open(args.target, "w") as file:
            json.dump({"world": trainer.world_size, "total": net.total(), **metrics}, file)


if __name__ == "__main__":
    main()
