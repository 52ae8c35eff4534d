"""Features of Lightning, each as a small run whose outcome is numbers and texts.

    python features.py OUTCOMES.json [NAME ...]

The same file runs over PyTorch and over Rushlight; ``table.py`` compares the outcomes. Weights and data come from formulas, so that both compute
the same. It runs under ``lightning`` 2 and under ``pytorch_lightning`` 1.9.
"""

import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import traceback
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


@feature()
def fit_validate_test_predict():
    net, run = Net(), trainer()
    run.fit(net, loader(), loader(16))
    found = {"losses": net.seen, **metrics(run)}
    found["validated"] = run.validate(net, loader(16), verbose=False)
    found["tested"] = run.test(net, loader(16), verbose=False)
    found["predicted"] = [batch.tolist() for batch in run.predict(net, loader(16))]
    return found


@feature()
def datamodule():
    class Data(pl.LightningDataModule):
        calls = []

        def prepare_data(self):
            self.calls.append("prepare")

        def setup(self, stage):
            self.calls.append(f"setup {getattr(stage, 'value', stage)}")

        def train_dataloader(self):
            return loader()

        def val_dataloader(self):
            return [loader(8), loader(16)]

        def teardown(self, stage):
            self.calls.append(f"teardown {getattr(stage, 'value', stage)}")

    class Two(Net):
        def validation_step(self, batch, index, dataloader_idx=0):
            self.log("val_loss", self.loss(batch))

    run = trainer()
    run.fit(Two(), datamodule=Data())
    return {"calls": Data.calls, **metrics(run)}


@feature()
def hooks_in_order():
    names = [
        "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
        "on_before_optimizer_step", "on_train_batch_end", "on_validation_start", "on_validation_epoch_end", "on_train_epoch_end", "on_save_checkpoint",
        "on_train_end", "on_fit_end", "on_sanity_check_start", "on_sanity_check_end", "on_exception",
    ]
    calls = []

    class Watch(cb.Callback):
        pass

    for name in names:
        setattr(Watch, name, lambda self, *args, _name=name, **kwargs: calls.append(_name))
    trainer(max_epochs=1, limit_train_batches=2, callbacks=[Watch()]).fit(Net(), loader(), loader(8))
    return {"calls": calls}


@feature()
def checkpoints():
    with tempfile.TemporaryDirectory() as folder:
        keep = cb.ModelCheckpoint(dirpath=folder, monitor="val_loss", save_top_k=2, save_last=True, filename="{epoch}-{step}")
        net = Net()
        trainer(max_epochs=4, enable_checkpointing=True, callbacks=[keep]).fit(net, loader(), loader(16))
        again = Net.load_from_checkpoint(keep.last_model_path)
        state = torch.load(keep.last_model_path, weights_only=False)
        return {
            "files": sorted(os.listdir(folder)), "best": os.path.basename(keep.best_model_path), "score": keep.best_model_score.item(),
            "equal": all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(net.parameters(), again.parameters())), "keys": sorted(state), "hparams": dict(again.hparams),
        }


@feature()
def checkpoints_every_n_steps():
    with tempfile.TemporaryDirectory() as folder:
        keep = cb.ModelCheckpoint(dirpath=folder, every_n_train_steps=3, save_top_k=-1)
        trainer(enable_checkpointing=True, callbacks=[keep]).fit(Net(), loader())
        return {"files": sorted(os.listdir(folder))}


@feature()
def resume():
    with tempfile.TemporaryDirectory() as folder:
        whole = Net()
        trainer(max_epochs=4).fit(whole, loader())
        first, path = Net(), os.path.join(folder, "half.ckpt")
        run = trainer(max_epochs=2)
        run.fit(first, loader())
        run.save_checkpoint(path)
        second = Net()
        run = trainer(max_epochs=4)
        run.fit(second, loader(), ckpt_path=path)
        return {"losses": first.seen + second.seen, "same": torch.equal(whole.net[0].weight.cpu(), second.net[0].weight.cpu()), "step": run.global_step}


@feature()
def early_stopping():
    class Flat(Net):
        def validation_step(self, batch, index):
            self.log("val_loss", torch.tensor(max(3.0 - self.current_epoch, 1.0)))

    stop = cb.EarlyStopping("val_loss", patience=2)
    run = trainer(max_epochs=20, callbacks=[stop])
    run.fit(Flat(), loader(), loader(8))
    return {"epochs": run.current_epoch, "stopped": stop.stopped_epoch, "best": stop.best_score.item()}


