"""Models with the parameter names of crates/nn, and numbers that a hash makes alike in both languages."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def hashed(stream, shape):
    """Uniform in [-1, 1): the same numbers as `hashed` in crates/rushlight/tests/programs/training.rs."""
    n = math.prod(shape)
    with np.errstate(over="ignore"):
        h = np.arange(n, dtype=np.uint32) * np.uint32(2654435761) + np.uint32((stream * 40503 + 12345) % 2**32)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return torch.from_numpy(((h >> np.uint32(8)).astype(np.float64) / 2**23 - 1).astype(np.float32).reshape(shape))


def tokens(stream, shape, count):
    return ((hashed(stream, shape).double() + 1) / 2 * count).long().clamp(max=count - 1)


def fill(model):
    """Weights from the hash, in the order of the state dict."""
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            u = hashed(1000 + i, p.shape)
            if p.dim() >= 2:
                p.copy_(u * math.sqrt(3 / math.prod(p.shape[1:])) * (0.1 if "wte" in name or "wpe" in name else 0.5))
            elif name.endswith("weight"):
                p.copy_(1 + 0.1 * u)
            else:
                p.copy_(0.1 * u)
    return model


class Net(nn.Module):
    """The tutorial's network for CIFAR-10."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """torchvision's names; the first layers of the variant for 32x32 images."""

    def __init__(self, width=64):
        super().__init__()
        w = width
        self.conv1, self.bn1 = nn.Conv2d(3, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w)
        stage = lambda i, o, s: nn.Sequential(BasicBlock(i, o, s), BasicBlock(o, o, 1))
        self.layer1, self.layer2 = stage(w, w, 1), stage(w, 2 * w, 2)
        self.layer3, self.layer4 = stage(2 * w, 4 * w, 2), stage(4 * w, 8 * w, 2)
        self.fc = nn.Linear(8 * w, 10)

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.ModuleDict(dict(c_attn=nn.Linear(d, 3 * d), c_proj=nn.Linear(d, d)))
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(d, 4 * d), c_proj=nn.Linear(4 * d, d)))
        # In the order of the Rust struct.
        self.ln_2, self.mlp = self._modules.pop("ln_2"), self._modules.pop("mlp")

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.h, d // self.h).transpose(1, 2) for p in self.attn.c_attn(self.ln_1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.attn.c_proj(y)
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, v, layers, heads, d, t):
        super().__init__()
        body = dict(wte=nn.Embedding(v, d), wpe=nn.Embedding(t, d), h=nn.ModuleList(Block(d, heads) for _ in range(layers)))
        self.transformer = nn.ModuleDict(body | dict(ln_f=nn.LayerNorm(d)))
        self.lm_head = nn.Linear(d, v, bias=False)

    def forward(self, i):
        x = self.transformer.wte(i) + self.transformer.wpe.weight[: i.shape[1]]
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))
