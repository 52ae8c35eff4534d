"""The loop: stages, hooks, precision, accumulation, limits, several optimizers."""

import torch
from small_model import OLD, Net, cb, feature, fill, loader, metrics, pl, trainer
from torch import nn


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
