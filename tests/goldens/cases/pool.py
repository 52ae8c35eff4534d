"""Pooling."""

import math

import torch

from family import bf16, f16, f32, f64

MAX_2D = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": [2, 3], "stride": [1, 2]}, {"kernel_size": 2, "dilation": 2},
    {"kernel_size": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True},
]
AVERAGE_2D = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    {"kernel_size": [2, 3], "stride": [1, 2], "padding": [1, 0]}, {"kernel_size": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
    {"kernel_size": 2, "divisor_override": 3},
    {"kernel_size": 3, "padding": 1, "ceil_mode": True, "divisor_override": 2},
]


def one_dim(kwargs):
    cut = {key: value[:1] if isinstance(value, list) else value for key, value in kwargs.items()}
    return None if "divisor_override" in cut else cut


def build(f):
    for dims, space in ((1, (9,)), (2, (7, 5))):
        for op, variants in (("max_pool", MAX_2D), ("avg_pool", AVERAGE_2D)):
            for variant in variants:
                kwargs = variant if dims == 2 else one_dim(variant)
                if kwargs is None:
                    continue
                f.case(f"{op}{dims}d", f.distinct(2, 2, *space), **kwargs)
                f.case(f"{op}{dims}d", f.distinct(2, *space, dtype=f64, layout="strided"), **kwargs)
                if op == "max_pool":
                    f.case(f"{op}{dims}d", f.distinct(1, 2, *space, layout="transposed"), return_indices=True, **kwargs)
        for op in ("max_pool", "avg_pool"):
            f.case(f"{op}{dims}d", f.distinct(2, 3, *space, dtype=bf16), kernel_size=2)
            f.case(f"{op}{dims}d", f.distinct(2, 2, *space, layout="expanded"), kernel_size=2)
        f.case(f"max_pool{dims}d", torch.ones(1, 1, *space), kernel_size=2)
        for op in ("adaptive_avg_pool", "adaptive_max_pool"):
            sizes = (1, 3, 4, space[0]) if dims == 1 else (1, [3, 2], [7, 5], [None, 3], [4, 5], [2, 1])
            for size in sizes:
                f.case(f"{op}{dims}d", f.distinct(2, 2, *space), size)
                f.case(f"{op}{dims}d", f.distinct(2, *space, dtype=f64, layout="transposed"), size)
            f.case(f"{op}{dims}d", f.distinct(1, 2, *space, dtype=bf16), 2)
            f.case(f"{op}{dims}d", f.distinct(1, 2, *space, layout="strided"), 3)
        f.case(f"adaptive_max_pool{dims}d", f.distinct(1, 2, *space), 2, return_indices=True)
    for op in ("max_pool2d", "avg_pool2d"):
        f.case(op, f.distinct(2, 3, 5, 4, layout="channels_last"), kernel_size=2)
    for op in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        f.case(op, f.distinct(2, 3, 5, 4, layout="channels_last"), [2, 3])
    f.case("max_pool2d", torch.tensor([[[1.0, math.nan, 3.0], [4.0, 5.0, -math.inf]]]), kernel_size=2, stride=1,
           grad=False)
    f.case("max_pool1d", f.distinct(1, 2, 6, dtype=f16), kernel_size=3, stride=1)
    f.case("avg_pool2d", f.distinct(1, 1, 2, 2, dtype=f32), kernel_size=2)
    volumes(f)


def volumes(f):
    """Pooling over three dimensions; windows of two get a depth in front."""
    space = (5, 4, 6)
    for op, variants in (("max_pool3d", MAX_2D), ("avg_pool3d", AVERAGE_2D)):
        for variant in variants:
            kwargs = {key: [2] + value if isinstance(value, list) else value for key, value in variant.items()}
            if kwargs.get("padding") == [2, 1, 0]:
                kwargs["padding"] = [1, 1, 0]
            f.case(op, f.distinct(1, 2, *space), **kwargs)
            f.case(op, f.distinct(2, *space, dtype=f64, layout="strided"), **kwargs)
            if op == "max_pool3d":
                f.case(op, f.distinct(1, 2, *space, layout="transposed"), return_indices=True, **kwargs)
    f.case("max_pool3d", f.distinct(1, 2, *space, dtype=bf16), kernel_size=2)
    for size in (1, [3, 2, 4], [None, 3, None], [5, 4, 6]):
        f.case("adaptive_avg_pool3d", f.distinct(2, 2, *space), size)
        f.case("adaptive_avg_pool3d", f.distinct(2, *space, dtype=f64, layout="transposed"), size)
