"""The models of `gpu_models.py` and `cpu_models.py`, as users write them in PyTorch."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


# ---- images


class LastNorm(nn.Module):
    """Layer norm over channels that come first."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.norm(self.spread(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, widths=(96, 192, 384, 768), depths=(3, 3, 9, 3)):
        super().__init__()
        parts = [nn.Conv2d(3, widths[0], 4, 4), LastNorm(widths[0])]
        for i, (width, depth) in enumerate(zip(widths, depths)):
            if i:
                parts += [LastNorm(widths[i - 1]), nn.Conv2d(widths[i - 1], width, 2, 2)]
            parts += [ConvNextBlock(width) for _ in range(depth)]
        self.body = nn.Sequential(*parts)
        self.norm, self.head = nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], 1000)

    def forward(self, x):
        return self.head(self.norm(self.body(x).mean((2, 3))))


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        wide = width * 4
        self.convs = nn.ModuleList([nn.Conv2d(inner, width, 1, bias=False), nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.Conv2d(width, wide, 1, bias=False)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(wide)])
        plain = stride == 1 and inner == wide
        self.skip = nn.Identity() if plain else nn.Sequential(nn.Conv2d(inner, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x):
        y = x
        for i in range(3):
            y = self.norms[i](self.convs[i](y))
            y = F.relu(y if i < 2 else y + self.skip(x))
        return y


def resnet50():
    parts = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(depth):
            parts.append(Bottleneck(inner, width, stride if i == 0 else 1))
            inner = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, width // 2), nn.GELU(), nn.Linear(width // 2, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


class Mixer(nn.Module):
    def __init__(self, width=768, depth=12):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*[MixerBlock(196, width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


# ---- attention


class Attention(nn.Module):
    def __init__(self, width, heads, causal=False, dropout=0.0, bias=True):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=self.causal)
        return F.dropout(self.out(y.transpose(1, 2).reshape(b, t, c)), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, width, heads, causal, dropout=0.0, bias=True):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.attention = Attention(width, heads, causal, dropout, bias)
        self.up, self.down, self.dropout = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias), dropout

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), self.dropout, self.training)


class Gpt(nn.Module):
    """nanoGPT's model: dropout everywhere, no biases, the last layer shares its weight."""

    def __init__(self, vocabulary, tokens, width, heads, depth, dropout=0.0, bias=False):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*[Block(width, heads, True, dropout, bias) for _ in range(depth)])
        self.norm, self.head, self.dropout = nn.LayerNorm(width, bias=bias), nn.Linear(width, vocabulary, bias=False), dropout
        self.head.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.place.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(F.dropout(x, self.dropout, self.training))))


class Vit(nn.Module):
    def __init__(self, width=768, heads=12, depth=12):
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads, False) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.norm(self.blocks(x))[:, 0])


class DitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.attention, self.adapt = Attention(width, heads), nn.Linear(width, 6 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, c):
        shift, scale, gate, shift2, scale2, gate2 = self.adapt(F.silu(c)).unsqueeze(1).chunk(6, 2)
        x = x + gate * self.attention(self.first(x) * (1 + scale) + shift)
        y = self.second(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


class Dit(nn.Module):
    def __init__(self, width=768, heads=12, depth=12):
        super().__init__()
        self.stem, self.place = nn.Conv2d(4, width, 2, 2), nn.Parameter(torch.randn(1, 256, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(1001, width)
        self.blocks = nn.ModuleList([DitBlock(width, heads) for _ in range(depth)])
        self.norm, self.adapt, self.head = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6), nn.Linear(width, 2 * width), nn.Linear(width, 32)

    def forward(self, x, t, labels):
        x = self.stem(x).flatten(2).transpose(1, 2) + self.place
        angles = t[:, None].float() * torch.exp(torch.arange(128, device=t.device) * (-math.log(10000.0) / 128))
        c = self.time(torch.cat([angles.cos(), angles.sin()], 1)) + self.label(labels)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.adapt(F.silu(c)).unsqueeze(1).chunk(2, 2)
        return self.head(self.norm(x) * (1 + scale) + shift)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, pairs, inner):
        super().__init__()
        self.heads, self.pairs, self.size = heads, pairs, width // heads
        self.first, self.second = RmsNorm(width), RmsNorm(width)
        self.q, self.k = nn.Linear(width, width, bias=False), nn.Linear(width, pairs * self.size, bias=False)
        self.v, self.o = nn.Linear(width, pairs * self.size, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        y = self.first(x)
        q, k, v = (layer(y).view(b, t, -1, self.size).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (part.repeat_interleave(self.heads // self.pairs, 1) for part in (k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary=32000, width=1024, heads=16, pairs=4, inner=2816, depth=12, tokens=1024, rotations=torch.bfloat16):
        super().__init__()
        self.rotations = rotations
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([LlamaBlock(width, heads, pairs, inner) for _ in range(depth)])
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        angles = torch.outer(torch.arange(tokens).float(), 10000.0 ** (-torch.arange(0, 64, 2).float() / 64)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids):
        x = self.token(ids)
        cos, sin = self.cos.to(self.rotations), self.sin.to(self.rotations)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """Two of eight experts for every token, each with a capacity: tokens beyond it are dropped."""

    def __init__(self, width, inner, experts=8, chosen=2, capacity=1.25):
        super().__init__()
        self.experts, self.chosen, self.capacity = experts, chosen, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x):
        b, t, c = x.shape
        x = x.reshape(-1, c)
        room = int(self.capacity * self.chosen * x.shape[0] / self.experts)
        weights, which = self.router(x).float().softmax(-1).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        marks = F.one_hot(which.t().reshape(-1), self.experts)
        place = ((marks.cumsum(0) - 1) * marks).sum(-1)
        kept = place < room
        slot = torch.where(kept, which.t().reshape(-1) * room + place, self.experts * room)
        rows = x.repeat(self.chosen, 1)
        inside = torch.zeros(self.experts * room + 1, c, device=x.device, dtype=x.dtype).index_copy(0, slot, rows)
        y = inside[:-1].view(self.experts, room, c)
        y = torch.bmm(F.gelu(torch.bmm(y, self.up.to(y.dtype))), self.down.to(y.dtype)).reshape(-1, c)
        y = torch.cat([y, torch.zeros(1, c, device=x.device, dtype=y.dtype)])[slot]
        y = y * (weights.t().reshape(-1, 1) * kept[:, None]).to(y.dtype)
        return y.view(self.chosen, -1, c).sum(0).view(b, t, c)


class MoeBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.experts = Attention(width, heads, True), Experts(width, 4 * width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.experts(self.second(x))


class Moe(nn.Module):
    def __init__(self, vocabulary=8192, width=512, heads=8, depth=6):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[MoeBlock(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.token(ids))))
