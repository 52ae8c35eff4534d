"""What str(tensor) says, for every dtype and magnitude."""

import json
import math

import torch

from family import bf16, boolean, f16, f32, f64, i8, i16, i32, i64, u8

INF, NAN = math.inf, math.nan
FLOATS = [f32, f64, f16, bf16]
INTS = [i64, i32, i16, i8, u8]


def number(value):
    """JSON has no inf or nan: they become strings."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def tensors():
    draw = torch.Generator().manual_seed(7)
    spread = lambda *shape: torch.rand(shape, generator=draw) * 6 - 3
    for dtype in FLOATS:
        yield torch.tensor(3.14159, dtype=dtype)
        yield torch.tensor(2.0, dtype=dtype)
        yield torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
        yield torch.tensor([[0.1, -0.25], [1.5, 100.0]], dtype=dtype)
        yield torch.tensor([1e-5, 1.0], dtype=dtype)
        yield torch.tensor([1.0, INF, -INF, NAN], dtype=dtype)
        yield torch.tensor([], dtype=dtype)
    for dtype in INTS:
        yield torch.tensor(5, dtype=dtype)
        yield torch.tensor([[1, 20, 3], [4, 50, 100]], dtype=dtype)
        yield torch.tensor([], dtype=dtype)
    for values in ([-1, 10, -100], [[-128, 127], [0, 5]]):
        yield torch.tensor(values, dtype=i8)
    yield torch.tensor([2**62, -1])
    yield torch.tensor([2**31 - 1, -2**31], dtype=i32)
    yield torch.tensor(True)
    yield torch.tensor([True, False])
    yield torch.tensor([[True, False], [False, False]])
    yield torch.tensor([], dtype=boolean)

    for values in (
        [0.0], [-0.0], [0.0, -0.0, 1.0], [-0.0, 1.5], [1e-4, 1e-3], [1e-8, 1e-7], [1e-4, 1.0, 1000.0], [1e-4, 1.0, 1e5],
        [1e8], [1e8, 1.0], [123456789.0], [99999999.0], [1e9, 2e9], [12345.678], [99999.0, 0.5], [999.9999], [0.99999],
        [0.999999, 1.0], [1e10, 1e-10], [1e38, -1e38], [1e-38], [1e-45], [-1.5, 22.25, -333.125], [1.0, 2.5],
        [1.0, NAN],
        [1.5, NAN], [INF], [NAN], [-INF, 1.0], [INF, 1e10], [INF, 1e-5, 1.0], [1e5, 2.0, 3.0], [1001.0, 1.0],
        [1000.5, 1.0, 0.001],
        [16777216.0, 1.0], [3.0, -4.0], [0.1, 0.2, 0.3], [1 / 3, 2 / 3], [1e3, 1e4, 1e5], [0.00012], [1.0, 1e7],
    ):
        yield torch.tensor(values)
    for values in ([1e300, 1.0], [1e-300], [1 / 3, 1e10], [123456789.123456], [1e16, 2.0], [0.1, 0.2]):
        yield torch.tensor(values, dtype=f64)
    for values in (1e-5, 1e8, 123456.0, -0.0, INF, -INF, NAN, 0.1, 1e-10, 1e20, -7.0):
        yield torch.tensor(values)

    yield torch.zeros(2, 0)
    yield torch.zeros(0, 3, dtype=i64)
    yield torch.zeros(1, 1, 1)
    yield torch.arange(24).reshape(2, 3, 4)
    yield torch.arange(24.0).reshape(2, 3, 4) / 7
    yield torch.arange(16.0).reshape(2, 2, 2, 2)
    yield spread(3, 4)
    yield spread(25)
    yield spread(2, 20)
    yield torch.arange(40)
    yield spread(3, 17) * 1e6
    yield torch.rand(5, 3, generator=draw, dtype=f64)
    yield (torch.rand(30, generator=draw) < 0.5)
    yield spread(6).to(bf16)
    yield spread(6).to(f16)

    # Summarised: more than 1000 elements.
    yield torch.arange(1000)
    yield torch.arange(1001)
    yield torch.arange(1200.0)
    yield torch.arange(1200.0).reshape(30, 40) / 8
    yield torch.arange(1040).reshape(2, 520)
    yield torch.arange(1040).reshape(520, 2)
    yield torch.arange(1024.0).reshape(8, 8, 16)
    yield torch.arange(1200).reshape(4, 300) % 2 == 0
    yield torch.arange(1080).reshape(3, 10, 6, 6).to(i16)
    yield torch.cat([torch.full((600,), 0.5), torch.tensor([1e6]), torch.full((600,), 0.5)])

    for values in ([1.0, 2.0], 3.5, [[0.25, -1.0]], [1e-6, 1.0]):
        yield torch.tensor(values, requires_grad=True)
    yield torch.tensor([1.5], dtype=f64, requires_grad=True)
    yield torch.zeros(0, requires_grad=True)


def table():
    rows = []
    for tensor in tensors():
        flat = [number(value) for value in tensor.detach().flatten().tolist()]
        rows.append(json.dumps({
            "dtype": str(tensor.dtype).split(".")[1],
            "shape": list(tensor.shape),
            "requires_grad": tensor.requires_grad,
            "data": flat,
            "expected": str(tensor),
        }))
    return "[\n" + ",\n".join(rows) + "\n]\n"
