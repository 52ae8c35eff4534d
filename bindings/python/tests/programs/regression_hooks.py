"""Regression by hand and by modules, hooks, weight decay by groups, checkpoints that resume."""

import os
import sys
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(42)

# By hand, as in a first lesson.
w_true, b_true = torch.tensor([[2.0], [-3.4]]), 4.2
x = torch.normal(0, 1, (200, 2))
y = x @ w_true + b_true + 0.01 * torch.randn(200, 1)
w = torch.normal(0, 0.01, size=(2, 1), requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for epoch in range(12):
    order = torch.randperm(len(x))
    for start in range(0, len(x), 10):
        batch = order[start : min(start + 10, len(x))]
        loss = ((x[batch] @ w + b - y[batch]) ** 2 / 2).sum()
        loss.backward()
        with torch.no_grad():
            for param in (w, b):
                param -= 0.03 * param.grad / 10
                param.grad.zero_()
assert torch.allclose(w, w_true, atol=0.05) and abs(b.item() - b_true) < 0.05

# Polynomials by modules.
xs = torch.linspace(-3.14159, 3.14159, 500)
features = xs.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
model = nn.Sequential(OrderedDict([("linear", nn.Linear(3, 1)), ("flatten", nn.Flatten(0, 1))]))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for _ in range(2500):
    loss = nn.MSELoss(reduction="sum")(model(features), torch.sin(xs))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("polynomial", loss.item())
assert loss.item() < 15

# Hooks, buffers, groups.
seen = {}


class Running(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("average", torch.zeros(width))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, x):
        if self.training:
            self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x * self.scale

    def extra_repr(self):
        return f"width={self.scale.numel()}"


net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), Running(8), nn.Linear(8, 1))
net[0].register_forward_hook(lambda module, args, out: seen.__setitem__("shape", tuple(out.shape)))
net[3].register_forward_pre_hook(lambda module, args: seen.__setitem__("pre", len(args)))
net[0].register_full_backward_hook(lambda module, gin, gout: seen.__setitem__("grad", gout[0].shape))
decay, plain = [], []
for name, parameter in net.named_parameters():
    (plain if parameter.ndim < 2 else decay).append(parameter)
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=60)


def run(steps):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = F.smooth_l1_loss(net(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
    return loss.item()


first = run(30)
path = sys.argv[1] if len(sys.argv) > 1 else "checkpoint.pt"
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}, path)
second = run(30)
saved = torch.load(path)
net.load_state_dict(saved["net"])
optimizer.load_state_dict(saved["optimizer"])
scheduler.load_state_dict(saved["scheduler"])
torch.set_rng_state(saved["rng"])
assert run(30) == second, "a resumed run goes the same way"
os.remove(path)
assert seen == {"shape": (200, 8), "pre": 1, "grad": torch.Size([200, 8])}, seen
assert "scratch" not in "".join(net.state_dict()) and "width=8" in str(net)
print("resumed", first, second)
