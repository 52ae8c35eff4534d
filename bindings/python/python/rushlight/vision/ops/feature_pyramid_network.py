"""Feature pyramids: maps of several resolutions, each enriched by the coarser ones."""

from collections import OrderedDict

from ... import nn
from .misc import Conv2dNormActivation

__all__ = ["ExtraFPNBlock", "FeaturePyramidNetwork", "LastLevelMaxPool", "LastLevelP6P7"]


class ExtraFPNBlock(nn.Module):
    """Adds levels to a pyramid: takes the pyramid's maps, the backbone's, and names; gives maps and names."""

    def forward(self, results, x, names):
        raise NotImplementedError("ExtraFPNBlock: a subclass defines forward(results, x, names)")


class FeaturePyramidNetwork(nn.Module):
    """A pyramid of ``out_channels`` over maps by name, finest first."""

    _version = 2

    def __init__(self, in_channels_list, out_channels, extra_blocks=None, norm_layer=None):
        super().__init__()
        if 0 in in_channels_list:
            raise ValueError("in_channels=0 is currently not supported")

        def convs(kernel):
            return nn.ModuleList([
                Conv2dNormActivation(
                    channels if kernel == 1 else out_channels, out_channels, kernel_size=kernel, padding=kernel // 2, norm_layer=norm_layer, activation_layer=None,
                ) for channels in in_channels_list
            ])

        self.inner_blocks, self.layer_blocks = convs(1), convs(3)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    nn.init.constant_(module.bias, 0)
        if extra_blocks is not None and not isinstance(extra_blocks, ExtraFPNBlock):
            raise TypeError(f"extra_blocks should be of type ExtraFPNBlock not {type(extra_blocks)}")
        self.extra_blocks = extra_blocks

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:
            # The first version had bare convolutions.
            for block in ("inner_blocks", "layer_blocks"):
                for i in range(len(getattr(self, block))):
                    for kind in ("weight", "bias"):
                        if f"{prefix}{block}.{i}.{kind}" in state_dict:
                            state_dict[f"{prefix}{block}.{i}.0.{kind}"] = state_dict.pop(f"{prefix}{block}.{i}.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def get_result_from_inner_blocks(self, x, idx):
        return self.inner_blocks[idx](x)

    def get_result_from_layer_blocks(self, x, idx):
        return self.layer_blocks[idx](x)

    def forward(self, x):
        names, maps = list(x.keys()), list(x.values())
        inner, found = None, []
        for at in reversed(range(len(maps))):
            side = self.inner_blocks[at](maps[at])
            inner = side if inner is None else side + nn.functional.interpolate(inner, size=side.shape[-2:], mode="nearest")
            found.insert(0, self.layer_blocks[at](inner))
        if self.extra_blocks is not None:
            found, names = self.extra_blocks(found, maps, names)
        return OrderedDict(zip(names, found))


class LastLevelMaxPool(ExtraFPNBlock):
    """Adds every second pixel of the coarsest map."""

    def forward(self, x, y, names):
        names.append("pool")
        x.append(nn.functional.max_pool2d(x[-1], kernel_size=1, stride=2, padding=0))
        return x, names


class LastLevelP6P7(ExtraFPNBlock):
    """Adds two levels by convolutions, as RetinaNet has them."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.p6, self.p7 = nn.Conv2d(in_channels, out_channels, 3, 2, 1), nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        for module in (self.p6, self.p7):
            nn.init.kaiming_uniform_(module.weight, a=1)
            nn.init.constant_(module.bias, 0)
        self.use_P5 = in_channels == out_channels

    def forward(self, p, c, names):
        p6 = self.p6((p if self.use_P5 else c)[-1])
        p.extend([p6, self.p7(nn.functional.relu(p6))])
        names.extend(["p6", "p7"])
        return p, names
