"""Reductions."""

import math

import torch

from family import bf16, f16, f32, f64, i8, i32, i64, u8

DIMS = [{}, {"dim": 0}, {"dim": -1, "keepdim": True}, {"dim": [0, 2]}, {"dim": [1, -1], "keepdim": True}]
NORMS = [0, 1, 2, 3, 1.5, math.inf, -math.inf]


def build(f):
    sums(f)
    products_and_moments(f)
    extremes(f)
    norms(f)
    truth_and_counts(f)
    medians(f)


def over_layouts(f, op, draw, variants, **options):
    """Each way of naming dims over each layout in turn, in f32 and f64."""
    layouts = ["dense", "transposed", "strided", "expanded", "reversed"]
    for i, kwargs in enumerate(variants):
        f.case(op, draw(2, 3, 4, dtype=f32, layout=layouts[i % 5]), **kwargs, **options)
        f.case(op, draw(3, 2, 3, dtype=f64, layout=layouts[(i + 1) % 5]), **kwargs, **options)


def sums(f):
    for op in ("sum", "mean", "nansum", "nanmean"):
        over_layouts(f, op, f.uniform, DIMS)
        f.case(op, f.uniform(300))
        f.case(op, f.uniform(3, 70), dim=1)
        f.case(op, f.uniform(70, 3), dim=0)
        f.case(op, f.uniform())
        f.case(op, f.uniform(5, 7), dim=1)
        f.case(op, f.uniform(0, 3))
        f.case(op, f.uniform(0, 3), dim=0)
        f.case(op, f.uniform(0, 3), dim=1)
        f.case(op, f.uniform(3, 9, dtype=f16), dim=1)
        f.case(op, f.uniform(9, 3, dtype=bf16), dim=0)
        f.case(op, torch.tensor([[1.0, math.nan, 2.0], [math.inf, 3.0, -1.0]]), dim=1)
        f.case(op, torch.tensor([[1.0, math.nan, 2.0], [math.nan, math.nan, math.nan]]), dim=1)
    for dtype in (i64, i32, i8):
        f.case("sum", f.ints(3, 4).to(dtype))
        f.case("sum", f.ints(3, 4, layout="transposed").to(dtype), dim=0)
    f.case("sum", f.ints(40, dtype=u8, lo=100, hi=200))
    f.case("sum", f.bools(3, 5), dim=1)
    f.case("sum", f.uniform(3, 4), dim=0, dtype=f64)
    f.case("sum", f.ints(6, dtype=i32), dtype=f32)
    f.case("sum", f.uniform(5, dtype=f16), dtype=f32)
    f.case("mean", f.ints(6), dtype=f32)
    f.case("mean", f.uniform(6, dtype=bf16), dim=0, dtype=f32)
    f.case("nansum", f.ints(6))
    logits = lambda *shape, **kw: f.uniform(*shape, lo=-4, hi=4, **kw)
    over_layouts(f, "logsumexp", logits, DIMS[1:])
    f.case("logsumexp", torch.tensor([[-math.inf, 0.0], [-math.inf, -math.inf], [200.0, 199.0]]), dim=1)
    f.case("logsumexp", torch.tensor([[math.inf, 0.0], [math.nan, 1.0], [-math.inf, 1e4]]), dim=1, grad=False)
    f.case("logsumexp", logits(), dim=0)
    f.case("logsumexp", logits(3, 5, dtype=bf16), dim=1)
    f.case("logsumexp", f.ints(3, 4), dim=1)