@feature()
def learning_rate_monitor_and_schedules():
    class Scheduled(Net):
        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=8)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    with tempfile.TemporaryDirectory() as folder:
        log = loggers.CSVLogger(folder)
        trainer(logger=log, callbacks=[cb.LearningRateMonitor()], log_every_n_steps=1).fit(Scheduled(), loader())
        log.save()
        with open(os.path.join(log.log_dir, "metrics.csv")) as file:
            lines = file.read().splitlines()
        column = lines[0].split(",").index("lr-AdamW")
        return {"rates": [float(line.split(",")[column]) for line in lines[1:] if line.split(",")[column]]}


@feature()
def reduce_on_plateau():
    class Plateau(Net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}

    run = trainer(max_epochs=4)
    net = Plateau()
    run.fit(net, loader(), loader(8))
    return {"rate": run.optimizers[0].param_groups[0]["lr"], "total": net.total()}


@feature()
def stochastic_weight_averaging():
    net = Net()
    trainer(max_epochs=4, callbacks=[cb.StochasticWeightAveraging(1e-2)]).fit(net, loader())
    return {"total": net.total()}


@feature("new")
def weight_averaging():
    from torch.optim.swa_utils import get_ema_avg_fn

    net = Net()
    trainer(max_epochs=2, callbacks=[cb.WeightAveraging(avg_fn=get_ema_avg_fn(0.9))]).fit(net, loader())
    return {"total": net.total()}


@feature()
def accumulation():
    net = Net()
    run = trainer(accumulate_grad_batches=3)
    run.fit(net, loader())
    return {"steps": run.global_step, "total": net.total()}


@feature()
def accumulation_schedule():
    net = Net()
    run = trainer(max_epochs=3, callbacks=[cb.GradientAccumulationScheduler({0: 1, 1: 2, 2: 4})])
    run.fit(net, loader())
    return {"steps": run.global_step, "total": net.total()}


@feature()
def gradient_clipping():
    found = {}
    for name, options in {"norm": {"gradient_clip_val": 0.1}, "value": {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}}.items():
        net = Net()
        trainer(**options).fit(net, loader())
        found[name] = net.total()
    return found


@feature()
def precision():
    found = {}
    for name in [64, "bf16"] if OLD else ["64-true", "bf16-mixed", "bf16-true", "32-true"]:
        net = Net()
        trainer(precision=name).fit(net, loader())
        found[str(name)] = {"total": net.total(), "dtype": str(net.net[0].weight.dtype)}
    return found


@feature()
def manual_optimization_with_two_optimizers():
    class Two(Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, index):
            first, second = self.optimizers()
            for optimizer in (first, second):
                optimizer.zero_grad()
                self.manual_backward(self.loss(batch))
                self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
                optimizer.step()
            schedule = self.lr_schedulers()
            schedule.step()

        def configure_optimizers(self):
            first = torch.optim.SGD(self.net[0].parameters(), lr=0.1)
            second = torch.optim.Adam(self.net[2].parameters(), lr=0.01)
            return [first, second], [torch.optim.lr_scheduler.StepLR(first, 3)]

    net, run = Two(), trainer()
    run.fit(net, loader())
    return {"total": net.total(), "steps": run.global_step}


@feature()
def limits_and_intervals():
    found = {}
    for name, options in {
        "fast_dev_run": {"fast_dev_run": 2}, "overfit_batches": {"overfit_batches": 2}, "limit": {"limit_train_batches": 0.5, "limit_val_batches": 1},
        "val_check_interval": {"val_check_interval": 2}, "check_val_every_n_epoch": {"check_val_every_n_epoch": 2, "max_epochs": 4},
        "max_steps": {"max_steps": 3}, "min_epochs": {"min_epochs": 1, "max_epochs": 1}, "num_sanity_val_steps": {"num_sanity_val_steps": 0},
    }.items():
        net, run = Net(), trainer(**options)
        run.fit(net, loader(), loader(16))
        found[name] = {"steps": run.global_step, "epoch": run.current_epoch, "total": net.total(), **metrics(run)}
    return found


