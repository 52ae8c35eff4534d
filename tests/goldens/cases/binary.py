"""Arithmetic of two operands: broadcasting, promotion, scalars, special values."""

import math

import torch

from family import arrange, bf16, f16, f32, f64, i8, i16, i32, i64, u8

ANY, POSITIVE, AWAY = (-3, 3), (0.2, 3), (0.3, 2.5)

# name: intervals of the left and right operand.
BINARY = {
    "add": (ANY, ANY), "sub": (ANY, ANY), "mul": (ANY, ANY), "div": (ANY, AWAY), "true_divide": (ANY, AWAY),
    "floor_divide": (ANY, AWAY), "remainder": (ANY, AWAY), "fmod": (ANY, AWAY), "pow": (POSITIVE, ANY),
    "maximum": (ANY, ANY), "minimum": (ANY, ANY), "fmax": (ANY, ANY), "fmin": (ANY, ANY), "atan2": (ANY, ANY),
    "hypot": (AWAY, AWAY), "copysign": (ANY, ANY), "logaddexp": (ANY, ANY), "logaddexp2": (ANY, ANY),
    "xlogy": (POSITIVE, POSITIVE),
}
SCALAR_RIGHT = ["add", "sub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow", "copysign",
                "xlogy"]
SCALAR_LEFT = ["pow", "remainder", "xlogy"]
NO_INTEGERS = {"hypot", "logaddexp", "logaddexp2"}
NO_BOOLS = {"sub", "floor_divide", "remainder", "fmod"}
INTEGER_DIVISION = {"div", "true_divide", "floor_divide", "remainder", "fmod"}

GRID = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e30, -1e30, math.inf, -math.inf, math.nan]

# What each of these pairs promotes to is the point; the second is zero-dim where marked.
MIXED = [(f32, i64, False), (i32, f64, True), (u8, i8, False), (f16, f32, False), (f16, bf16, False), (i64, f32, True),
         (i8, i64, True), (f32, f64, True), (f16, f64, True), (i16, i32, False), (torch.bool, i64, False),
         (torch.bool, f32, True), (i64, torch.bool, False), (bf16, i64, False)]


def operand(f, dtype, *shape, positive=False):
    """Small whole numbers valid in every dtype."""
    if dtype == torch.bool:
        return torch.ones(shape, dtype=torch.bool) if positive else f.bools(*shape)
    return f.ints(*shape, lo=1 if positive or dtype == u8 else -4, hi=5).to(dtype)


def build(f):
    for op, ((l0, h0), (l1, h1)) in BINARY.items():
        left = lambda *shape, **kw: f.uniform(*shape, lo=l0, hi=h0, **kw)
        right = lambda *shape, **kw: f.uniform(*shape, lo=l1, hi=h1, **kw)
        f.case(op, left(3, 4), right(3, 4))
        f.case(op, left(133), right(133))
        f.case(op, left(3, 1), right(1, 4))
        f.case(op, left(2, 3, 4), right(4))
        f.case(op, left(3), right(2, 3, 3))
        f.case(op, left(4, 3, layout="transposed"), right(4, 3))
        f.case(op, left(3, 4, layout="strided"), right(3, 4, layout="transposed"))
        f.case(op, left(3, 4, layout="expanded"), right(3, 4, layout="expanded_last"))
        f.case(op, left(2, 3, dtype=f64), right(2, 3, dtype=f64, layout="sliced"))
        f.case(op, left(2, 3, 2, dtype=f64, layout="reversed"), right(3, 1, dtype=f64))
        f.case(op, left(dtype=f64), right(dtype=f64))
        f.case(op, left(3, 4), right())
        f.case(op, left(), right(5))
        f.case(op, left(0, 3), right(3))
        f.case(op, left(45, dtype=f16), right(45, dtype=f16), audit=op not in INTEGER_DIVISION)
        f.case(op, left(3, 4, dtype=bf16), right(4, dtype=bf16), audit=op not in INTEGER_DIVISION)
        grid = torch.tensor(GRID)
        f.case(op, grid.reshape(-1, 1), grid, grad=False, audit=op not in INTEGER_DIVISION)
        if op in SCALAR_RIGHT:
            f.case(op, left(3, 4), 2.5)
            f.case(op, left(3, 4, layout="transposed"), 2)
            f.case(op, left(5, dtype=f64), 0.5)
            f.case(op, left(5, dtype=bf16), 1.5, audit=False)
        if op in SCALAR_LEFT:
            # PyTorch has no derivative of remainder(number, tensor).
            f.case(op, 2.5, right(3, 4), grad=op != "remainder")
            f.case(op, 2, right(4, 3, dtype=f64, layout="transposed"), grad=op != "remainder")
        if op in NO_INTEGERS:
            continue
        divides = op in INTEGER_DIVISION
        for a, b, zero_dim in MIXED:
            if torch.bool in (a, b) and op in NO_BOOLS:
                continue
            right_operand = operand(f, b, *(() if zero_dim else (4,)), positive=divides or op == "pow")
            f.case(op, operand(f, a, 4), right_operand, grad=op in ("add", "sub", "mul", "div", "true_divide"))
        signed = torch.tensor([7, -7, 7, -7, 6, -6, 0, 1, -1])
        divisors = torch.tensor([2, 2, -2, -2, 3, -3, 5, -4, 4])
        for dtype in (i64, i32, i8):
            f.case(op, signed.to(dtype), divisors.to(dtype).abs() if op == "pow" else divisors.to(dtype))
        f.case(op, torch.tensor([200, 7, 255, 0], dtype=u8), torch.tensor([100, 2, 3, 9], dtype=u8))
        if op in SCALAR_RIGHT:
            f.case(op, signed, 2)
            f.case(op, signed.to(i32), 2.5)
            f.case(op, signed.to(i8), 3)
            if op not in NO_BOOLS:
                f.case(op, torch.tensor([True, False]), 2)
                f.case(op, torch.tensor([True, False]), 1.5)
    arithmetic_arguments(f)
    conventions(f)
    shifts(f)


