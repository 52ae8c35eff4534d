"""Swin transformers: attention within windows that are shifted from layer to layer."""

import math
from functools import partial

from ... import _C, nn
from ...autograd.grad_mode import no_grad
from ...functional import meshgrid
from ..ops.misc import MLP, Permute
from ..ops.stochastic_depth import StochasticDepth
from ._api import builders

#: Width, layers and heads of the four stages, side of the windows, stochastic depth.
_ARCHS = {
    "swin_t": (96, (2, 2, 6, 2), (3, 6, 12, 24), 7, 0.2), "swin_s": (96, (2, 2, 18, 2), (3, 6, 12, 24), 7, 0.3), "swin_b": (128, (2, 2, 18, 2), (4, 8, 16, 32), 7, 0.5),
    "swin_v2_t": (96, (2, 2, 6, 2), (3, 6, 12, 24), 8, 0.2), "swin_v2_s": (96, (2, 2, 18, 2), (3, 6, 12, 24), 8, 0.3),
    "swin_v2_b": (128, (2, 2, 18, 2), (4, 8, 16, 32), 8, 0.5),
}
_torch, F = _C._torch, nn.functional


def _quarters(x):
    """The four pixels of each 2x2 square side by side, channels last; odd sides are padded."""
    height, width = x.shape[-3:-1]
    x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
    return _torch.cat([x[..., i::2, j::2, :] for j in (0, 1) for i in (0, 1)], -1)


class PatchMerging(nn.Module):
    """Halves height and width and doubles the channels; the norm comes first."""

    def __init__(self, dim, norm_layer=nn.LayerNorm):
        super().__init__()
        self.dim = dim
        self.reduction, self.norm = nn.Linear(4 * dim, 2 * dim, bias=False), norm_layer(4 * dim)

    def forward(self, x):
        return self.reduction(self.norm(_quarters(x)))


class PatchMergingV2(nn.Module):
    """The same with the norm last."""

    def __init__(self, dim, norm_layer=nn.LayerNorm):
        super().__init__()
        self.dim = dim
        self.reduction, self.norm = nn.Linear(4 * dim, 2 * dim, bias=False), norm_layer(2 * dim)

    def forward(self, x):
        return self.norm(self.reduction(_quarters(x)))