@feature()
def tensorboard_logger():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tempfile.TemporaryDirectory() as folder:
        log = loggers.TensorBoardLogger(folder, name="runs", version="one", default_hp_metric=False)
        net = Net()
        trainer(logger=log, log_every_n_steps=1).fit(net, loader(), loader(16))
        log.experiment.add_histogram("weights", net.net[0].weight, 1)
        log.experiment.add_text("note", "a note", 1)
        log.finalize("success")
        events = EventAccumulator(log.log_dir)
        events.Reload()
        tags = events.Tags()
        return {
            "scalars": {tag: [event.value for event in events.Scalars(tag)] for tag in sorted(tags["scalars"])}, "histograms": tags["histograms"],
            "files": sorted(name.split(".")[0] for name in os.listdir(log.log_dir)),
        }


@feature()
def csv_logger():
    with tempfile.TemporaryDirectory() as folder:
        log = loggers.CSVLogger(folder, version=0)
        trainer(logger=log, log_every_n_steps=1).fit(Net(), loader(), loader(16))
        log.save()
        with open(os.path.join(log.log_dir, "metrics.csv")) as file:
            rows = [line.split(",") for line in file.read().splitlines()]
        files = sorted(os.listdir(log.log_dir))
        return {"columns": rows[0], "rows": [[float(cell) if cell else None for cell in row] for row in rows[1:]], "files": files}


@feature()
def several_loggers():
    with tempfile.TemporaryDirectory() as folder:
        both = [loggers.CSVLogger(folder, name="csv"), loggers.TensorBoardLogger(folder, name="tb")]
        trainer(logger=both, log_every_n_steps=1).fit(Net(), loader())
        return {"folders": sorted(os.listdir(folder))}


@feature()
def model_summary():
    net = Net()
    net.example_input_array = numbers(2, 4)
    summary = pl.utilities.model_summary.ModelSummary(net, max_depth=-1)
    lines = [line.split("|")[:5] for line in str(summary).splitlines() if "|" in line]
    return {"parameters": summary.total_parameters, "trainable": summary.trainable_parameters, "lines": lines}


@feature()
def progress_bar():
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        trainer(enable_progress_bar=True, callbacks=[cb.TQDMProgressBar(refresh_rate=1)]).fit(Net(), loader(), loader(8))
    text = out.getvalue()
    return {"epochs": "Epoch 1" in text, "steps": "4/4" in text}


@feature()
def timer_and_lambda():
    calls = []
    timer = cb.Timer(duration="00:01:00:00")
    trainer(callbacks=[timer, cb.LambdaCallback(on_train_epoch_end=lambda *args: calls.append("epoch"))]).fit(Net(), loader())
    return {"calls": calls, "timed": timer.time_elapsed("train") > 0}


@feature()
def device_statistics():
    with tempfile.TemporaryDirectory() as folder:
        log = loggers.CSVLogger(folder)
        try:
            trainer(logger=log, callbacks=[cb.DeviceStatsMonitor(cpu_stats=False)], log_every_n_steps=1).fit(Net(), loader())
        except ModuleNotFoundError as error:
            return {"error": type(error).__name__}
        return {"ran": True}


@feature()
def finetuning():
    class Backbone(Net):
        def __init__(self):
            super().__init__()
            self.backbone = self.net[0]

        def configure_optimizers(self):
            return torch.optim.SGD([p for p in self.net[2].parameters() if p.requires_grad], lr=0.1)

    net = Backbone()
    trainer(max_epochs=3, callbacks=[cb.BackboneFinetuning(unfreeze_backbone_at_epoch=1, backbone_initial_lr=0.01, verbose=False)]).fit(net, loader())
    return {"total": net.total()}


@feature()
def pruning():
    net = Net()
    trainer(callbacks=[cb.ModelPruning("l1_unstructured", amount=0.5, parameters_to_prune=[(net.net[0], "weight"), (net.net[2], "weight")])]).fit(net, loader())
    return {"zeros": int((net.net[0].weight == 0).sum()) + int((net.net[2].weight == 0).sum())}


@feature()
def prediction_writer():
    class Writer(cb.BasePredictionWriter):
        rows = []

        def write_on_batch_end(self, trainer, module, prediction, indices, batch, batch_idx, dataloader_idx):
            self.rows.append([indices, prediction.tolist()])

    trainer(callbacks=[Writer("batch")]).predict(Net(), loader(16))
    return {"rows": Writer.rows}


