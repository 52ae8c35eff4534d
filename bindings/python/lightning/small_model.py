"""What the features share: the version of Lightning, the registry, a small model and its data.

Weights and data come from formulas, so that PyTorch and Rushlight compute the same.
"""

import os
import sys
import warnings

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ecosystem"))

import torch
from common import fill, numbers, tokens
from torch import nn

try:
    # Where both are installed, the older one may be asked for.
    if os.environ.get("RUSHLIGHT_LIGHTNING_PACKAGE") == "pytorch_lightning":
        raise ImportError
    import lightning.pytorch as pl
    from lightning.pytorch import callbacks as cb
    from lightning.pytorch import loggers, profilers
except ImportError:
    import pytorch_lightning as pl
    from pytorch_lightning import callbacks as cb
    from pytorch_lightning import loggers, profilers

#: Where to train: ``cpu``, or ``gpu`` on a machine that has one.
ACCELERATOR = os.environ.get("RUSHLIGHT_LIGHTNING_ACCELERATOR", "cpu")
OLD = int(pl.__version__.split(".")[0]) < 2
FEATURES = {}
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}


def feature(versions="both"):
    """Registers a function as a feature of the old version, the new one, or both."""

    def register(function):
        if versions == "both" or versions == ("old" if OLD else "new"):
            FEATURES[function.__name__] = function
        return function

    return register


def data(size=32):
    return torch.utils.data.TensorDataset(numbers(size, 4), tokens(size, vocabulary=3))


def loader(size=32, batch=8):
    return torch.utils.data.DataLoader(data(size), batch_size=batch)


class Net(pl.LightningModule):
    """A small classifier that logs what it does."""

    def __init__(self, width=8, lr=0.1, batch_size=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = fill(nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)), scale=0.5)
        self.lr, self.batch_size, self.seen = lr, batch_size, []

    def forward(self, x):
        return self.net(x)

    def loss(self, batch):
        return nn.functional.cross_entropy(self(batch[0]).float(), batch[1])

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.seen.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        out = self(batch[0])
        self.log_dict({"val_loss": self.loss(batch), "val_accuracy": (out.argmax(1) == batch[1]).float().mean()})

    def test_step(self, batch, index):
        self.log("test_loss", self.loss(batch))

    def predict_step(self, batch, index, dataloader_idx=0):
        return self(batch[0]).argmax(1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)

    def train_dataloader(self):
        return loader(batch=self.batch_size)

    def total(self):
        return sum(p.detach().double().abs().sum().item() for p in self.parameters())


def trainer(**options):
    return pl.Trainer(**{"max_epochs": 2, "accelerator": ACCELERATOR, "devices": 1, **QUIET, **options})


def metrics(run):
    return {name: value.item() for name, value in sorted(run.callback_metrics.items())}
