"""Differentiable steps, steps that a scaler skips, learning rates as tensors, and schedules of them. Numbers are PyTorch's."""

import pytest

import rushlight as torch
from rushlight import optim

F64 = torch.float64

OPTIMIZERS = [
    ("SGD", dict(momentum=0.9)), ("SGD", dict(momentum=0.9, nesterov=True, weight_decay=0.1)), ("Adam", dict(amsgrad=True, weight_decay=0.1)), ("AdamW", {}),
    ("NAdam", dict(weight_decay=0.1)), ("RAdam", dict(weight_decay=0.1)), ("Adamax", {}), ("Adagrad", dict(lr_decay=0.1)), ("Adadelta", {}),
    ("RMSprop", dict(centered=True, momentum=0.5)), ("ASGD", dict(t0=1, weight_decay=0.1)), ("Rprop", {}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_a_differentiable_step_is_the_step(name, options):
    make = getattr(optim, name)
    p = torch.tensor([1.0, 2.0, -3.0], dtype=F64, requires_grad=True)
    plain = make([p], lr=0.1, **options)
    for i in range(6):
        p.grad = torch.tensor([0.5, -1.0, 2.0], dtype=F64) * (i + 1)
        plain.step()
    kept = {k: v.clone() for k, v in plain.state[p].items()}
    start, gradient = p.detach().clone(), torch.tensor([0.3, -1.0, -2.0], dtype=F64)

    def step(start, gradient):
        moved = start.clone()
        optimizer = make([moved], lr=0.1, differentiable=True, **options)
        optimizer.state[moved].update({k: v.clone() for k, v in kept.items()})
        moved.grad = gradient
        optimizer.step()
        return moved

    p.grad = gradient
    plain.step()
    assert torch.allclose(step(start.requires_grad_(), gradient.clone().requires_grad_()), p, atol=1e-7)
    if name != "Rprop":
        assert torch.autograd.gradcheck(step, (start, gradient.clone().requires_grad_()), atol=1e-4)


def test_the_learning_rate_gets_a_gradient():
    w, lr = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(0.1, requires_grad=True)
    p = w.clone()
    optimizer = optim.SGD([p], lr=lr, differentiable=True)
    p.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    p.sum().backward()
    assert lr.grad.item() == -7 and w.grad.tolist() == [1, 1]


@pytest.mark.parametrize(("name", "value"), [("AdamW", 0.899), ("Adam", 0.9), ("SGD", 0.975), ("Adagrad", 0.9)])
def test_fused_steps_heed_the_scaler(name, value):
    p = torch.ones(3, requires_grad=True)
    optimizer = getattr(optim, name)([p], lr=0.1, fused=True)
    p.grad = torch.full((3,), 0.5)
    optimizer.found_inf, optimizer.grad_scale = torch.tensor(1.0), None
    optimizer.step()
    assert p.tolist() == [1, 1, 1]
    optimizer.found_inf, optimizer.grad_scale = torch.tensor(0.0), torch.tensor(2.0)
    optimizer.step()
    assert p.tolist() == pytest.approx([value] * 3, abs=1e-6) and p.grad.tolist() == [0.25] * 3


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor"])
def test_learning_rates_may_be_tensors(name, shape):
    found = []
    for lr in (0.25, torch.full(shape, 0.25)):
        p = torch.ones(3, requires_grad=True)
        optimizer = getattr(optim, name)([p], lr=lr)
        p.grad = torch.full((3,), 0.5)
        optimizer.step()
        assert optimizer.param_groups[0]["lr"] is lr
        found.append(p.tolist())
    assert found[0] == pytest.approx(found[1], abs=1e-7)


def test_sequential_with_milestones_at_the_start():
    optimizer = optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    lr = optim.lr_scheduler
    parts = [lr.ConstantLR(optimizer, 0.1, 10), lr.ExponentialLR(optimizer, 0.9), lr.StepLR(optimizer, 1, 0.5), lr.LinearLR(optimizer, 0.3, total_iters=3)]
    schedule, found = lr.SequentialLR(optimizer, parts, [0, 0, 1]), []
    for _ in range(5):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert found == pytest.approx([1.0, 0.3, 0.5333333333, 0.7666666667, 1.0])


def test_schedules_do_not_alias_their_arguments():
    low, high = torch.tensor(0.1), torch.tensor(1.0)
    params = [{"params": [torch.ones(1, requires_grad=True)]} for _ in range(2)]
    optimizer = optim.SGD(params, lr=torch.tensor(0.5), momentum=0.9)
    schedule = optim.lr_scheduler.CyclicLR(optimizer, low, high, step_size_up=4)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    assert (low.item(), high.item()) == pytest.approx((0.1, 1.0))
    assert [group["lr"].item() for group in optimizer.param_groups] == pytest.approx([0.775, 0.775])
    assert [v.item() for v in schedule.base_lrs] == pytest.approx([0.1, 0.1])
    last = schedule.get_last_lr()
    schedule.step()
    assert last[0].item() == pytest.approx(0.775)
