"""Comparisons and logic: bool results."""

import math

import torch

from family import bf16, f16, f32, f64, i8, i32, i64, u8

GRID = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]


def build(f):
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        f.case(op, torch.tensor(GRID).reshape(-1, 1), torch.tensor(GRID))
        for dtype in (f32, f64, f16, bf16, i64, i32, i8):
            f.case(op, f.ints(9, lo=-2, hi=3).to(dtype), f.ints(9, lo=-2, hi=3).to(dtype))
        f.case(op, f.bools(6), f.bools(6))
        f.case(op, f.ints(4, 3, lo=-1, hi=2, layout="transposed"), f.ints(3, lo=-1, hi=2))
        f.case(op, f.ints(2, 3, lo=-1, hi=2, layout="strided"), f.ints(2, 3, lo=-1, hi=2, layout="expanded"))
        f.case(op, f.ints(5, lo=-1, hi=2), 0)
        f.case(op, f.ints(5, lo=-1, hi=2), 0.5)
        f.case(op, f.ints(5, lo=-1, hi=2).to(f32), 1)
        f.case(op, f.ints(5, lo=0, hi=3).to(u8), f.ints(5, lo=0, hi=3).to(i8))
        f.case(op, f.ints(5, lo=-1, hi=2), torch.tensor(0.0))
        f.case(op, f.bools(4), 1)
        f.case(op, f.uniform(0, 2), f.uniform(2))
        f.case(op, f.uniform(), f.uniform())
    for op in ("logical_and", "logical_or", "logical_xor"):
        f.case(op, torch.tensor(GRID).reshape(-1, 1), torch.tensor(GRID))
        f.case(op, f.bools(3, 4), f.bools(4))
        f.case(op, f.bools(4, 3, layout="transposed"), f.bools(4, 1))
        for dtype in (i64, i32, u8, f64, f16, bf16):
            f.case(op, f.ints(8, lo=0, hi=2).to(dtype), f.ints(8, lo=0, hi=2).to(dtype))
        f.case(op, f.ints(6, lo=0, hi=2), f.ints(6, lo=0, hi=2).to(f32))
        f.case(op, f.bools(3), torch.tensor(2))
    near = torch.tensor([1.0, 1.0, 1.0, math.nan, math.inf, math.inf, 0.0, 1e-9, 100.0])
    other = torch.tensor([1.0, 1.00002, 1.000005, math.nan, math.inf, -math.inf, 1e-9, -1e-9, 101.0])
    f.case("isclose", near, other)
    f.case("isclose", near, other, equal_nan=True)
    f.case("isclose", near, other, rtol=0.02, atol=0.0)
    f.case("isclose", near, other, rtol=0.0, atol=1e-4)
    f.case("isclose", near.to(f64).reshape(3, 3).t(), other.to(f64).reshape(3, 3).t())
    f.case("isclose", torch.tensor([1, 2, 100]), torch.tensor([1, 3, 101]), rtol=0.05)
    f.case("isclose", f.uniform(3, 1), f.uniform(4), atol=1.0)