def products_and_moments(f):
    over_layouts(f, "prod", lambda *s, **k: f.uniform(*s, lo=0.5, hi=1.5, **k), DIMS[:3])
    f.case("prod", torch.tensor([2.0, 0.0, 3.0, -1.0]))
    f.case("prod", torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 4.0], [1.0, 2.0, 3.0]]), dim=1)
    f.case("prod", f.uniform(0, 3))
    f.case("prod", f.uniform(0, 3), dim=0)
    f.case("prod", f.ints(5))
    f.case("prod", f.ints(2, 5, dtype=i32), dim=1)
    f.case("prod", f.bools(2, 3), dim=0)
    f.case("prod", f.uniform(3, 3, lo=0.5, hi=1.5, dtype=bf16), dim=1)
    f.case("prod", f.uniform(3, 3, lo=0.5, hi=1.5), dim=1, dtype=f64)
    for op in ("var", "std", "var_mean"):
        over_layouts(f, op, f.uniform, DIMS)
        for correction in (0, 1, 2):
            f.case(op, f.uniform(3, 5), dim=1, correction=correction)
            f.case(op, f.uniform(4, 3, dtype=f64, layout="transposed"), dim=0, correction=correction, keepdim=True)
        f.case(op, f.uniform(2, 3, 2), dim=[0, 1], correction=0)
        f.case(op, f.uniform(41))
        f.case(op, f.uniform(3, 1), dim=1)
        f.case(op, f.uniform(3, 1), dim=1, correction=0)
        f.case(op, f.uniform(3, 8, dtype=bf16), dim=1)
        f.case(op, f.uniform(9, lo=1000, hi=1001), tol=(1e-3, 1e-3))
    f.case("std", torch.full((2, 3), 1.5), dim=1)


def extremes(f):
    for op in ("max", "min"):
        f.case(op, f.distinct(3, 5))
        f.case(op, f.distinct(2, 3, 4, dtype=f64, layout="transposed"))
        f.case(op, f.distinct(37, layout="strided"))
        f.case(op, f.distinct(150))
        f.case(op, f.distinct(3, 50), dim=1)
        f.case(op, f.distinct())
        for i, layout in enumerate(("dense", "transposed", "strided", "reversed")):
            f.case(op, f.distinct(2, 3, 4, layout=layout), dim=i % 3, keepdim=i % 2 == 1)
        f.case(op, f.distinct(4, 5, dtype=f64), dim=-1)
        f.case(op, f.distinct(3, 4, layout="expanded"), dim=1)
        f.case(op, torch.tensor([1.0, 3.0, 3.0, -2.0, -2.0]))
        f.case(op, torch.tensor([[1.0, math.nan, 3.0], [math.inf, -math.inf, 0.0]]), dim=1, grad=False)
        f.case(op, f.ints(3, 4))
        f.case(op, torch.tensor([[3, 1, 2], [-1, 5, 0]]), dim=1)
        f.case(op, torch.tensor([[3, 1, 2], [7, 5, 0]], dtype=u8), dim=0)
        f.case(op, f.bools(5))
        f.case(op, f.distinct(9, dtype=f16))
        f.case(op, f.distinct(3, 4, dtype=bf16), dim=1)
    for op in ("amax", "amin"):
        over_layouts(f, op, f.distinct, DIMS)
        f.case(op, torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), dim=1)
        f.case(op, torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=f64))
        f.case(op, torch.tensor([1.0, math.nan, 3.0]), grad=False)
        f.case(op, f.ints(3, 4), dim=0)
        f.case(op, f.distinct(3, 4, dtype=f16), dim=1)
        f.case(op, f.distinct(3, 4, dtype=bf16))
    f.case("aminmax", f.distinct(3, 5))
    f.case("aminmax", f.distinct(3, 5, layout="transposed"), dim=0)
    f.case("aminmax", f.distinct(2, 3, 2, dtype=f64), dim=1, keepdim=True)
    f.case("aminmax", torch.tensor([2.0, 2.0, 1.0, 1.0]))
    f.case("aminmax", f.ints(6))
    f.case("aminmax", torch.tensor([1.0, math.nan]), grad=False)
    for op in ("argmax", "argmin"):
        f.case(op, f.distinct(3, 5))
        for i, layout in enumerate(("dense", "transposed", "strided", "reversed", "expanded")):
            f.case(op, f.distinct(2, 3, 4, layout=layout), dim=(i + 1) % 3, keepdim=i % 2 == 1)
        f.case(op, f.distinct(43, dtype=f64), dim=0)
        f.case(op, torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), dim=1)
        f.case(op, torch.tensor([[1.0, math.nan, 3.0, math.nan]]), dim=1)
        f.case(op, torch.tensor([[3, 1, 2], [-1, 5, 0]]), dim=1)
        f.case(op, f.distinct())
        f.case(op, f.distinct(7, dtype=bf16))


