"""The models of the training cases in PyTorch, each in the form that is fastest there."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.ln1, self.ln2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.f1, self.f2 = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.h, d // self.h).transpose(1, 2) for p in self.qkv(self.ln1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(y)
        return x + self.f2(F.gelu(self.f1(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, v, layers, heads, d, t):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, d), nn.Embedding(t, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)

    def forward(self, i):
        x = self.wte(i) + self.wpe(torch.arange(i.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class BasicBlock(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.shortcut = nn.Sequential() if s == 1 and i == o else nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.b, self.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.Linear(512, 10)
        shapes = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1))
        self.blocks = nn.Sequential(*(BasicBlock(*s) for s in shapes))

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.blocks(F.relu(self.b(self.c(x)))), 1).flatten(1))


def step(model, precision):
    """A closure that trains for one step."""
    bf16 = precision == "bf16"
    if model == "linear":
        return linear()
    if model == "transformer":
        net, x, y = nn.Transformer(batch_first=True), torch.rand(32, 1, 512), torch.rand(32, 20, 512)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        loss = lambda: F.cross_entropy(net(x, y), y)
    elif model in ("chargpt", "gpt768"):
        shape, batch = ((65, 6, 6, 384, 256), 16) if model == "chargpt" else ((65, 12, 12, 768, 128), 4)
        net, x, y = Gpt(*shape), torch.randint(0, 65, (batch, shape[4])), torch.randint(0, 65, (batch * shape[4],))
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
        loss = lambda: F.cross_entropy(net(x).flatten(0, 1), y)
    else:
        batch = 512 if model == "cnn" else 64
        net = (Net() if model == "cnn" else ResNet18()).to(memory_format=torch.channels_last)
        x, y = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last), torch.randint(0, 10, (batch,))
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        loss = lambda: F.cross_entropy(net(x), y)

    def run():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            value = loss()
        value.backward()
        optimizer.step()
        value.item()

    return run


def linear():
    net, x, y = nn.Linear(20, 1), torch.rand(32, 20), torch.rand(32, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def run():
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()

    return run


def adam():
    net = nn.Transformer()
    for p in net.parameters():
        p.grad = p.detach() * 1e-3
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    return optimizer.step