def _windows(x, size):
    """Windows of ``[batch, height, width, channels]`` as sequences."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // size[0], size[0], width // size[1], size[1], channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size[0] * size[1], channels)


def _region_mask(height, width, size, shift, like):
    """A mask of minus 100 between pixels that the shift has brought into the same window from opposite sides."""
    regions = _torch.zeros((height, width), dtype=like.dtype, device=like.device)
    bounds = [((0, -w), (-w, -s), (-s, None)) for w, s in zip(size, shift)]
    for at, (rows, columns) in enumerate((r, c) for r in bounds[0] for c in bounds[1]):
        regions[rows[0] : rows[1], columns[0] : columns[1]] = at
    regions = _windows(regions[None, :, :, None], size).squeeze(-1)
    different = regions.unsqueeze(1) != regions.unsqueeze(2)
    return _torch.zeros(different.shape, dtype=like.dtype, device=like.device).masked_fill(different, -100.0)


def shifted_window_attention(
    input, qkv_weight, proj_weight, relative_position_bias, window_size, num_heads, shift_size, attention_dropout=0.0, dropout=0.0, qkv_bias=None, proj_bias=None,
    logit_scale=None, training=True,
):
    """Attention within windows of ``[batch, height, width, channels]``. ``logit_scale`` asks for the cosines of version 2."""
    batch, height, width, channels = input.shape
    x = F.pad(input, (0, 0, 0, -width % window_size[1], 0, -height % window_size[0]))
    padded = x.shape[1:3]
    # A window that covers a side is not shifted.
    shift = [0 if w >= n else s for w, n, s in zip(window_size, padded, shift_size)]
    if sum(shift):
        x = _torch.roll(x, shifts=(-shift[0], -shift[1]), dims=(1, 2))
    windows = _windows(x, window_size)
    count = windows.shape[0] // batch
    if logit_scale is not None and qkv_bias is not None:
        # Keys have no bias in version 2.
        qkv_bias = _torch.cat([qkv_bias[:channels], _torch.zeros_like(qkv_bias[channels : 2 * channels]), qkv_bias[2 * channels :]])
    qkv = F.linear(windows, qkv_weight, qkv_bias).reshape(*windows.shape[:2], 3, num_heads, channels // num_heads).permute(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    if logit_scale is not None:
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * _torch.clamp(logit_scale, max=math.log(100.0)).exp()
    else:
        scores = (q * (channels // num_heads) ** -0.5) @ k.transpose(-2, -1)
    scores = scores + relative_position_bias
    if sum(shift):
        mask = _region_mask(*padded, window_size, shift, scores)
        scores = (scores.view(batch, count, num_heads, *scores.shape[-2:]) + mask[None, :, None]).view(scores.shape)
    found = F.dropout(F.softmax(scores, dim=-1), p=attention_dropout, training=training) @ v
    found = F.linear(found.transpose(1, 2).reshape(windows.shape), proj_weight, proj_bias)
    found = F.dropout(found, p=dropout, training=training)
    found = found.view(batch, padded[0] // window_size[0], padded[1] // window_size[1], *window_size, channels)
    found = found.permute(0, 1, 3, 2, 4, 5).reshape(batch, *padded, channels)
    if sum(shift):
        found = _torch.roll(found, shifts=(shift[0], shift[1]), dims=(1, 2))
    return found[:, :height, :width, :].contiguous()


class ShiftedWindowAttention(nn.Module):
    """Attention with a learned bias for each relative position."""

    def __init__(self, dim, window_size, shift_size, num_heads, qkv_bias=True, proj_bias=True, attention_dropout=0.0, dropout=0.0):
        super().__init__()
        if len(window_size) != 2 or len(shift_size) != 2:
            raise ValueError("window_size and shift_size must be of length 2")
        self.window_size, self.shift_size, self.num_heads = window_size, shift_size, num_heads
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=qkv_bias), nn.Linear(dim, dim, bias=proj_bias)
        self.define_relative_position_bias_table()
        self.define_relative_position_index()

    def define_relative_position_bias_table(self):
        height, width = self.window_size
        self.relative_position_bias_table = nn.Parameter(_torch.zeros((2 * height - 1) * (2 * width - 1), self.num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def define_relative_position_index(self):
        height, width = self.window_size
        row, column = (t.flatten() for t in meshgrid(_torch.arange(height), _torch.arange(width), indexing="ij"))
        rows, columns = row[:, None] - row[None] + height - 1, column[:, None] - column[None] + width - 1
        self.register_buffer("relative_position_index", (rows * (2 * width - 1) + columns).flatten())

    def _bias(self, table):
        n = self.window_size[0] * self.window_size[1]
        return table[self.relative_position_index].view(n, n, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def get_relative_position_bias(self):
        return self._bias(self.relative_position_bias_table)

    def forward(self, x):
        return shifted_window_attention(
            x, self.qkv.weight, self.proj.weight, self.get_relative_position_bias(), self.window_size, self.num_heads, self.shift_size, self.attention_dropout,
            self.dropout, self.qkv.bias, self.proj.bias, getattr(self, "logit_scale", None), self.training,
        )


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """Cosines instead of products, and a bias computed by a small network from the logarithm of the distance."""

    def __init__(self, dim, window_size, shift_size, num_heads, qkv_bias=True, proj_bias=True, attention_dropout=0.0, dropout=0.0):
        super().__init__(dim, window_size, shift_size, num_heads, qkv_bias, proj_bias, attention_dropout, dropout)
        self.logit_scale = nn.Parameter(_torch.log(10 * _torch.ones((num_heads, 1, 1))))
        self.cpb_mlp = nn.Sequential(nn.Linear(2, 512, bias=True), nn.ReLU(inplace=True), nn.Linear(512, num_heads, bias=False))
        if qkv_bias:
            with no_grad():
                self.qkv.bias[dim : 2 * dim].zero_()

    def define_relative_position_bias_table(self):
        height, width = self.window_size
        steps = [_torch.arange(-(n - 1), n, dtype=_C.float32) / (n - 1) * 8 for n in (height, width)]
        table = _torch.stack(meshgrid(*steps, indexing="ij"), -1).unsqueeze(0)
        self.register_buffer("relative_coords_table", table.sign() * _torch.log2(table.abs() + 1.0) / 3.0)

    def get_relative_position_bias(self):
        return 16 * _torch.sigmoid(self._bias(self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)))


class SwinTransformerBlock(nn.Module):
    """Attention and a feed-forward network, each after a norm."""

    def __init__(
        self, dim, num_heads, window_size, shift_size, mlp_ratio=4.0, dropout=0.0, attention_dropout=0.0, stochastic_depth_prob=0.0, norm_layer=nn.LayerNorm,
        attn_layer=ShiftedWindowAttention,
    ):
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = attn_layer(dim, window_size, shift_size, num_heads, attention_dropout=attention_dropout, dropout=dropout)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.norm2 = norm_layer(dim)
        self.mlp = MLP(dim, [int(dim * mlp_ratio), dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.mlp.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)

    def forward(self, x):
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class SwinTransformerBlockV2(SwinTransformerBlock):
    """The same with the norms last."""

    def __init__(self, *args, attn_layer=ShiftedWindowAttentionV2, **kwargs):
        super().__init__(*args, attn_layer=attn_layer, **kwargs)

    def forward(self, x):
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


class SwinTransformer(nn.Module):
    """The whole network."""

    def __init__(
        self, patch_size, embed_dim, depths, num_heads, window_size, mlp_ratio=4.0, dropout=0.0, attention_dropout=0.0, stochastic_depth_prob=0.1, num_classes=1000,
        norm_layer=None, block=None, downsample_layer=PatchMerging,
    ):
        super().__init__()
        self.num_classes = num_classes
        block, norm_layer = block or SwinTransformerBlock, norm_layer or partial(nn.LayerNorm, eps=1e-5)
        layers = [nn.Sequential(nn.Conv2d(3, embed_dim, kernel_size=tuple(patch_size), stride=tuple(patch_size)), Permute([0, 2, 3, 1]), norm_layer(embed_dim))]
        total, done, dim = sum(depths), 0, embed_dim
        for at, (depth, heads) in enumerate(zip(depths, num_heads)):
            stage = []
            for i in range(depth):
                shift = [0 if i % 2 == 0 else w // 2 for w in window_size]
                stage.append(block(
                    dim, heads, window_size=window_size, shift_size=shift, mlp_ratio=mlp_ratio, dropout=dropout, attention_dropout=attention_dropout,
                    stochastic_depth_prob=stochastic_depth_prob * float(done) / (total - 1), norm_layer=norm_layer,
                ))
                done += 1
            layers.append(nn.Sequential(*stage))
            if at < len(depths) - 1:
                layers.append(downsample_layer(dim, norm_layer))
                dim *= 2
        self.features = nn.Sequential(*layers)
        self.norm, self.permute = norm_layer(dim), Permute([0, 3, 1, 2])
        self.avgpool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten(1)
        self.head = nn.Linear(dim, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.head(self.flatten(self.avgpool(self.permute(self.norm(self.features(x))))))


def _make(name, stochastic_depth_prob=None, **kwargs):
    width, depths, heads, side, depth = _ARCHS[name]
    if "_v2_" in name:
        kwargs = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2, **kwargs}
    return SwinTransformer([4, 4], width, list(depths), list(heads), [side, side], stochastic_depth_prob=depth if stochastic_depth_prob is None else stochastic_depth_prob, **kwargs)


__all__ = ["SwinTransformer", *builders(globals(), {name: name for name in _ARCHS}, _make)]
