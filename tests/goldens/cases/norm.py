"""Softmax and normalisation layers."""

import math

import torch

from family import bf16, f16, f32, f64


def build(f):
    softmaxes(f)
    layer_norms(f)
    batch_norms(f)
    group_and_instance(f)
    directions(f)


def softmaxes(f):
    for op in ("softmax", "log_softmax", "softmin"):
        draw = lambda *shape, **kw: f.uniform(*shape, lo=-4, hi=4, **kw)
        f.case(op, draw(3, 5), dim=1)
        f.case(op, draw(3, 5), dim=0)
        f.case(op, draw(2, 37), dim=-1)
        f.case(op, draw(4, 3, layout="transposed"), dim=1)
        f.case(op, draw(2, 3, 4, layout="strided"), dim=1)
        f.case(op, draw(2, 3, 4, dtype=f64, layout="reversed"), dim=2)
        f.case(op, draw(3, 4, dtype=f64, layout="expanded"), dim=0)
        f.case(op, draw(), dim=0)
        f.case(op, draw(0, 3), dim=1)
        f.case(op, draw(3, 6, dtype=f16), dim=1)
        f.case(op, draw(3, 6, dtype=bf16), dim=1)
        f.case(op, draw(3, 4), dim=1, dtype=f64)
        f.case(op, f.ints(3, 4), dim=1, dtype=f32)
        f.case(op, torch.tensor([[1000.0, 999.0, -1000.0], [0.0, -math.inf, 1.0]]) * (-1 if op == "softmin" else 1),
               dim=1)
        f.case(op, torch.tensor([[-math.inf, -math.inf], [math.inf, 0.0], [math.nan, 1.0]]), dim=1, grad=False)


def layer_norms(f):
    f.case("layer_norm", f.uniform(3, 5), [5])
    f.case("layer_norm", f.uniform(3, 5), [5], f.uniform(5), f.uniform(5))
    f.case("layer_norm", f.uniform(2, 33), [33], f.uniform(33), f.uniform(33))
    f.case("layer_norm", f.uniform(2, 3, 4), [3, 4], f.uniform(3, 4), f.uniform(3, 4), eps=1e-3)
    f.case("layer_norm", f.uniform(4, 3, layout="transposed"), [3], f.uniform(3), None)
    f.case("layer_norm", f.uniform(2, 3, 4, dtype=f64, layout="strided"), [4],
           f.uniform(4, dtype=f64, layout="strided"), f.uniform(4, dtype=f64))
    f.case("layer_norm", f.uniform(3, 4, dtype=f64, layout="expanded"), [4], f.uniform(4, dtype=f64),
           f.uniform(4, dtype=f64))
    f.case("layer_norm", f.uniform(3, 8, dtype=bf16), [8], f.uniform(8, dtype=bf16), f.uniform(8, dtype=bf16))
    f.case("layer_norm", f.uniform(3, 8, dtype=f16), [8], f.uniform(8, dtype=f16), f.uniform(8, dtype=f16))
    f.case("layer_norm", torch.full((2, 4), 3.0), [4], f.uniform(4), f.uniform(4), grad=False)
    f.case("rms_norm", f.uniform(3, 5), [5])
    f.case("rms_norm", f.uniform(3, 5), [5], f.uniform(5))
    f.case("rms_norm", f.uniform(2, 3, 4), [3, 4], f.uniform(3, 4), eps=1e-3)
    f.case("rms_norm", f.uniform(4, 3, layout="transposed"), [3], f.uniform(3), eps=1e-6)
    f.case("rms_norm", f.uniform(2, 3, 4, dtype=f64, layout="strided"), [4], f.uniform(4, dtype=f64))
    f.case("rms_norm", f.uniform(2, 33), [33], f.uniform(33), eps=1e-5)
    f.case("rms_norm", f.uniform(3, 8, dtype=bf16), [8], f.uniform(8, dtype=bf16))


