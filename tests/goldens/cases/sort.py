"""Sorting, selection, uniqueness and counting."""

import math

import torch

from family import arrange, bf16, f16, f32, f64, i8, i32, i64, u8


def build(f):
    for op in ("sort", "argsort"):
        f.case(op, f.distinct(3, 5))
        f.case(op, f.distinct(37), descending=True)
        f.case(op, f.distinct(3, 5), dim=0)
        f.case(op, f.distinct(4, 5, layout="transposed"), dim=-1, descending=True)
        f.case(op, f.distinct(2, 3, 4, dtype=f64, layout="strided"), dim=1)
        f.case(op, f.distinct(3, 4, layout="sliced"), dim=1)
        f.case(op, f.distinct(), dim=0)
        f.case(op, f.distinct(0, 3), dim=0)
        f.case(op, f.ints(12, lo=-3, hi=4), stable=True)
        f.case(op, f.ints(12, lo=-3, hi=4, dtype=i32), stable=True, descending=True)
        f.case(op, f.ints(9, lo=0, hi=4, dtype=u8), stable=True)
        f.case(op, f.bools(7), stable=True)
        f.case(op, torch.tensor([1.0, math.nan, -math.inf, 3.0, math.inf, math.nan, -1.0]), stable=True, grad=False)
        f.case(op, torch.tensor([1.0, math.nan, -math.inf, 3.0, math.inf]), stable=True, descending=True, grad=False)
        f.case(op, f.distinct(9, dtype=f16))
        f.case(op, f.distinct(9, dtype=bf16))
    f.case("topk", f.distinct(9), 3)
    f.case("topk", f.distinct(3, 5), 2)
    f.case("topk", f.distinct(3, 5), 2, largest=False)
    f.case("topk", f.distinct(4, 5, layout="transposed"), 3, dim=0)
    f.case("topk", f.distinct(2, 4, 3, dtype=f64, layout="strided"), 2, dim=1, largest=False)
    f.case("topk", f.distinct(4), 4)
    f.case("topk", f.distinct(4), 0)
    f.case("topk", torch.tensor([5, 1, 4, 2, 3]), 2)
    f.case("topk", torch.tensor([1.0, math.nan, 3.0, -math.inf]), 2, grad=False)
    f.case("topk", f.distinct(3, 6, dtype=bf16), 2)
    f.case("kthvalue", f.distinct(9), 3)
    f.case("kthvalue", f.distinct(3, 5), 2, dim=1)
    f.case("kthvalue", f.distinct(4, 5, layout="transposed"), 4, dim=0, keepdim=True)
    f.case("kthvalue", f.distinct(2, 4, 3, dtype=f64, layout="strided"), 1, dim=1)
    f.case("kthvalue", torch.tensor([5, 1, 4, 2, 3]), 4)
    f.case("kthvalue", torch.tensor([1.0, math.nan, 3.0, 2.0]), 4, grad=False)
    uniqueness(f)
    positions(f)
    counting(f)


def uniqueness(f):
    for op in ("unique", "unique_consecutive"):
        for inverse, counts in ((False, False), (True, False), (False, True), (True, True)):
            kwargs = {"return_inverse": inverse, "return_counts": counts}
            f.case(op, f.ints(12, lo=-2, hi=3), **kwargs)
            f.case(op, f.ints(3, 4, lo=0, hi=3, layout="transposed").to(i64), **kwargs)
            f.case(op, arrange(f.ints(7, lo=0, hi=3).to(f32), "strided"), grad=False, **kwargs)
        f.case(op, f.ints(9, lo=0, hi=3, dtype=i32))
        f.case(op, f.ints(9, lo=0, hi=3, dtype=u8))
        f.case(op, f.bools(6))
        f.case(op, f.ints(0))
        f.case(op, torch.tensor([2.5, 1.5, 2.5, 1.5, -1.0], dtype=f64), grad=False)
    f.case("unique", f.ints(8, lo=0, hi=4), sorted=True)
    slices(f)


def slices(f):
    everything = {"return_inverse": True, "return_counts": True}
    for dim in (0, 1, -1):
        f.case("unique", f.ints(7, 2, lo=0, hi=2), dim=dim, **everything)
        f.case("unique", f.ints(3, 6, 2, lo=0, hi=2), dim=dim)
        f.case("unique", arrange(f.ints(5, 6, lo=-1, hi=1).to(f32), "transposed"), dim=dim, grad=False, **everything)
    f.case("unique", f.ints(9, lo=0, hi=3), dim=0, return_counts=True)
    f.case("unique", f.ints(6, 3, lo=0, hi=2, dtype=u8), dim=0, return_inverse=True)
    f.case("unique", f.ints(0, 3), dim=0)


def positions(f):
    edges = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    values = torch.tensor([-2.0, -1.0, 0.25, 0.5, 2.0, 3.0, math.nan, math.inf, -math.inf])
    for right in (False, True):
        f.case("searchsorted", edges, values, right=right, grad=False)
        f.case("searchsorted", torch.tensor([1, 3, 3, 5]), torch.tensor([[0, 1, 3], [4, 5, 6]]), right=right)
        f.case("searchsorted", f.distinct(2, 5).sort(dim=1).values, f.distinct(2, 3), right=right, grad=False)
        f.case("searchsorted", arrange(f.distinct(2, 5, dtype=f64).sort(dim=1).values, "strided"),
               f.distinct(2, 3, dtype=f64, layout="transposed"), right=right, grad=False)
        f.case("searchsorted", edges, 0.5, right=right, grad=False)
        f.case("searchsorted", edges, values[:4], right=right, out_int32=True, grad=False)
        f.case("bucketize", values, edges, right=right, grad=False)
        f.case("bucketize", f.ints(3, 4, layout="transposed"), torch.tensor([-2, 0, 3]), right=right)
        f.case("bucketize", f.uniform(5, dtype=f64), edges.to(f64), right=right, out_int32=True, grad=False)
        f.case("bucketize", 0.5, edges, right=right, grad=False)
    f.case("searchsorted", edges, values[:5], side="right", grad=False)
    shuffled = torch.tensor([2.0, -1.0, 0.5, 0.0])
    f.case("searchsorted", shuffled, values[:5], sorter=shuffled.argsort(), grad=False)
    rows = f.distinct(2, 5)
    f.case("searchsorted", rows, f.distinct(2, 3), sorter=rows.argsort(dim=1), right=True, grad=False)


def counting(f):
    f.case("bincount", f.ints(12, lo=0, hi=5))
    f.case("bincount", f.ints(7, lo=0, hi=3, dtype=i32), minlength=6)
    f.case("bincount", f.ints(6, lo=0, hi=4), f.uniform(6), grad=False)
    f.case("bincount", f.ints(6, lo=0, hi=4), f.uniform(6, dtype=f64), minlength=2, grad=False)
    f.case("bincount", f.ints(6, lo=0, hi=4, layout="strided"), f.ints(6), grad=False)
    f.case("bincount", f.ints(0), minlength=3)
    f.case("bincount", f.ints(5, lo=0, hi=4, dtype=u8))
    f.case("bincount", f.ints(5, lo=0, hi=4, dtype=i8))
    f.case("histc", f.uniform(20), bins=5, min=-2, max=2)
    f.case("histc", f.uniform(20, dtype=f64), bins=4)
    f.case("histc", f.uniform(4, 5, layout="transposed"), bins=3, min=-0.5, max=0.5)
    f.case("histc", torch.tensor([0.0, 1.0, 2.0, 2.0, 3.0]), bins=3, min=0, max=3)
    f.case("histc", torch.tensor([1.0, 1.0]), bins=3)
