"""Elementwise functions of one tensor."""

import math

import torch

from family import arrange, bf16, f16, f64, i8, i16, i32, i64, u8

# name: the interval to draw from, and what integers become ("float", "keep", "bool" or "error").
UNARY = {
    "neg": (-3, 3, "keep"), "abs": (-3, 3, "keep"), "sign": (-3, 3, "keep"), "square": (-3, 3, "keep"),
    "exp": (-3, 3, "float"), "exp2": (-3, 3, "float"), "expm1": (-2, 2, "float"),
    "log": (0.1, 5, "float"), "log2": (0.1, 5, "float"), "log10": (0.1, 5, "float"), "log1p": (-0.8, 5, "float"),
    "sqrt": (0.1, 5, "float"), "rsqrt": (0.1, 5, "float"), "reciprocal": (0.2, 4, "float"),
    "sin": (-6, 6, "float"), "cos": (-6, 6, "float"), "tan": (-1.2, 1.2, "float"),
    "asin": (-0.9, 0.9, "float"), "acos": (-0.9, 0.9, "float"), "atan": (-4, 4, "float"),
    "sinh": (-3, 3, "float"), "cosh": (-3, 3, "float"), "tanh": (-3, 3, "float"),
    "asinh": (-4, 4, "float"), "acosh": (1.2, 5, "float"), "atanh": (-0.9, 0.9, "float"),
    "erf": (-2.5, 2.5, "float"), "erfc": (-2.5, 2.5, "float"), "erfinv": (-0.9, 0.9, "float"),
    "lgamma": (0.3, 6, "float"), "digamma": (0.3, 6, "float"), "sigmoid": (-5, 5, "float"),
    "logit": (0.1, 0.9, "float"), "sinc": (-2.8, 2.8, "float"),
    "round": (-3, 3, "keep"), "floor": (-3, 3, "keep"), "ceil": (-3, 3, "keep"), "trunc": (-3, 3, "keep"),
    "frac": (-3, 3, "error"),
    "isnan": (-3, 3, "bool"), "isinf": (-3, 3, "bool"), "isfinite": (-3, 3, "bool"), "signbit": (-3, 3, "bool"),
    "logical_not": (-3, 3, "bool"), "nan_to_num": (-3, 3, "keep"),
}

PERIODIC = {"sin", "cos", "tan", "sinc"}
SPECIAL_FUNCTIONS = {"lgamma", "digamma", "erfinv", "polygamma", "erf", "erfc"}

EVERYDAY_SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-30, -1e-30, 1e-6, 88.0, -88.0, math.inf, -math.inf,
                     math.nan]
HUGE = [1e30, -1e30, 104.0, -104.0]

# Points where the derivative is a matter of convention, or infinite.
KINKS = {
    "abs": [0.0, -0.0, 1.0], "sign": [0.0, -2.0], "sqrt": [0.0, 4.0], "floor": [1.0, -1.0, 0.0], "ceil": [1.0, 0.0],
    "round": [0.5, 1.5, 2.5, -0.5, -1.5], "trunc": [1.0, -1.0], "frac": [1.0, -2.0], "sinc": [0.0, 1.0, -1.0],
    "rsqrt": [0.0, 1.0], "log": [0.0, -1.0], "reciprocal": [0.0, -0.5], "asin": [1.0, -1.0], "acosh": [1.0, 2.0],
    "nan_to_num": [math.nan, math.inf, -math.inf, 1.0], "exp": [-math.inf, 0.0], "tanh": [math.inf, 0.0, 30.0],
    "sigmoid": [-math.inf, math.inf, 0.0, 90.0, -90.0], "logit": [0.0, 1.0, 0.5],
}


def specials(op):
    return EVERYDAY_SPECIALS + ([1e3, -1e3] if op in PERIODIC else HUGE)


