"""Elementwise ops of three operands, and clamping."""

import math

import torch

from family import bf16, f16, f64, i32, u8


def build(f):
    clamp(f)
    lerp_and_friends(f)
    where_and_fill(f)


def clamp(f):
    f.case("clamp", f.uniform(3, 5), -0.7, 1.1)
    f.case("clamp", f.uniform(33), -0.7, None)
    f.case("clamp", f.uniform(4, 3, layout="transposed"), None, 0.4)
    f.case("clamp", f.uniform(2, 5, dtype=f64, layout="strided"), -1, 1)
    f.case("clamp", f.uniform(5), 1.0, -1.0)
    f.case("clamp", torch.tensor([-1.0, 1.0, 0.0, 2.0, -2.0, math.nan, math.inf]), -1.0, 1.0)
    f.case("clamp", f.ints(7), -2, 3)
    f.case("clamp", f.ints(7, dtype=i32), -1.5, None)
    f.case("clamp", f.ints(7, dtype=u8, lo=0, hi=9), 2, 5)
    f.case("clamp", f.uniform(9, dtype=f16), -0.5, 0.5)
    f.case("clamp", f.uniform(9, dtype=bf16), None, 0.5)
    f.case("clamp", f.uniform(0, 2), 0.0, 1.0)
    f.case("clamp", f.uniform(3, 4), f.uniform(3, 4, lo=-1, hi=0), f.uniform(3, 4, lo=0, hi=1))
    f.case("clamp", f.uniform(3, 4, dtype=f64, layout="transposed"), f.uniform(4, lo=-1, hi=0, dtype=f64), None)
    f.case("clamp", f.uniform(3, 4), None, f.uniform(3, 1, lo=0, hi=1))
    f.case("clamp", f.uniform(5), torch.tensor(-0.3), torch.tensor(0.3))
    f.case("clamp", torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.5, 0.0]), torch.tensor([2.0, 2.5, 3.0]))
    f.case("clamp", f.ints(6), f.ints(6, lo=-3, hi=0), f.ints(6, lo=0, hi=3))
    f.case("clamp", f.ints(6), torch.tensor(-0.5), torch.tensor(2.5))


def lerp_and_friends(f):
    for weight in (0.0, 0.25, 0.5, 0.75, 1.0, -0.3, 1.7):
        f.case("lerp", f.uniform(3, 4), f.uniform(3, 4), weight)
    f.case("lerp", f.uniform(3, 4), f.uniform(4), f.uniform(3, 1))
    f.case("lerp", f.uniform(2, 3, dtype=f64, layout="transposed"), f.uniform(3, dtype=f64), f.uniform(2, 3, dtype=f64))
    f.case("lerp", f.uniform(5, dtype=bf16), f.uniform(5, dtype=bf16), 0.3)
    f.case("lerp", f.uniform(5, dtype=f16), f.uniform(5, dtype=f16), f.uniform(5, dtype=f16))
    for op, low in (("addcmul", -2.0), ("addcdiv", 0.4)):
        f.case(op, f.uniform(3, 4), f.uniform(3, 4), f.uniform(3, 4, lo=low))
        f.case(op, f.uniform(33), f.uniform(33), f.uniform(33, lo=low), value=-0.5)
        f.case(op, f.uniform(3, 1), f.uniform(4), f.uniform(2, 1, 4, lo=low), value=2)
        f.case(op, f.uniform(4, 3, dtype=f64, layout="transposed"), f.uniform(4, 3, dtype=f64, layout="strided"),
               f.uniform(3, lo=low, dtype=f64), value=0.1)
        f.case(op, f.uniform(3, 4, layout="expanded"), f.uniform(), f.uniform(4, lo=low))
        f.case(op, f.uniform(7, dtype=f16), f.uniform(7, dtype=f16), f.uniform(7, lo=low, dtype=f16))
        f.case(op, f.uniform(7, dtype=bf16), f.uniform(7, dtype=bf16), f.uniform(7, lo=low, dtype=bf16), value=0.5)
    f.case("addcmul", f.ints(5), f.ints(5), f.ints(5), value=2)
    f.case("addcmul", f.ints(5, dtype=i32), f.ints(5, dtype=i32), f.ints(5, dtype=i32))


def where_and_fill(f):
    f.case("where", f.bools(3, 4), f.uniform(3, 4), f.uniform(3, 4))
    f.case("where", f.bools(33), f.uniform(33), f.uniform(33))
    f.case("where", f.bools(3, 1), f.uniform(4), f.uniform(2, 3, 4))
    f.case("where", f.bools(4, 3, layout="transposed"), f.uniform(4, 3, layout="strided"),
           f.uniform(3, layout="sliced"))
    f.case("where", f.bools(2, 3), f.uniform(2, 3, dtype=f64, layout="expanded"), f.uniform(dtype=f64))
    f.case("where", f.bools(5), f.uniform(5), 2.0)
    f.case("where", f.bools(5), 1.5, f.uniform(5))
    f.case("where", f.bools(5), 1, 2)
    f.case("where", f.bools(5), f.ints(5), f.uniform(5))
    f.case("where", f.bools(5), f.ints(5, dtype=i32), f.ints(5))
    f.case("where", f.bools(5), f.uniform(5, dtype=f16), f.uniform(5, dtype=f16))
    f.case("where", f.bools(5), f.uniform(5, dtype=bf16), 0.5)
    f.case("where", f.bools(5), f.bools(5), f.bools(5))
    f.case("where", torch.tensor([True, False, True]), torch.tensor([1.0, math.nan, math.inf]),
           torch.tensor([math.nan, 2.0, math.nan]))
    f.case("where", torch.tensor([True, False, False, True]))
    f.case("masked_fill", f.uniform(3, 4), f.bools(3, 4), 1.5)
    f.case("masked_fill", f.uniform(3, 4), f.bools(4), -math.inf)
    f.case("masked_fill", f.uniform(2, 3, 4, layout="transposed"), f.bools(3, 1), 0)
    f.case("masked_fill", f.uniform(2, 3, dtype=f64, layout="strided"), f.bools(2, 3), torch.tensor(0.5, dtype=f64))
    f.case("masked_fill", f.uniform(4), f.bools(3, 4), 2.0)
    f.case("masked_fill", f.ints(5), f.bools(5), 9)
    f.case("masked_fill", f.bools(5), f.bools(5), True)
    f.case("masked_fill", f.uniform(5, dtype=f16), f.bools(5), 0.5)
    f.case("masked_fill", f.uniform(5, dtype=bf16), f.bools(5), -math.inf)