def batch_norms(f):
    for dtype, shape, layout in ((f32, (4, 3), "dense"), (f32, (3, 2, 5), "transposed"), (f64, (2, 3, 2, 2), "dense"),
                                 (f32, (2, 3, 3, 2), "strided"), (f32, (2, 4, 3, 2), "channels_last"),
                                 (f64, (2, 2, 2, 2, 2), "reversed")):
        c = shape[1]
        stats = lambda: (f.uniform(c, dtype=dtype), f.uniform(c, lo=0.5, hi=2, dtype=dtype))
        affine = lambda: (f.uniform(c, dtype=dtype), f.uniform(c, dtype=dtype))
        x = lambda: f.uniform(*shape, dtype=dtype, layout=layout)
        f.case("batch_norm", x(), *stats(), *affine(), training=True, momentum=0.1, constant=(1, 2))
        f.case("batch_norm", x(), *stats(), *affine(), training=False, constant=(1, 2))
        f.case("batch_norm", x(), None, None, *affine(), training=True, eps=1e-3)
        f.case("batch_norm", x(), *stats(), None, None, training=True, momentum=0.7, constant=(1, 2))
    f.case("batch_norm", f.uniform(4, 3), f.uniform(3), f.uniform(3, lo=0.5, hi=2), None, None, training=False,
           eps=0.1, constant=(1, 2))


def group_and_instance(f):
    for groups in (1, 2, 4):
        f.case("group_norm", f.uniform(2, 4, 3), groups, f.uniform(4), f.uniform(4))
        f.case("group_norm", f.uniform(2, 4, 2, 2, dtype=f64, layout="transposed"), groups, f.uniform(4, dtype=f64),
               None, eps=1e-3)
    f.case("group_norm", f.uniform(3, 12), 3)
    f.case("group_norm", f.uniform(2, 4, 3, 2, layout="channels_last"), 2, f.uniform(4), f.uniform(4))
    f.case("group_norm", f.uniform(2, 4, 3, layout="strided"), 2)
    f.case("group_norm", f.uniform(2, 4, 4, dtype=bf16), 2, f.uniform(4, dtype=bf16), f.uniform(4, dtype=bf16))
    f.case("instance_norm", f.uniform(2, 3, 5))
    f.case("instance_norm", f.uniform(2, 3, 4, 2, layout="transposed"), None, None, f.uniform(3), f.uniform(3))
    f.case("instance_norm", f.uniform(2, 3, 4, dtype=f64, layout="strided"), None, None, f.uniform(3, dtype=f64), None,
           eps=1e-2)
    f.case("instance_norm", f.uniform(2, 3, 4), f.uniform(3), f.uniform(3, lo=0.5, hi=2), f.uniform(3), f.uniform(3),
           use_input_stats=False, constant=(1, 2))


def directions(f):
    f.case("normalize", f.uniform(3, 5))
    f.case("normalize", f.uniform(3, 5), p=1.0, dim=0)
    f.case("normalize", f.distinct(3, 5), p=math.inf, dim=1)
    f.case("normalize", f.uniform(2, 3, 4, dtype=f64, layout="transposed"), p=3.0, dim=-1)
    f.case("normalize", f.uniform(4, 3, layout="strided"), dim=0, eps=0.5)
    f.case("normalize", torch.tensor([[0.0, 0.0], [3.0, 4.0]]), dim=1)
    f.case("normalize", f.uniform(3, 4, dtype=bf16), dim=1)
    f.case("cosine_similarity", f.uniform(3, 5), f.uniform(3, 5))
    f.case("cosine_similarity", f.uniform(3, 5), f.uniform(5), dim=1)
    f.case("cosine_similarity", f.uniform(3, 4, layout="transposed"), f.uniform(3, 4, layout="strided"), dim=0)
    f.case("cosine_similarity", f.uniform(2, 3, 4, dtype=f64), f.uniform(2, 1, 4, dtype=f64), dim=-1, eps=1e-4)
    f.case("cosine_similarity", torch.zeros(2, 3), f.uniform(2, 3), grad=False)
    f.case("cdist", f.uniform(3, 4), f.uniform(2, 4), p=2.0)
    f.case("cdist", f.uniform(2, 3, 2), f.uniform(2, 4, 2, layout="transposed"), p=2.0)
    f.case("cdist", f.uniform(1, 3, 2, dtype=f64, layout="strided"), f.uniform(2, 4, 2, dtype=f64))
    f.case("cdist", torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([[0.0, 1.0], [5.0, -1.0]]))
    f.case("cdist", f.uniform(0, 3), f.uniform(2, 3))