def common_cases(f, op, lo, hi, tol64=None):
    """Every layout, SIMD tails, both wide float types with gradients, empty and zero-dim, the half types."""
    draw = lambda *shape, **kw: f.uniform(*shape, lo=lo, hi=hi, **kw)
    f.case(op, draw(3, 5))
    f.case(op, draw(133))
    f.case(op, draw(4, 3, layout="transposed"))
    f.case(op, draw(2, 3, 4, layout="strided"))
    f.case(op, draw(3, 4, layout="expanded"))
    f.case(op, draw(2, 3, dtype=f64, layout="sliced"), tol=tol64)
    f.case(op, draw(2, 2, 3, dtype=f64, layout="reversed"), tol=tol64)
    f.case(op, draw(dtype=f64), tol=tol64)
    f.case(op, draw(0, 3))
    f.case(op, draw(45, dtype=f16))
    f.case(op, draw(7, 5, dtype=bf16, layout="transposed"))


def integer_cases(f, op, kind):
    if kind == "error":
        return
    f.case(op, f.ints(7))
    f.case(op, f.ints(3, 4, dtype=i32, layout="transposed"))
    if kind == "keep":
        f.case(op, f.ints(6, dtype=i16))
        f.case(op, f.ints(6, dtype=i8, layout="strided"))
        f.case(op, f.ints(6, dtype=u8, lo=0, hi=9))
    else:
        f.case(op, f.bools(5))
        f.case(op, f.ints(4, dtype=u8, lo=0, hi=4))


def build(f):
    for op, (lo, hi, integers) in UNARY.items():
        tol64 = (1e-8, 1e-10) if op in SPECIAL_FUNCTIONS else None
        common_cases(f, op, lo, hi, tol64)
        integer_cases(f, op, integers)
        wider_differs = op == "nan_to_num"  # its replacements are the largest values of the type
        f.case(op, torch.tensor(specials(op)), grad=False, audit=not wider_differs)
        f.case(op, torch.tensor(specials(op), dtype=f64), grad=False, tol=tol64)
        if op in KINKS:
            f.case(op, torch.tensor(KINKS[op], dtype=f64))
            f.case(op, torch.tensor(KINKS[op]), audit=not wider_differs)
    f.case("lgamma", torch.tensor([-0.5, -1.5, -2.25, 20.0, 1e-3, 1.0, 2.0]))
    f.case("digamma", torch.tensor([-0.5, -1.5, -2.25, 20.0, 1e-2], dtype=f64), tol=(1e-8, 1e-10))
    f.case("erfinv", torch.tensor([1.0, -1.0, 0.0, 0.99, -0.999, 2.0]), grad=False)

    for n in (0, 1, 2, 3):
        f.case("polygamma", n, f.uniform(3, 4, lo=0.5, hi=5), tol=(1e-4, 1e-5))
        f.case("polygamma", n, f.uniform(2, 3, lo=0.5, hi=5, dtype=f64, layout="transposed"), tol=(1e-8, 1e-9))
    for decimals in (0, 1, 3, -1):
        f.case("round", torch.tensor([1.26, -1.26, 3.14159, 123.456, -87.5, 15.0, 25.0], dtype=f64), decimals=decimals)
        f.case("round", torch.tensor([1.26, -1.26, 3.14159, 123.456, -87.3, 0.0]), decimals=decimals)
    f.case("logit", f.uniform(3, 4, lo=-0.2, hi=1.2), eps=0.1)
    f.case("logit", torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0], dtype=f64), eps=0.1)
    odd = [math.nan, math.inf, -math.inf, 1.5, -2.5]
    f.case("nan_to_num", torch.tensor(odd), nan=1.0, audit=False)
    f.case("nan_to_num", torch.tensor(odd, dtype=f64), nan=0.5, posinf=10.0, neginf=-20.0)
    f.case("nan_to_num", torch.tensor(odd, dtype=f16), audit=False)
    f.case("nan_to_num", torch.tensor(odd, dtype=bf16), posinf=3.0, audit=False)

    for dtype in (i64, i32, i16, i8, u8):
        f.case("bitwise_not", f.ints(9, lo=-100, hi=101).to(dtype))
    f.case("bitwise_not", f.ints(3, 4, layout="transposed"))
    f.case("bitwise_not", f.bools(6))
    f.case("bitwise_not", arrange(f.bools(2, 3), "strided"))
    f.case("abs", torch.tensor([-2**31 + 1, 2**31 - 1, 0], dtype=i32))
    f.case("neg", torch.tensor([-128, 127, 0], dtype=i8))
    f.case("square", torch.tensor([200, 16, 3], dtype=u8))
    f.case("logical_not", torch.tensor([True, False]))
