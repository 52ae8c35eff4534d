"""Matrix products of every rank, einsum and linear layers."""

import torch

from family import bf16, f16, f64, i32

PRODUCTS = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((2, 3, 4), (4, 2)), ((3, 4), (2, 4, 2)),
            ((2, 3, 4), (2, 4, 2)), ((2, 1, 2, 3), (3, 3, 2)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((1, 1), (1, 1)),
            ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((17, 9), (9, 5)),
            ((35, 67), (67, 19))]

EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,kj->ik", (2, 3), (4, 3)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("i,j->ij", (3,), (4,)), ("i,i->", (3,), (3,)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->ji", (2, 3)),
    ("ij->", (2, 3)), ("ij->j", (2, 3)), ("bhqd,bhkd->bhqk", (1, 2, 3, 2), (1, 2, 4, 2)),
    ("...ij,...jk->...ik", (2, 2, 3), (3, 2)),
    ("...d,d->...", (2, 3, 4), (4,)), ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)), ("ij,jk", (2, 3), (3, 2)),
    ("ab,bc,cd,d->a", (2, 3), (3, 4), (4, 2), (2,)), ("i,jk,k,ij->", (2,), (3, 4), (4,), (2, 3)),
    ("...a,ab,...b->...", (2, 3), (3, 2), (1, 2)),
    ("bi,bj,bij->b", (2, 3), (2, 2), (2, 3, 2)), ("ij,ij->ij", (2, 3), (2, 3)), ("ba,a->b", (2, 3), (3,)),
]


def build(f):
    products(f)
    accumulating(f)
    contractions(f)
    layers(f)


def products(f):
    for left, right in PRODUCTS:
        f.case("matmul", f.uniform(*left), f.uniform(*right), tol=(2e-5, 2e-5))
        f.case("matmul", f.uniform(*left, dtype=f64), f.uniform(*right, dtype=f64))
    for a in ("dense", "transposed", "strided", "expanded"):
        for b in ("dense", "transposed", "sliced", "expanded_last"):
            f.case("matmul", f.uniform(3, 4, layout=a), f.uniform(4, 2, layout=b))
    f.case("matmul", f.uniform(2, 3, 4, layout="expanded"), f.uniform(2, 4, 2, layout="transposed"))
    f.case("matmul", f.ints(2, 3), f.ints(3, 2))
    f.case("matmul", f.ints(2, 2, 3, dtype=i32), f.ints(3, dtype=i32))
    f.case("mm", f.uniform(3, 4), f.uniform(4, 5))
    f.case("mm", f.uniform(3, 4, layout="transposed"), f.uniform(4, 2, layout="strided"))
    f.case("mm", f.uniform(2, 3, dtype=f64, layout="strided"), f.uniform(3, 3, dtype=f64, layout="transposed"))
    f.case("mm", f.ints(2, 3), f.ints(3, 2))
    f.case("bmm", f.uniform(2, 3, 4), f.uniform(2, 4, 2))
    f.case("bmm", f.uniform(2, 3, 4, layout="transposed"), f.uniform(2, 4, 3, layout="expanded"))
    f.case("bmm", f.uniform(3, 2, 2, dtype=f64, layout="strided"), f.uniform(3, 2, 3, dtype=f64, layout="reversed"))
    f.case("bmm", f.uniform(0, 2, 3), f.uniform(0, 3, 2))
    f.case("mv", f.uniform(3, 4), f.uniform(4))
    f.case("mv", f.uniform(4, 3, layout="transposed"), f.uniform(3, layout="strided"))
    f.case("mv", f.uniform(2, 3, dtype=f64, layout="expanded"), f.uniform(3, dtype=f64))
    f.case("dot", f.uniform(7), f.uniform(7))
    f.case("dot", f.uniform(5, dtype=f64, layout="strided"), f.uniform(5, dtype=f64, layout="sliced"))
    f.case("dot", f.ints(5), f.ints(5))
    f.case("dot", f.uniform(0), f.uniform(0))
    f.case("outer", f.uniform(3), f.uniform(4))
    f.case("outer", f.uniform(3, dtype=f64, layout="strided"), f.uniform(2, dtype=f64))
    f.case("outer", f.ints(3), f.uniform(2))
    for dtype in (f16, bf16):
        f.case("matmul", f.uniform(3, 8, dtype=dtype), f.uniform(8, 5, dtype=dtype))
        f.case("matmul", f.uniform(2, 3, 4, dtype=dtype, layout="transposed"),
               f.uniform(4, 3, dtype=dtype, layout="transposed"))
        f.case("mm", f.uniform(5, 33, dtype=dtype), f.uniform(33, 3, dtype=dtype))
        f.case("bmm", f.uniform(2, 3, 4, dtype=dtype), f.uniform(2, 4, 2, dtype=dtype))
        f.case("mv", f.uniform(3, 4, dtype=dtype), f.uniform(4, dtype=dtype))
        f.case("dot", f.uniform(6, dtype=dtype), f.uniform(6, dtype=dtype))
        f.case("outer", f.uniform(3, dtype=dtype), f.uniform(4, dtype=dtype))
        f.case("linear", f.uniform(3, 8, dtype=dtype), f.uniform(5, 8, dtype=dtype), f.uniform(5, dtype=dtype))