def arithmetic_arguments(f):
    for op in ("add", "sub"):
        f.case(op, f.uniform(3, 4), f.uniform(4), alpha=2)
        f.case(op, f.uniform(3, 4, dtype=f64, layout="transposed"), f.uniform(3, 1, dtype=f64), alpha=-0.5)
        f.case(op, f.uniform(5), 3.0, alpha=0.25)
        f.case(op, f.ints(5), f.ints(5), alpha=3)
        f.case(op, f.ints(5, dtype=i32), 4, alpha=-2)
        f.case(op, f.uniform(7, dtype=bf16), f.uniform(7, dtype=bf16), alpha=1.5)
    f.case("add", torch.tensor([True, False, True]), torch.tensor([True, True, False]))
    f.case("mul", torch.tensor([True, False, True]), torch.tensor([True, True, False]))
    f.case("mul", torch.tensor([True, False, True]), True)
    f.case("add", torch.tensor([100, 27, -128], dtype=i8), torch.tensor([100, 1, -1], dtype=i8))
    whole = torch.tensor([7, -7, 7, -7, 6, -6, 0, 1, -1])
    divisors = torch.tensor([2, 2, -2, -2, 3, -3, 5, -4, 4])
    for mode in ("floor", "trunc"):
        f.case("div", f.uniform(3, 4, lo=-5, hi=5), f.uniform(3, 4, lo=0.3, hi=2), rounding_mode=mode)
        f.case("div", f.uniform(4, 3, dtype=f64, layout="transposed"), f.uniform(3, lo=-2, hi=-0.3, dtype=f64),
               rounding_mode=mode)
        f.case("div", f.uniform(6, lo=-5, hi=5), 0.7, rounding_mode=mode)
        f.case("div", whole.to(f32), divisors.to(f32), rounding_mode=mode)
        f.case("div", torch.tensor([1.0, -1.0, 0.0, math.inf, 1.0, math.nan, -1.0, 5.0]),
               torch.tensor([0.0, 0.0, 0.0, 2.0, math.inf, 1.0, math.inf, -math.inf]), grad=False, rounding_mode=mode)
        for dtype in (i64, i32, i16, i8):
            f.case("div", whole.to(dtype), divisors.to(dtype), rounding_mode=mode)
        f.case("div", whole, 2.5, rounding_mode=mode)
        f.case("div", whole, -2, rounding_mode=mode)
        f.case("div", torch.tensor([200, 7, 255], dtype=u8), torch.tensor([7, 2, 16], dtype=u8), rounding_mode=mode)
        f.case("div", whole, divisors.to(f32), rounding_mode=mode)