@feature()
def torchmetrics_in_log():
    import torchmetrics

    class Measured(Net):
        def __init__(self):
            super().__init__()
            self.accuracy = torchmetrics.classification.MulticlassAccuracy(3, average="micro")
            self.f1 = torchmetrics.classification.MulticlassF1Score(3)

        def validation_step(self, batch, index):
            out = self(batch[0])
            self.accuracy(out, batch[1])
            self.f1(out, batch[1])
            self.log("accuracy", self.accuracy, on_epoch=True)
            self.log("f1", self.f1, on_epoch=True)

    run = trainer()
    run.fit(Measured(), loader(), loader(20, 8))
    return metrics(run)


@feature()
def detect_anomaly():
    class Broken(Net):
        def training_step(self, batch, index):
            return (self(batch[0]) * 0 - 1).log().sum() if index == 1 else super().training_step(batch, index)

    try:
        trainer(detect_anomaly=True).fit(Broken(), loader())
    except RuntimeError as error:
        return {"raised": "nan" in str(error)}
    return {"raised": None}


@feature()
def exception_and_interrupt():
    class Stops(Net):
        def training_step(self, batch, index):
            if index == 2:
                raise KeyboardInterrupt
            return super().training_step(batch, index)

    run, net = trainer(), Stops()
    try:
        run.fit(net, loader())
        left = "returned"
    except (KeyboardInterrupt, SystemExit) as error:
        left = type(error).__name__
    return {"interrupted": run.interrupted if hasattr(run, "interrupted") else None, "left": left, "steps": len(net.seen)}


@feature()
def learning_rate_finder():
    net = Net(lr=1e-3)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        run = trainer(default_root_dir=folder, enable_checkpointing=True, **({"auto_lr_find": True} if OLD else {}))
        if OLD:
            found = run.tune(net, train_dataloaders=loader(64, 4), lr_find_kwargs={"num_training": 30})["lr_find"]
        else:
            found = pl.tuner.Tuner(run).lr_find(net, loader(64, 4), num_training=30)
        return {"suggestion": found.suggestion(), "lr": net.lr, "losses": found.results["loss"], "rates": found.results["lr"]}


@feature()
def batch_size_finder():
    class Sized(Net):
        validation_step = None

    net = Sized(batch_size=2)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        run = trainer(default_root_dir=folder, enable_checkpointing=True, **({"auto_scale_batch_size": "power"} if OLD else {}))
        if OLD:
            run.tune(net, scale_batch_size_kwargs={"max_trials": 3})
        else:
            pl.tuner.Tuner(run).scale_batch_size(net, max_trials=3)
        return {"batch_size": net.batch_size}


@feature()
def simple_and_advanced_profiler():
    found = {}
    for name in ("simple", "advanced"):
        with tempfile.TemporaryDirectory() as folder:
            kind = profilers.SimpleProfiler if name == "simple" else profilers.AdvancedProfiler
            trainer(profiler=kind(dirpath=folder, filename="report")).fit(Net(), loader())
            with open(os.path.join(folder, os.listdir(folder)[0])) as file:
                found[name] = "run_training_epoch" in file.read()
    return found


@feature()
def pytorch_profiler():
    with tempfile.TemporaryDirectory() as folder:
        kind = profilers.PyTorchProfiler(dirpath=folder, filename="report", export_to_chrome=True, record_shapes=True, sort_by_key="cpu_time_total", row_limit=-1)
        trainer(max_epochs=3, profiler=kind).fit(Net(), loader())
        files = sorted(os.listdir(folder))
        report = next(name for name in files if name.endswith(".txt"))
        with open(os.path.join(folder, report)) as file:
            text = file.read()
        wanted = ["aten::linear", "aten::tanh", "ProfilerStep*", "Optimizer.step#SGD.step", "run_training_batch"]
        return {"rows": {name: name in text for name in wanted}, "traces": any(".pt.trace.json" in name for name in files)}


@feature()
def model_with_modules_of_buffers_and_norms():
    class Normed(Net):
        def __init__(self):
            super().__init__()
            self.net = fill(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), scale=0.5)

    net, run = Normed(), trainer()
    run.fit(net, loader(), loader(16))
    return {"total": net.total(), "mean": net.net[1].running_mean.double().sum().item(), **metrics(run)}


@feature()
def lbfgs_closure():
    class Closure(Net):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)

    net = Closure()
    trainer().fit(net, loader())
    return {"losses": net.seen}


