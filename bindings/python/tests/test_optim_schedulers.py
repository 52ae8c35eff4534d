"""Learning-rate schedules against PyTorch's (tests/goldens/optim.py, optim_python.py)."""

import json
import math
import pickle
import warnings

import pytest
from goldens import DATA

import rushlight as torch
from rushlight.optim import lr_scheduler as schedulers

REPORT = json.loads((DATA / "optim" / "report.json").read_text())
PYTHON = json.loads((DATA / "optim" / "python.json").read_text())


def parameter():
    return torch.zeros(1, requires_grad=True)


def optimizer(base="SGD"):
    groups = [{"params": [parameter()]}, {"params": [parameter()], "lr": 0.02}]
    return torch.optim.SGD(groups, lr=0.5, momentum=0.9) if base == "SGD" else torch.optim.Adam(groups, lr=0.5)


def make(spec, opt):
    options = {k: v for k, v in spec.items() if k != "scheduler"}
    name = spec["scheduler"]
    if name == "LambdaLR":
        return schedulers.LambdaLR(opt, lambda e: 0.95**e)
    if name == "MultiplicativeLR":
        return schedulers.MultiplicativeLR(opt, lambda e: 1 / (1 + 0.1 * e))
    if name == "SequentialLR":
        parts = [schedulers.LinearLR(opt, 0.1, total_iters=5), schedulers.CosineAnnealingLR(opt, 20), schedulers.ExponentialLR(opt, 0.9)]
        return schedulers.SequentialLR(opt, parts, [5, 30])
    if name == "ChainedScheduler":
        return schedulers.ChainedScheduler([schedulers.ConstantLR(opt, 0.1, total_iters=8), schedulers.ExponentialLR(opt, 0.95)])
    home = torch.optim.swa_utils if name == "SWALR" else schedulers
    return getattr(home, name)(opt, **options)