def conventions(f):
    """Derivatives at ties, zeros and borders, where PyTorch's choice is what counts."""
    ties = torch.tensor([1.0, 2.0, 3.0, 0.0], dtype=f64), torch.tensor([1.0, 1.0, 4.0, -0.0], dtype=f64)
    for op in ("maximum", "minimum", "fmax", "fmin"):
        f.case(op, *ties)
        f.case(op, torch.tensor([math.nan, 1.0, math.nan]), torch.tensor([1.0, math.nan, math.nan]))
    exponents = (0, 1, 2, 3, 0.5, -1, -2, 2.5, -0.5)
    for exponent in exponents:
        f.case("pow", f.uniform(7, lo=0.2, hi=3), exponent)
    for exponent in (0.0, 1.0, 2.0, 3.0, -1.0):
        f.case("pow", torch.tensor([-2.0, -0.5, 0.5, 3.0], dtype=f64), exponent)
    f.case("pow", torch.tensor([0.0, 0.0, 0.0, 0.0], dtype=f64), torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=f64))
    f.case("pow", torch.tensor([0.0, 2.0]), 2)
    f.case("pow", torch.tensor([0.0, 2.0]), 0)
    f.case("pow", 0.0, torch.tensor([0.0, 1.0, 2.0]))
    f.case("pow", 1, torch.tensor([0.0, 1.0, 2.0]))
    f.case("pow", torch.tensor([2, 1, -1, -1, 3, 0]), torch.tensor([-1, -1, -1, -2, -2, 0]))
    f.case("pow", torch.tensor([2, 3, -2, 10]), 3)
    f.case("pow", 2, torch.tensor([0, 1, 5, 10]))
    f.case("pow", torch.tensor([2, 3, -2], dtype=i32), 0.5, grad=False)
    f.case("hypot", torch.tensor([3.0, 1e20, 5e-20]), torch.tensor([4.0, 1e20, 1.2e-19]))
    f.case("atan2", torch.tensor([0.0, 1.0, -1.0]), torch.tensor([1.0, 0.0, 0.0]))
    f.case("xlogy", torch.tensor([0.0, 0.0, 1.0, 2.0]), torch.tensor([0.0, 2.0, 1.0, 0.5]), grad=False)
    f.case("xlogy", torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.5]))
    f.case("copysign", torch.tensor([0.0, 1.0, -2.0, 3.0]), torch.tensor([1.0, -0.0, 0.0, -1.0]))
    f.case("copysign", f.uniform(5), -0.0)
    f.case("logaddexp", torch.tensor([-math.inf, 0.0, 100.0, -1e4]), torch.tensor([0.0, -math.inf, -100.0, -1e4]))
    f.case("logaddexp2", torch.tensor([-math.inf, 0.0, 100.0]), torch.tensor([0.0, -math.inf, -100.0]))
    f.case("remainder", torch.tensor([5.5, -5.5, 5.5, -5.5, 0.0]), torch.tensor([2.0, 2.0, -2.0, -2.0, 3.0]))
    f.case("fmod", torch.tensor([5.5, -5.5, 5.5, -5.5, 0.0]), torch.tensor([2.0, 2.0, -2.0, -2.0, 3.0]))
    f.case("heaviside", torch.tensor([-1.0, 0.0, -0.0, 2.0, math.nan, math.inf]), torch.tensor([0.5]))
    f.case("heaviside", f.uniform(3, 4, layout="transposed"), f.uniform(4))
    f.case("heaviside", f.ints(3, 3, lo=-1, hi=2), f.ints(3))
    f.case("heaviside", f.ints(6, lo=-1, hi=2).to(f64), torch.tensor(0.25, dtype=f64))
    f.case("heaviside", torch.tensor([-1.0, 0.0, 1.0], dtype=bf16), torch.tensor([0.5], dtype=bf16))


def shifts(f):
    for op in ("bitwise_left_shift", "bitwise_right_shift"):
        for dtype in (i64, i32, i16, i8):
            f.case(op, f.ints(8, lo=-9, hi=10).to(dtype), f.ints(8, lo=0, hi=4).to(dtype))
        f.case(op, f.ints(6, lo=0, hi=200).to(u8), f.ints(6, lo=0, hi=4).to(u8))
        f.case(op, f.ints(3, 4, layout="transposed"), f.ints(4, lo=0, hi=6))
        f.case(op, f.ints(5), 2)
        f.case(op, f.ints(5, dtype=i32), arrange(f.ints(5, lo=0, hi=5), "strided"))
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        for dtype in (i64, i32, i16, i8, u8):
            low = 0 if dtype == u8 else -60
            f.case(op, f.ints(7, lo=low, hi=61).to(dtype), f.ints(7, lo=low, hi=61).to(dtype))
        f.case(op, f.bools(6), f.bools(6))
        f.case(op, f.ints(4, 3, layout="transposed"), f.ints(3))
        f.case(op, f.ints(5, dtype=i32), 6)
        f.case(op, f.ints(5, dtype=i16), f.ints(5, dtype=i64))
        f.case(op, f.ints(4), f.bools(4))
        f.case(op, f.bools(4), True)
