"""Scaled dot-product attention."""

import math

import torch

from family import bf16, f16, f32, f64


def build(f):
    op = "scaled_dot_product_attention"
    for dtype in (f32, f64):
        heads = lambda b, h, n, d, **kw: f.uniform(b, h, n, d, dtype=dtype, **kw)
        triple = lambda b=2, h=2, n=4, m=4, d=3, e=3: (heads(b, h, n, d), heads(b, h, m, d), heads(b, h, m, e))
        f.case(op, *triple())
        f.case(op, *triple(n=3, m=5))
        f.case(op, *triple(d=2, e=4))
        f.case(op, *triple(), is_causal=True)
        f.case(op, *triple(n=3, m=5), is_causal=True)
        f.case(op, *triple(n=5, m=3), is_causal=True)
        f.case(op, *triple(), scale=0.3)
        f.case(op, *triple(n=1, m=6), is_causal=False)
        f.case(op, *triple(b=1, h=1, n=19, m=21, d=8, e=8))
        f.case(op, *triple(b=1, h=1, n=9, m=9, d=4, e=4), is_causal=True, scale=1.0)
        keep = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)
        f.case(op, *triple(n=3, m=5), keep)
        f.case(op, *triple(n=3, m=5), f.bools(2, 2, 3, 5).logical_or(torch.eye(3, 5, dtype=torch.bool)))
        f.case(op, *triple(n=3, m=5), f.uniform(3, 5, dtype=dtype), constant=(3,))
        f.case(op, *triple(n=3, m=5), f.uniform(2, 1, 3, 5, dtype=dtype))
        f.case(op, *triple(n=3, m=5), torch.zeros(3, 5, dtype=dtype).masked_fill(~keep, -math.inf), scale=0.5,
               constant=(3,))
        f.case(op, *triple(n=2, m=3), torch.tensor([[True, True, False], [False, False, False]]))
        layouts = [heads(2, 4, 3, 2).transpose(1, 2) for _ in range(3)]
        f.case(op, *layouts)
        f.case(op, heads(1, 2, 3, 4, layout="strided"), heads(1, 2, 5, 4, layout="transposed"),
               heads(1, 2, 5, 4, layout="sliced"))
        f.case(op, heads(1, 4, 3, 2), heads(1, 2, 3, 2), heads(1, 2, 3, 2), enable_gqa=True)
        f.case(op, heads(2, 6, 3, 2), heads(2, 2, 4, 2), heads(2, 2, 4, 3), enable_gqa=True, is_causal=True)
        f.case(op, f.uniform(2, 3, 4, dtype=dtype), f.uniform(2, 5, 4, dtype=dtype), f.uniform(2, 5, 2, dtype=dtype))
    for dtype in (f16, bf16):
        f.case(op, *(f.uniform(1, 2, 4, 8, dtype=dtype) for _ in range(3)))
        f.case(op, *(f.uniform(1, 2, 4, 8, dtype=dtype) for _ in range(3)), is_causal=True)
