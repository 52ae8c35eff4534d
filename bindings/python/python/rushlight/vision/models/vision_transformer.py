"""Vision transformer: an encoder over patches of an image."""

import math
from collections import OrderedDict, namedtuple
from functools import partial

from ... import _C, nn
from ..ops.misc import MLP, Conv2dNormActivation
from ._api import builders

#: Patch, layers, heads, width, width of the feed-forward layers.
_ARCHS = {
    "vit_b_16": (16, 12, 12, 768, 3072), "vit_b_32": (32, 12, 12, 768, 3072), "vit_l_16": (16, 24, 16, 1024, 4096), "vit_l_32": (32, 24, 16, 1024, 4096),
    "vit_h_14": (14, 32, 16, 1280, 5120),
}

ConvStemConfig = namedtuple("ConvStemConfig", "out_channels kernel_size stride norm_layer activation_layer", defaults=(nn.BatchNorm2d, nn.ReLU))
_norm = partial(nn.LayerNorm, eps=1e-6)


class MLPBlock(MLP):
    """Two linear layers. Reads files of the first version, which call them ``linear_1`` and ``linear_2``."""

    _version = 2

    def __init__(self, in_dim, mlp_dim, dropout):
        super().__init__(in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:
            for old, new in (("linear_1", "0"), ("linear_2", "3")):
                for kind in ("weight", "bias"):
                    if f"{prefix}{old}.{kind}" in state_dict:
                        state_dict[f"{prefix}{new}.{kind}"] = state_dict.pop(f"{prefix}{old}.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class EncoderBlock(nn.Module):
    """Attention and a feed-forward network, each after a norm."""

    def __init__(self, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer=_norm):
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input):
        x = self.ln_1(input)
        x = self.dropout(self.self_attention(x, x, x, need_weights=False)[0]) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Blocks over patches and their positions."""

    def __init__(self, seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer=_norm):
        super().__init__()
        self.pos_embedding = nn.Parameter(_C._torch.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(OrderedDict(
            (f"encoder_layer_{i}", EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)) for i in range(num_layers)
        ))
        self.ln = norm_layer(hidden_dim)

    def forward(self, input):
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """The whole network."""

    def __init__(
        self, image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, dropout=0.0, attention_dropout=0.0, num_classes=1000, representation_size=None,
        norm_layer=_norm, conv_stem_configs=None,
    ):
        super().__init__()
        if image_size % patch_size:
            raise ValueError("Input shape indivisible by patch size!")
        self.image_size, self.patch_size, self.hidden_dim, self.mlp_dim = image_size, patch_size, hidden_dim, mlp_dim
        self.attention_dropout, self.dropout, self.num_classes = attention_dropout, dropout, num_classes
        self.representation_size, self.norm_layer = representation_size, norm_layer
        if conv_stem_configs is None:
            self.conv_proj = nn.Conv2d(3, hidden_dim, kernel_size=patch_size, stride=patch_size)
            self._stem(self.conv_proj, 1.0 / math.sqrt(3 * patch_size * patch_size), nn.init.trunc_normal_)
        else:
            self.conv_proj, channels = nn.Sequential(), 3
            for i, one in enumerate(conv_stem_configs):
                self.conv_proj.add_module(f"conv_bn_relu_{i}", Conv2dNormActivation(
                    channels, one.out_channels, one.kernel_size, one.stride, norm_layer=one.norm_layer, activation_layer=one.activation_layer,
                ))
                channels = one.out_channels
            last = nn.Conv2d(channels, hidden_dim, kernel_size=1)
            self.conv_proj.add_module("conv_last", last)
            self._stem(last, math.sqrt(2.0 / hidden_dim), nn.init.normal_)
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(_C._torch.zeros(1, 1, hidden_dim))
        self.encoder = Encoder(self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        heads = OrderedDict()
        if representation_size is not None:
            heads["pre_logits"], heads["act"] = nn.Linear(hidden_dim, representation_size), nn.Tanh()
            nn.init.trunc_normal_(heads["pre_logits"].weight, std=math.sqrt(1 / hidden_dim))
            nn.init.zeros_(heads["pre_logits"].bias)
        heads["head"] = nn.Linear(representation_size or hidden_dim, num_classes)
        nn.init.zeros_(heads["head"].weight)
        nn.init.zeros_(heads["head"].bias)
        self.heads = nn.Sequential(heads)

    @staticmethod
    def _stem(conv, deviation, init):
        init(conv.weight, std=deviation)
        nn.init.zeros_(conv.bias)

    def _process_input(self, x):
        """The patches of images as a sequence."""
        batch, _, height, width = x.shape
        for name, size in (("height", height), ("width", width)):
            if size != self.image_size:
                raise AssertionError(f"Wrong image {name}! Expected {self.image_size} but got {size}!")
        x = self.conv_proj(x)
        return x.reshape(batch, self.hidden_dim, -1).permute(0, 2, 1)

    def forward(self, x):
        x = self._process_input(x)
        x = self.encoder(_C._torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1))
        return self.heads(x[:, 0])


def interpolate_embeddings(image_size, patch_size, model_state, interpolation_mode="bicubic", reset_heads=False):
    """A state dict for another size of images: positions are interpolated; ``reset_heads`` leaves the classifier out."""
    positions = model_state["encoder.pos_embedding"]
    batch, length, hidden = positions.shape
    if batch != 1:
        raise ValueError(f"Unexpected position embedding shape: {positions.shape}")
    side = image_size // patch_size
    if side**2 + 1 == length:
        return model_state
    old = math.isqrt(length - 1)
    if old * old != length - 1:
        raise ValueError(f"seq_length is not a perfect square! Instead got seq_length_1d * seq_length_1d = {old * old} and seq_length = {length - 1}")
    grid = positions[:, 1:].permute(0, 2, 1).reshape(1, hidden, old, old)
    grid = nn.functional.interpolate(grid, size=(side, side), mode=interpolation_mode, align_corners=True)
    changed = _C._torch.cat([positions[:, :1], grid.reshape(1, hidden, side * side).permute(0, 2, 1)], dim=1)
    return OrderedDict(
        (key, changed if key == "encoder.pos_embedding" else value) for key, value in model_state.items() if not (reset_heads and key.startswith("heads"))
    )


def _make(config, **kwargs):
    patch, layers, heads, hidden, mlp = config
    return VisionTransformer(kwargs.pop("image_size", 224), patch, layers, heads, hidden, mlp, **kwargs)


__all__ = ["VisionTransformer", *builders(globals(), _ARCHS, _make)]
