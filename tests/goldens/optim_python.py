"""ASGD, Rprop and Adafactor, and schedules of the Python front resumed or stepped by epoch. Writes data/optim/python.json.

    python tests/goldens/optim_python.py [--check]
"""

import json
import pathlib
import sys
import warnings

import torch

warnings.simplefilter("ignore")
O, S = torch.optim, torch.optim.lr_scheduler
report = {"optimizers": [], "resumed": [], "stepped": []}


def params():
    return [torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_(),
            torch.linspace(1, -1, 3, dtype=torch.float64).requires_grad_()]


def optimizer(name, **options):
    ps = params()
    opt = getattr(O, name)(ps, **options)
    rows = []
    for step in range(8):
        for i, p in enumerate(ps):
            p.grad = torch.sin(torch.arange(p.numel(), dtype=torch.float64) * 3 + step * 2 + i).reshape(p.shape)
        opt.step()
        rows.append([x for p in ps for x in p.detach().reshape(-1).tolist()])
    state = {i: {k: v.tolist() for k, v in s.items()} for i, s in opt.state_dict()["state"].items()}
    report["optimizers"].append({"optimizer": name, "options": options, "rows": rows, "state": state})


optimizer("ASGD")
optimizer("ASGD", lr=0.1, lambd=0.05, alpha=0.5, t0=3, weight_decay=0.1, maximize=True)
optimizer("Rprop")
optimizer("Rprop", lr=0.1, etas=(0.3, 1.5), step_sizes=(0.01, 0.3), maximize=True)
optimizer("Adafactor")
optimizer("Adafactor", lr=0.1, beta2_decay=-0.5, eps=(1e-6, 1e-2), d=1.5, weight_decay=0.1, maximize=True)


def group(lr):
    return O.SGD([{"params": [torch.zeros(1, requires_grad=True)], "initial_lr": 1.0}], lr=lr, momentum=0.9)


def resumed(name, **options):
    rows = []
    for last_epoch in [0, 2, 3]:
        opt = group(0.5)
        scheduler = getattr(S, name)(opt, **options, last_epoch=last_epoch)
        row = [scheduler.last_epoch, *scheduler.get_last_lr()]
        scheduler.step()
        row += scheduler.get_last_lr()
        scheduler.step(7)
        row += scheduler.get_last_lr()
        scheduler.step()
        rows.append(row + scheduler.get_last_lr())
    report["resumed"].append({"scheduler": name, "options": options, "rows": rows})


resumed("StepLR", step_size=2)
resumed("MultiStepLR", milestones=[4])
resumed("ConstantLR", factor=0.5, total_iters=4)
resumed("LinearLR", start_factor=0.5, total_iters=10)
resumed("ExponentialLR", gamma=0.9)
resumed("PolynomialLR", total_iters=10)
resumed("CosineAnnealingLR", T_max=10)
resumed("CosineAnnealingWarmRestarts", T_0=3)
resumed("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=4)


def stepped(name, make, epochs):
    opt = group(1.0)
    scheduler = make(opt)
    rows = [scheduler.get_last_lr()]
    for epoch in epochs:
        scheduler.step() if epoch is None else scheduler.step(epoch)
        rows.append(list(scheduler.get_last_lr()))
    report["stepped"].append({"name": name, "epochs": epochs, "rows": rows})


fractions = [0.1, 0.5, 2.7, 3.2, None, 7.9, 22.0, None]
stepped("restarts", lambda o: S.CosineAnnealingWarmRestarts(o, 3), fractions)
stepped("restarts-longer", lambda o: S.CosineAnnealingWarmRestarts(o, 3, T_mult=2, eta_min=0.1), fractions)
stepped("swa", lambda o: O.swa_utils.SWALR(o, 0.05, anneal_epochs=5), [None] * 8)
stepped("swa-linear", lambda o: O.swa_utils.SWALR(o, 0.05, anneal_epochs=3, anneal_strategy="linear"), [None] * 5)

path = pathlib.Path(__file__).parent / "data" / "optim" / "python.json"
text = json.dumps(report, separators=(",", ":")).replace('},{"', '},\n{"') + "\n"
if "--check" not in sys.argv:
    path.write_text(text)
elif path.read_text() != text:
    sys.exit("python.json differs from what this PyTorch gives")