@feature("new")
def compiled_module():
    net = Net()
    trainer().fit(torch.compile(net, backend="eager"), loader())
    return {"total": net.total()}


@feature("new")
def exception_checkpoint():
    class Fails(Net):
        def training_step(self, batch, index):
            if self.global_step == 3:
                raise RuntimeError("stop here")
            return super().training_step(batch, index)

    with tempfile.TemporaryDirectory() as folder:
        try:
            trainer(enable_checkpointing=True, callbacks=[cb.OnExceptionCheckpoint(folder)]).fit(Fails(), loader())
        except RuntimeError as error:
            return {"error": str(error), "files": os.listdir(folder)}


@feature("new")
def combined_loaders():
    class Pairs(Net):
        def training_step(self, batch, index):
            return super().training_step(batch["a"], index) + super().training_step(batch["b"], index)

    from lightning.pytorch.utilities import CombinedLoader

    found = {}
    for mode in ("min_size", "max_size_cycle"):
        net = Pairs()
        trainer().fit(net, CombinedLoader({"a": loader(32), "b": loader(16)}, mode))
        found[mode] = net.seen
    return found


@feature("new")
def command_line():
    from lightning.pytorch.cli import LightningCLI

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return loader()

        def val_dataloader(self):
            return loader(16)

    def cli(*args):
        command = LightningCLI(Net, Data, args=list(args), save_config_callback=None, trainer_defaults={"accelerator": ACCELERATOR, "devices": 1, **QUIET})
        return {"total": command.model.total(), "width": command.model.hparams.width, **metrics(command.trainer)}

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.yaml")
        with open(path, "w") as file:
            file.write("trainer:\n  max_epochs: 2\nmodel:\n  width: 6\n")
        return {
            "fit": cli("fit", "--trainer.max_epochs=1", "--model.width=5", "--model.lr=0.05"), "config": cli("fit", "--config", path),
            "optimizer": cli("fit", "--config", path, "--optimizer=Adam", "--optimizer.lr=0.01"),
        }


@feature("new")
def fabric():
    from lightning.fabric import Fabric

    found = {}
    for precision in ("32-true", "bf16-mixed"):
        run = Fabric(accelerator=ACCELERATOR, devices=1, precision=precision)
        run.launch()
        model = fill(nn.Linear(4, 3))
        model, optimizer = run.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        batches = run.setup_dataloaders(loader())
        losses = []
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            run.backward(loss)
            run.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.ckpt")
            run.save(path, {"model": model, "optimizer": optimizer, "step": 4})
            state = {"model": model, "optimizer": optimizer, "step": 0}
            run.load(path, state)
        found[precision] = {"losses": losses, "step": state["step"], "gathered": run.all_reduce(torch.ones(2)).tolist()}
    return found


@feature("old")
def from_argparse_args():
    import argparse

    parser = pl.Trainer.add_argparse_args(argparse.ArgumentParser())
    args = parser.parse_args(["--max_epochs", "3", "--limit_train_batches", "2", "--accelerator", ACCELERATOR, "--devices", "1", "--precision", "bf16"])
    net = Net()
    run = pl.Trainer.from_argparse_args(args, gradient_clip_val=1.0, **QUIET)
    run.fit(net, loader())
    return {"steps": run.global_step, "total": net.total()}


@feature("old")
def several_optimizers():
    class Two(Net):
        def training_step(self, batch, index, optimizer_idx):
            return super().training_step(batch, index)

        def configure_optimizers(self):
            return [torch.optim.SGD(self.net[0].parameters(), lr=0.1), torch.optim.SGD(self.net[2].parameters(), lr=0.1)]

    net = Two()
    trainer().fit(net, loader())
    return {"total": net.total()}


def main(target, names):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning").setLevel(logging.ERROR)
    outcomes = {}
    for name in names or FEATURES:
        try:
            outcomes[name] = {"outcome": FEATURES[name]()}
        except (Exception, SystemExit) as error:
            outcomes[name] = {"error": f"{type(error).__name__}: {error}"[:300], "trace": traceback.format_exc()[-2000:]}
        print(name, "failed: " + outcomes[name]["error"] if "error" in outcomes[name] else "done", flush=True)
    with open(target, "w") as file:
        json.dump({"version": pl.__version__, "torch": torch.__version__, "features": outcomes}, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
