"""``torch.jit.script``: functions and modules compiled to programs."""

from typing import List

import pytest
import rushlight as torch
from rushlight import nn
from rushlight.nn import functional as F

SCALE = 2.0


def helper(x, factor: float = 3.0):
    return F.relu(x) * factor


def branches(x, n: int, flag: bool = True):
    """Control flow on values."""
    total = torch.zeros_like(x)
    for i in range(n):
        if flag and i % 2 == 0:
            total = total + helper(x) * SCALE
        elif i > 2:
            total -= x
        else:
            continue
    while float(total.abs().max()) > 10.0:
        total = total / 2
    return total, x.size(0)


def lists(xs: List[torch.Tensor]):
    out = [torch.tanh(x) for x in xs]
    sizes = []
    for x in xs:
        sizes.append(x.shape[0])
    assert len(out) == len(xs), f"{len(out)} results"
    return torch.cat(out, dim=0), sizes[1:]


def indices(x):
    a = x[:, 1:, None]
    b = x[0, -1] + x[..., ::2].sum()
    y = x.clone()
    y[:, 0] = 5.0
    return a, b, y[1:3], 0 < x.shape[1] < 9


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(width, width), nn.LayerNorm(width), nn.Dropout(0.5)

    def forward(self, x):
        return x + self.drop(F.gelu(self.fc(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.head, self.bias, self.steps = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), None, 2
        self.register_buffer("shift", torch.ones(3))

    def scaled(self, x):
        return x * self.steps

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x) + i
        if self.bias is not None:
            x = x + self.bias
        if x.sum() > 0:
            x = self.scaled(x)
        return self.head(x) + self.shift


def same(a, b):
    for x, y in zip(torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b)):
        torch.testing.assert_close(x, y) if isinstance(x, torch.Tensor) else None
        assert isinstance(x, torch.Tensor) or x == y


def test_functions():
    x = torch.arange(6.0).reshape(2, 3) - 2
    compiled = torch.jit.script(branches)
    assert isinstance(compiled, torch.jit.ScriptFunction) and "def forward" in compiled.code
    for n, flag in ((0, True), (1, True), (5, True), (5, False)):
        same(compiled(x, n, flag), branches(x, n, flag))
    same(torch.jit.script(lists)([x, x * 2, x + 1]), lists([x, x * 2, x + 1]))
    same(torch.jit.script(indices)(x), indices(x))


def test_modules_are_saved_and_train(tmp_path):
    torch.manual_seed(0)
    net = Net().eval()
    compiled = torch.jit.script(net)
    x = torch.randn(5, 4)
    same(compiled(x), net(x))
    same(compiled(-x), net(-x))
    assert dict(compiled.named_parameters()).keys() == dict(net.named_parameters()).keys()
    torch.jit.save(compiled, tmp_path / "net.pt")
    loaded = torch.jit.load(tmp_path / "net.pt")
    same(loaded(x), net(x))
    loaded.train()
    assert not torch.equal(loaded(x), loaded(x))
    compiled(x).sum().backward()
    assert dict(compiled.named_parameters())["head.0.weight"].grad is not None


def test_what_a_program_cannot_hold_is_returned_as_it_is():
    def file(x):
        with open("unused") as handle:
            return x + len(handle.read())

    with pytest.warns(UserWarning, match="not supported"):
        assert torch.jit.script(file) is file


def test_modes_see_the_ops_of_compiled_functions():
    class Holder(nn.Module):
        def forward(self, x):
            return torch.jit.script(helper)(x)

    program = torch.export.export(Holder(), (torch.ones(2),))
    assert "relu" in program.graph
