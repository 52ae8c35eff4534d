"""Steps over lists of tensors agree with the optimizers' own."""

import pytest

import rushlight as torch
from rushlight.optim import functional as F

KEYS = {
    "Adam": "exp_avg exp_avg_sq max_exp_avg_sq step", "AdamW": "exp_avg exp_avg_sq max_exp_avg_sq step", "NAdam": "exp_avg exp_avg_sq mu_product step",
    "RAdam": "exp_avg exp_avg_sq step", "Adamax": "exp_avg exp_inf step", "Adagrad": "sum step", "Adadelta": "square_avg acc_delta step",
    "RMSprop": "square_avg grad_avg momentum_buffer step", "ASGD": "ax mu eta step", "Rprop": "prev step_size step",
}
#: Arguments of the class, and those of the function where they differ.
CASES = [
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("Adam", {"maximize": True}), ("AdamW", {"weight_decay": 0.1}), ("NAdam", {"momentum_decay": 0.01}),
    ("RAdam", {"weight_decay": 0.1}), ("Adamax", {}), ("Adagrad", {"lr_decay": 0.1}), ("Adadelta", {"rho": 0.8}),
    ("RMSprop", {"centered": True, "momentum": 0.5}), ("RMSprop", {}), ("ASGD", {"t0": 1.0}), ("Rprop", {}),
]


@pytest.mark.parametrize("name, options", CASES, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_steps_over_lists(name, options):
    torch.manual_seed(0)
    whole = [torch.randn(3, 2, requires_grad=True), torch.randn(4, requires_grad=True)]
    lists = [p.detach().clone() for p in whole]
    optimizer = getattr(torch.optim, name)(whole, lr=0.05, **options)
    group = optimizer.param_groups[0]
    first = {"mu_product": 1.0, "mu": 1.0, "eta": 0.05, "step": 0.0}
    state = {
        key: [torch.tensor(first[key]) if key in first else torch.full_like(p, 0.05 if key == "step_size" else 0.0) for p in lists] for key in KEYS[name].split()
    }
    if name == "RMSprop" and not options:
        state["grad_avg"], state["momentum_buffer"] = [], []
    plain = "lr weight_decay eps amsgrad maximize momentum_decay lr_decay rho alpha momentum centered lambd t0".split()
    named = {key: group[key] for key in plain if key in group}
    if "betas" in group:
        named["beta1"], named["beta2"] = group["betas"]
    if name == "Rprop":
        (named["etaminus"], named["etaplus"]), (named["step_size_min"], named["step_size_max"]) = group["etas"], group["step_sizes"]
        del named["lr"]
    for at in range(4):
        grads = [torch.sin(p.detach() * (at + 1)) for p in whole]
        for p, grad in zip(whole, grads):
            p.grad = grad
        optimizer.step()
        getattr(F, name.lower())(lists, grads, *state.values(), **named)
        for a, b in zip(whole, lists):
            assert torch.allclose(a, b, atol=1e-6), at
    assert state["step"][0].item() == 4


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.5, "dampening": 0.2, "weight_decay": 0.1}])
def test_sgd_over_lists(options):
    whole = [torch.ones(3, requires_grad=True)]
    lists, buffers = [torch.ones(3)], [None]
    optimizer = torch.optim.SGD(whole, lr=0.1, **options)
    named = {key: optimizer.param_groups[0][key] for key in ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")}
    for _ in range(3):
        whole[0].grad = torch.cos(whole[0].detach())
        grads = [whole[0].grad.clone()]
        optimizer.step()
        F.sgd(lists, grads, buffers, **named)
        assert torch.allclose(whole[0], lists[0], atol=1e-6)
    assert (buffers[0] is None) == (not options.get("momentum"))
