"""Running reductions along a dimension."""

import math

import torch

from family import bf16, f16, f32, f64, i8, i32


def build(f):
    for op in ("cumsum", "cumprod", "logcumsumexp"):
        lo, hi = (0.5, 1.5) if op == "cumprod" else (-2, 2)
        draw = lambda *shape, **kw: f.uniform(*shape, lo=lo, hi=hi, **kw)
        f.case(op, draw(7), dim=0)
        f.case(op, draw(3, 5), dim=1)
        f.case(op, draw(3, 5), dim=0)
        f.case(op, draw(4, 3, layout="transposed"), dim=-1)
        f.case(op, draw(2, 3, 4, layout="strided"), dim=1)
        f.case(op, draw(3, 4, layout="expanded"), dim=0)
        f.case(op, draw(2, 3, 2, dtype=f64, layout="reversed"), dim=2)
        f.case(op, draw(37, dtype=f64), dim=0)
        f.case(op, draw(), dim=0)
        f.case(op, draw(0, 3), dim=0)
        f.case(op, draw(3, 6, dtype=bf16), dim=1)
        f.case(op, draw(3, 6, dtype=f16), dim=1)
    for op in ("cumsum", "cumprod"):
        f.case(op, f.ints(6), dim=0)
        f.case(op, f.ints(2, 5, dtype=i32), dim=1)
        f.case(op, f.bools(5), dim=0)
        f.case(op, f.ints(5, dtype=i8), dim=0, dtype=f32)
        f.case(op, f.uniform(5), dim=0, dtype=f64)
        f.case(op, torch.tensor([1.0, math.nan, 2.0, math.inf]), dim=0, grad=False)
    f.case("cumprod", torch.tensor([2.0, 0.0, 3.0, 4.0]), dim=0)
    f.case("cumprod", torch.tensor([[2.0, 0.0, 3.0, 0.0, 5.0], [1.0, 2.0, 3.0, 4.0, 0.0]], dtype=f64), dim=1)
    f.case("logcumsumexp", torch.tensor([-math.inf, -math.inf, 0.0, 100.0, -100.0]), dim=0, grad=False)
    for op in ("cummax", "cummin"):
        f.case(op, f.distinct(9), dim=0)
        f.case(op, f.distinct(3, 5), dim=1)
        f.case(op, f.distinct(4, 3, layout="transposed"), dim=0)
        f.case(op, f.distinct(2, 3, 4, dtype=f64, layout="strided"), dim=1)
        f.case(op, f.distinct(2, 4, dtype=f64, layout="sliced"), dim=-1)
        f.case(op, torch.tensor([1.0, 3.0, 3.0, 2.0, 1.0, 1.0]), dim=0)
        f.case(op, torch.tensor([1.0, math.nan, 3.0, math.nan]), dim=0, grad=False)
        f.case(op, f.ints(7), dim=0)
        f.case(op, f.ints(2, 4, dtype=i32), dim=1)
        f.case(op, f.distinct(7, dtype=bf16), dim=0)
    f.case("diff", f.uniform(7))
    f.case("diff", f.uniform(3, 5), n=2)
    f.case("diff", f.uniform(4, 3, layout="transposed"), dim=0)
    f.case("diff", f.uniform(2, 3, 4, dtype=f64, layout="strided"), n=3, dim=-1)
    f.case("diff", f.uniform(3, 2), 1, 0, f.uniform(1, 2), f.uniform(2, 2))
    f.case("diff", f.uniform(3, 2, dtype=f64), 1, -1, None, f.uniform(3, 1, dtype=f64))
    f.case("diff", f.ints(6))
    f.case("diff", f.bools(6))
    f.case("diff", f.uniform(2), n=3)
