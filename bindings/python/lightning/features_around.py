"""Around the loop: loggers, metrics, tuner, profilers, the command line, Fabric."""

import contextlib
import io
import os
import tempfile

import torch
from small_model import ACCELERATOR, OLD, QUIET, Net, feature, fill, loader, loggers, metrics, pl, profilers, trainer
from torch import nn


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