def accumulating(f):
    for kwargs in ({}, {"beta": 0.5, "alpha": 2.0}, {"beta": 0, "alpha": -1}, {"beta": 1.0, "alpha": 0.0}):
        f.case("addmm", f.uniform(3, 2), f.uniform(3, 4), f.uniform(4, 2), **kwargs)
        f.case("addmm", f.uniform(2), f.uniform(3, 4, layout="transposed"), f.uniform(4, 2, layout="strided"), **kwargs)
        f.case("addmv", f.uniform(3), f.uniform(3, 4, layout="transposed"), f.uniform(4), **kwargs)
        f.case("baddbmm", f.uniform(2, 3, 2), f.uniform(2, 3, 4), f.uniform(2, 4, 2, layout="transposed"), **kwargs)
        f.case("addbmm", f.uniform(3, 2), f.uniform(2, 3, 4), f.uniform(2, 4, 2, layout="transposed"), **kwargs)
    f.case("addmm", f.uniform(dtype=f64), f.uniform(2, 3, dtype=f64), f.uniform(3, 2, dtype=f64), beta=2)
    f.case("addmm", torch.full((2, 2), float("nan")), f.uniform(2, 3), f.uniform(3, 2), beta=0, grad=False)
    f.case("addmm", f.ints(2, 2), f.ints(2, 3), f.ints(3, 2), beta=2, alpha=-1)
    f.case("addmm", f.uniform(2, 2, dtype=bf16), f.uniform(2, 3, dtype=bf16), f.uniform(3, 2, dtype=bf16))
    f.case("addmv", f.uniform(1, dtype=f64), f.uniform(3, 2, dtype=f64), f.uniform(2, dtype=f64, layout="strided"),
           alpha=0.5)
    f.case("baddbmm", f.uniform(1, 1, 3, dtype=f64), f.uniform(2, 2, 3, dtype=f64), f.uniform(2, 3, 3, dtype=f64),
           beta=0.3)
    f.case("addbmm", f.uniform(1, 3, dtype=f64), f.uniform(2, 2, 3, dtype=f64), f.uniform(2, 3, 3, dtype=f64), beta=0.3)


def contractions(f):
    for equation, *shapes in EQUATIONS:
        f.case("einsum", equation, [f.uniform(*shape) for shape in shapes])
    f.case("einsum", "ij,jk->ki", [f.uniform(3, 2, dtype=f64, layout="transposed"),
                                   f.uniform(2, 3, dtype=f64, layout="strided")])
    f.case("einsum", "bij,bkj->bik", [f.uniform(2, 3, 2, dtype=f64, layout="expanded"), f.uniform(2, 2, 2, dtype=f64)])
    f.case("einsum", " i j , j -> i ", [f.uniform(2, 3), f.uniform(3)])
    f.case("einsum", "b...,b...->b", [f.uniform(2, 3, 2), f.uniform(2, 3, 2)])
    f.case("tensordot", f.uniform(2, 3, 4), f.uniform(3, 4, 2), dims=2)
    f.case("tensordot", f.uniform(2, 3), f.uniform(3, 2), dims=1)
    f.case("tensordot", f.uniform(2), f.uniform(3), dims=0)
    f.case("tensordot", f.uniform(2, 3, 4, dtype=f64, layout="transposed"), f.uniform(4, 2, dtype=f64),
           dims=[[0, 2], [1, 0]])
    f.case("tensordot", f.uniform(3, 2, layout="strided"), f.uniform(2, 3), dims=[[0], [-1]])


def layers(f):
    f.case("linear", f.uniform(2, 3), f.uniform(4, 3))
    f.case("linear", f.uniform(2, 3), f.uniform(4, 3), f.uniform(4))
    f.case("linear", f.uniform(3), f.uniform(4, 3), f.uniform(4))
    f.case("linear", f.uniform(2, 2, 3, layout="transposed"), f.uniform(4, 3, layout="transposed"), f.uniform(4))
    f.case("linear", f.uniform(2, 2, 3, dtype=f64, layout="strided"), f.uniform(2, 3, dtype=f64),
           f.uniform(2, dtype=f64, layout="strided"))
    f.case("linear", f.uniform(0, 3), f.uniform(4, 3), f.uniform(4))
    f.case("linear", f.uniform(3, 4, layout="expanded"), f.uniform(1, 4), f.uniform(1))
    f.case("bilinear", f.uniform(2, 3), f.uniform(2, 4), f.uniform(2, 3, 4))
    f.case("bilinear", f.uniform(2, 3), f.uniform(2, 4), f.uniform(2, 3, 4), f.uniform(2))
    f.case("bilinear", f.uniform(2, 2, 3, dtype=f64, layout="transposed"), f.uniform(2, 2, 2, dtype=f64),
           f.uniform(3, 3, 2, dtype=f64), f.uniform(3, dtype=f64))