def plain(value):
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def alike(found, expected, what):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), what
        for key in expected:
            alike(found[key], expected[key], f"{what}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), what
        for i, (a, b) in enumerate(zip(found, expected)):
            alike(a, b, f"{what}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), what
    else:
        assert found == expected, what


@pytest.mark.parametrize("case", REPORT["schedulers"], ids=lambda c: c["name"])
def test_rates_and_state_are_pytorchs(case):
    opt = optimizer(case["base"])
    scheduler = make(case["spec"], opt)

    def row():
        momentum = lambda g: g["momentum"] if case["base"] == "SGD" else g["betas"][0]
        return [g["lr"] for g in opt.param_groups] + [momentum(g) for g in opt.param_groups]

    alike(row(), case["rows"][0], "first")
    for step, expected in enumerate(case["rows"][1:]):
        if step == 17:
            # Training resumes from files.
            kept, kept_opt = pickle.loads(pickle.dumps(scheduler.state_dict())), pickle.loads(pickle.dumps(opt.state_dict()))
            opt = optimizer(case["base"])
            scheduler = make(case["spec"], opt)
            opt.load_state_dict(kept_opt)
            scheduler.load_state_dict(kept)
        opt.step()
        scheduler.step(case["metrics"][step]) if case["metrics"] else scheduler.step()
        alike(row(), expected, f"step {step}")
        assert scheduler.get_last_lr() == row()[:2]
    alike(plain(scheduler.state_dict()), case["state"], "state")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", PYTHON["resumed"], ids=lambda c: c["scheduler"])
def test_a_schedule_begun_in_the_middle_or_told_the_epoch(case):
    for last_epoch, expected in zip([0, 2, 3], case["rows"]):
        group = {"params": [parameter()], "initial_lr": 1.0}
        opt = torch.optim.SGD([group], lr=0.5, momentum=0.9)
        scheduler = getattr(schedulers, case["scheduler"])(opt, **case["options"], last_epoch=last_epoch)
        row = [scheduler.last_epoch, *scheduler.get_last_lr()]
        for epoch in (None, 7, None):
            scheduler.step() if epoch is None else scheduler.step(epoch)
            row += scheduler.get_last_lr()
        alike(row, expected, case["scheduler"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", PYTHON["stepped"], ids=lambda c: c["name"])
def test_fractions_of_epochs_and_averaging(case):
    opt = torch.optim.SGD([parameter()], lr=1.0)
    swa = torch.optim.swa_utils.SWALR
    scheduler = {
        "restarts": lambda: schedulers.CosineAnnealingWarmRestarts(opt, 3),
        "restarts-longer": lambda: schedulers.CosineAnnealingWarmRestarts(opt, 3, T_mult=2, eta_min=0.1),
        "swa": lambda: swa(opt, 0.05, anneal_epochs=5),
        "swa-linear": lambda: swa(opt, 0.05, anneal_epochs=3, anneal_strategy="linear"),
    }[case["name"]]()
    rows = [scheduler.get_last_lr()]
    for epoch in case["epochs"]:
        scheduler.step() if epoch is None else scheduler.step(epoch)
        rows.append(list(scheduler.get_last_lr()))
    alike(rows, case["rows"], case["name"])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda o: schedulers.LambdaLR(o, [lambda e: 1] * 3), "Expected 2 lr_lambdas, but got 3"),
        (lambda o: schedulers.ConstantLR(o, 2), "Constant multiplicative factor expected"),
        (lambda o: schedulers.LinearLR(o, 0), "Starting multiplicative factor expected"),
        (lambda o: schedulers.CyclicLR(o, 0.1, 1.0, mode="x"), "mode is invalid and scale_fn is None"),
        (lambda o: schedulers.OneCycleLR(o, 0.1), "You must define either total_steps OR"),
        (lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=0), "Expected positive integer total_steps, but got 0"),
        (lambda o: schedulers.CosineAnnealingWarmRestarts(o, 0), "Expected positive integer T_0, but got 0"),
        (lambda o: schedulers.SequentialLR(o, [], []), "at least one scheduler"),
        (lambda o: schedulers.SequentialLR(o, [schedulers.StepLR(o, 2)], [1, 2]), "one more than the number of milestone points"),
        (lambda o: schedulers.ChainedScheduler([]), "at least one scheduler"),
        (lambda o: schedulers.ReduceLROnPlateau(o, factor=2), "Factor should be < 1.0."),
        (lambda o: schedulers.ReduceLROnPlateau(o, mode="x"), "mode x is unknown!"),
        (lambda o: schedulers.ReduceLROnPlateau(o, min_lr=[1]), "expected 2 min_lrs, got 1"),
        (lambda o: schedulers.CyclicLR(torch.optim.Adagrad([parameter()]), 0.1, 1.0), "optimizer must support momentum or beta1"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make(optimizer())


def test_warnings_and_errors_of_use():
    opt = optimizer()
    scheduler = schedulers.StepLR(opt, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()
    with pytest.raises(TypeError, match="int is not an Optimizer"):
        schedulers.StepLR(3, 2)
    with pytest.raises(KeyError, match="initial_lr"):
        schedulers.StepLR(optimizer(), 2, last_epoch=3)
    cycle = schedulers.OneCycleLR(opt, 0.1, total_steps=3)
    opt.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            cycle.step()
    with pytest.raises(ValueError, match="Tried to step 4 times. The specified number of total steps is 3"):
        cycle.step()


def test_users_write_schedules():
    class Halving(schedulers.LRScheduler):
        def get_lr(self):
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    assert issubclass(schedulers.StepLR, schedulers._LRScheduler)
    opt = optimizer()
    scheduler = Halving(opt)
    opt.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.25, 0.01]
    with pytest.raises(NotImplementedError):
        schedulers.LRScheduler(opt)


def test_a_tensor_as_learning_rate_stays_the_same_tensor():
    lr = torch.tensor(1.0)
    opt = torch.optim.SGD([parameter()], lr=lr)
    scheduler = schedulers.ExponentialLR(opt, 0.5)
    opt.step()
    scheduler.step()
    assert opt.param_groups[0]["lr"] is lr and lr.item() == 0.5 and scheduler.get_last_lr()[0].item() == 0.5
