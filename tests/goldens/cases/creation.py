"""Tensors from numbers alone."""

import math

import torch

from family import bf16, boolean, f16, f32, f64, i8, i16, i32, i64, u8


def build(f):
    for bounds in ((5,), (2, 7), (1, 10, 3), (10, 1, -4), (5.0,), (0.5, 3.0), (0, 1, 0.25), (1.0, -1.0, -0.3), (0,),
                   (-3, 3)):
        f.case("arange", *bounds)
    for dtype in (f64, f16, bf16, i32, i16, i8, u8):
        f.case("arange", 0, 6, 2, dtype=dtype)
    f.case("arange", 0, 1, 0.1, dtype=f64)
    for start, end, steps in ((0, 1, 5), (-2.5, 3.5, 7), (3, -3, 4), (1, 2, 1), (0, 1, 0), (0, 10, 33)):
        f.case("linspace", start, end, steps)
        f.case("linspace", start, end, steps, dtype=f64)
    f.case("linspace", 0, 10, 4, dtype=i64)
    f.case("linspace", -1, 1, 5, dtype=bf16)
    for start, end, steps in ((0, 2, 3), (-1.5, 1.5, 5), (1, -1, 4), (2, 3, 1)):
        f.case("logspace", start, end, steps)
        f.case("logspace", start, end, steps, base=2.0, dtype=f64)
    for size in ((3,), (2, 4), (4, 2), (0,), (0, 3)):
        f.case("eye", *size)
    for dtype in (f64, i64, boolean, f16):
        f.case("eye", 3, dtype=dtype)
    for size in ([], [3], [2, 3], [0, 2], [1, 2, 3]):
        f.case("zeros", size)
        f.case("ones", size)
        f.case("full", size, 2.5)
    for dtype in (f64, f16, bf16, i64, i32, i16, i8, u8, boolean):
        f.case("zeros", [2], dtype=dtype)
        f.case("ones", [2], dtype=dtype)
        f.case("full", [2], 1, dtype=dtype)
    f.case("full", [2], 7)
    f.case("full", [2], True)
    f.case("full", [2], 1.9, dtype=i64)
    for value in (math.inf, -math.inf, math.nan, -0.0):
        f.case("full", [2], value)
    f.case("full", [2], torch.pi, dtype=f32)
