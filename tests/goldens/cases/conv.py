"""Convolutions and their transposes."""

from family import bf16, f16, f32, f64

# Spatial arguments per case; a list is cut to the number of dims. groups counts apply to 4 input channels.
VARIANTS = [
    {}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"stride": 2, "padding": 1, "dilation": 2},
    {"groups": 2}, {"groups": 4, "padding": 1}, {"padding": "same"}, {"padding": "valid"},
    {"padding": "same", "dilation": 2}, {"stride": [2, 1, 2], "padding": [1, 0, 1]},
]
TRANSPOSED = [
    {}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"stride": 2, "padding": 1, "output_padding": 1},
    {"groups": 2, "stride": 2}, {"groups": 4, "padding": 1}, {"stride": [2, 1, 2], "padding": [1, 0, 1]},
    {"stride": 3, "output_padding": 2, "dilation": 2},
]


def fitted(kwargs, dims):
    return {key: value[:dims] if isinstance(value, list) else value for key, value in kwargs.items()}


def build(f):
    sizes = {1: ((8,), (3,)), 2: ((6, 5), (3, 2)), 3: ((5, 4, 4), (2, 3, 2))}
    for dims, (space, kernel) in sizes.items():
        op, transposed = f"conv{dims}d", f"conv_transpose{dims}d"
        small = tuple(min(n, 4) - (dims == 3) for n in space)
        for i, variant in enumerate(VARIANTS):
            kwargs, dtype = fitted(variant, dims), f64 if i % 3 == 2 else f32
            groups = kwargs.get("groups", 1)
            channels = (4, 4) if groups > 1 else (2, 3)
            x = f.uniform(1 if dims == 3 else 2, channels[0],
                          *(n + 1 if kwargs.get("dilation") == 2 else n for n in space), dtype=dtype)
            weight = f.uniform(channels[1], channels[0] // groups, *kernel, dtype=dtype)
            f.case(op, x, weight, f.uniform(channels[1], dtype=dtype) if i % 2 == 0 else None, **kwargs)
        for i, variant in enumerate(TRANSPOSED):
            kwargs, dtype = fitted(variant, dims), f64 if i % 3 == 2 else f32
            groups = kwargs.get("groups", 1)
            channels = (4, 4) if groups > 1 else (2, 3)
            x = f.uniform(1 if dims == 3 else 2, channels[0], *small, dtype=dtype)
            weight = f.uniform(channels[0], channels[1] // groups, *kernel, dtype=dtype)
            f.case(transposed, x, weight, f.uniform(channels[1], dtype=dtype) if i % 2 == 0 else None, **kwargs)
        for name, flip in ((op, False), (transposed, True)):
            shape = (3, 2) if flip else (2, 3)
            f.case(name, f.uniform(3, *space), f.uniform(*shape, *kernel), f.uniform(2))
            f.case(name, f.uniform(1, 3, *space, layout="transposed"), f.uniform(*shape, *kernel, layout="strided"))
            f.case(name, f.uniform(1, 3, *space, dtype=f64, layout="strided"),
                   f.uniform(*shape, *kernel, dtype=f64, layout="reversed"), f.uniform(2, dtype=f64, layout="strided"))
            f.case(name, f.uniform(1, 3, *space, dtype=bf16), f.uniform(*shape, *kernel, dtype=bf16),
                   f.uniform(2, dtype=bf16))
            f.case(name, f.uniform(1, 3, *space), f.uniform(*shape, *([1] * dims)))
    f.case("conv2d", f.uniform(1, 3, 6, 6, dtype=f16), f.uniform(2, 3, 3, 3, dtype=f16))
    f.case("conv2d", f.uniform(2, 3, 5, 5, layout="channels_last"), f.uniform(4, 3, 3, 3, layout="channels_last"),
           f.uniform(4))
    f.case("conv2d", f.uniform(2, 17, 5, 4), f.uniform(18, 17, 3, 3), f.uniform(18), padding=1, tol=(5e-5, 2e-5))
    f.case("conv_transpose2d", f.uniform(2, 3, 3, 3, layout="channels_last"), f.uniform(3, 4, 2, 2), f.uniform(4),
           stride=2)
    f.case("conv2d", f.uniform(1, 1, 1, 1), f.uniform(1, 1, 3, 3), padding=1)
    f.case("conv2d", f.uniform(2, 17, 4, 4), f.uniform(3, 17, 1, 1), f.uniform(3))
    f.case("conv2d", f.uniform(1, 2, 7, 3), f.uniform(6, 1, 3, 1), f.uniform(6), groups=2, stride=[2, 1])
    f.case("conv_transpose2d", f.uniform(1, 2, 3, 3), f.uniform(2, 3, 2, 2), stride=2, groups=1)