def norms(f):
    for p in NORMS:
        f.case("norm", f.distinct(3, 4), p=p)
        f.case("norm", f.distinct(2, 3, 4, dtype=f64, layout="transposed"), p=p, dim=1)
        f.case("norm", f.distinct(2, 3, 2, layout="strided"), p=p, dim=[0, 2], keepdim=True)
        f.case("vector_norm", f.distinct(3, 4), ord=p)
        f.case("vector_norm", f.distinct(3, 4, dtype=f64, layout="strided"), ord=p, dim=0)
        f.case("vector_norm", f.distinct(2, 3, 4, layout="reversed"), ord=p, dim=[1, 2], keepdim=True)
    f.case("norm", f.uniform(5, 5))
    f.case("norm", torch.zeros(4), p=2)
    f.case("norm", torch.zeros(4, dtype=f64), p=1)
    f.case("norm", torch.tensor([3.0, -3.0, 1.0]), p=math.inf)
    f.case("norm", f.uniform(7, dtype=bf16), p=2)
    f.case("norm", torch.tensor([1e20, 1e20, 1e19], dtype=f64), p=2)
    f.case("vector_norm", f.uniform(29))


def truth_and_counts(f):
    for op in ("any", "all"):
        f.case(op, f.bools(3, 4))
        f.case(op, f.bools(3, 4, layout="transposed"), dim=0)
        f.case(op, f.bools(2, 3, 2, layout="strided"), dim=-1, keepdim=True)
        f.case(op, torch.tensor([0.0, -0.0, math.nan]))
        f.case(op, f.ints(3, 4, lo=0, hi=2), dim=1)
        f.case(op, f.ints(3, 4, lo=0, hi=2, dtype=u8), dim=1)
        f.case(op, torch.zeros(0, 2, dtype=torch.bool))
        f.case(op, torch.zeros(0, 2, dtype=torch.bool), dim=0)
        f.case(op, torch.tensor(True))
    f.case("count_nonzero", f.ints(3, 4, lo=-1, hi=2))
    f.case("count_nonzero", f.ints(3, 4, lo=-1, hi=2, layout="transposed"), dim=0)
    f.case("count_nonzero", f.ints(2, 3, 4, lo=0, hi=2), dim=[0, 2])
    f.case("count_nonzero", torch.tensor([0.0, -0.0, math.nan, 1.0]))
    f.case("count_nonzero", f.bools(3, 4, layout="strided"), dim=1)
    f.case("count_nonzero", torch.zeros(0, 3))


def medians(f):
    for op in ("median", "nanmedian"):
        f.case(op, f.distinct(3, 5))
        f.case(op, f.distinct(8))
        f.case(op, f.distinct(3, 5), dim=1)
        f.case(op, f.distinct(4, 6, layout="transposed"), dim=0, keepdim=True)
        f.case(op, f.distinct(2, 3, 4, dtype=f64, layout="strided"), dim=-1)
        f.case(op, torch.tensor([[1.0, math.nan, 3.0, 2.0], [4.0, 5.0, 6.0, 7.0]]), dim=1, grad=False)
        f.case(op, torch.tensor([1.0, math.nan, 3.0, math.nan]), grad=False)
        f.case(op, torch.tensor([5, 1, 4, 2, 3, 6]))
        f.case(op, torch.tensor([[5, 1, 4], [2, 3, 6]], dtype=i32), dim=0)
        f.case(op, f.distinct(7, dtype=bf16))
