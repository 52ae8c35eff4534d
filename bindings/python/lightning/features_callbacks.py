"""Callbacks: checkpoints and resuming, schedules, averages of weights, the progress bar, pruning."""

import contextlib
import io
import os
import tempfile

import torch
from small_model import Net, cb, feature, loader, loggers, numbers, pl, trainer


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
