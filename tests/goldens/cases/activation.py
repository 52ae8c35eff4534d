"""Activation functions."""

import math

import torch

from cases.pointwise import EVERYDAY_SPECIALS, common_cases
from family import bf16, f16, f64

PLAIN = ["relu", "relu6", "gelu", "silu", "mish", "softplus", "softsign", "elu", "selu", "celu", "leaky_relu",
         "hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softshrink", "tanhshrink", "logsigmoid"]

VARIANTS = {
    "gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
    "softplus": [{"beta": 2.0}, {"beta": 0.5, "threshold": 2.0}, {"beta": 3, "threshold": 1}],
    "elu": [{"alpha": 0.3}, {"alpha": 2.0}],
    "celu": [{"alpha": 0.3}, {"alpha": 2.0}],
    "leaky_relu": [{"negative_slope": 0.2}, {"negative_slope": 1.0}],
    "hardtanh": [{"min_val": -0.5, "max_val": 2.0}],
    "hardshrink": [{"lambd": 1.2}, {"lambd": 0.0}],
    "softshrink": [{"lambd": 1.2}, {"lambd": 0.0}],
}

# PyTorch keeps constants of these (1/6, 1/alpha) in single precision whatever the type.
SINGLE_PRECISION = {"hardsigmoid", "celu"}

# Points where the derivative is a matter of convention.
KINKS = {
    "relu": [0.0, -0.0, 1.0], "relu6": [0.0, 6.0, 3.0], "elu": [0.0, -0.0], "selu": [0.0], "celu": [0.0],
    "leaky_relu": [0.0, -0.0], "hardswish": [-3.0, 3.0, 0.0], "hardsigmoid": [-3.0, 3.0, 0.0],
    "hardtanh": [-1.0, 1.0, 0.0], "hardshrink": [0.5, -0.5, 0.0], "softshrink": [0.5, -0.5, 0.0],
    "softplus": [20.0, 20.5, 19.5, -40.0], "softsign": [0.0], "tanhshrink": [0.0], "gelu": [0.0, 12.0, -12.0],
    "silu": [0.0, 100.0, -100.0], "mish": [0.0, 50.0, -50.0], "logsigmoid": [0.0, 100.0, -100.0],
}


def build(f):
    for op in PLAIN:
        tol64 = (1e-6, 1e-8) if op in SINGLE_PRECISION else None
        common_cases(f, op, -4, 4, tol64)
        # PyTorch's gelu answers nan at infinity in f32 and the limit in f64: no golden for that.
        specials = [x for x in EVERYDAY_SPECIALS if op != "gelu" or not math.isinf(x)]
        f.case(op, torch.tensor(specials), grad=False)
        f.case(op, torch.tensor(KINKS[op]))
        f.case(op, torch.tensor(KINKS[op], dtype=f64), tol=tol64)
        for kwargs in VARIANTS.get(op, []):
            f.case(op, f.uniform(3, 7, lo=-4, hi=4), **kwargs)
            f.case(op, f.uniform(2, 5, lo=-4, hi=4, dtype=f64, layout="strided"), tol=tol64, **kwargs)
            f.case(op, f.uniform(9, lo=-4, hi=4, dtype=bf16), **kwargs)
    for op in ("relu", "relu6"):
        f.case(op, f.ints(7, lo=-9, hi=10))

    for limits in ((0.5, -2.0), (0.0, 0.0), (-1.0, 3.0)):
        f.case("threshold", f.uniform(3, 5), *limits)
        f.case("threshold", f.uniform(2, 3, 2, dtype=f64, layout="transposed"), *limits)
    f.case("threshold", torch.tensor([0.5, 0.6, 0.4]), 0.5, 9.0)
    f.case("threshold", f.uniform(5, dtype=f16), 0.5, -2.0)

    f.case("prelu", f.uniform(3, 4), f.uniform(1))
    f.case("prelu", f.uniform(2, 3, 4), f.uniform(3))
    f.case("prelu", f.uniform(2, 3, 2, 2, dtype=f64, layout="transposed"), f.uniform(3, dtype=f64))
    f.case("prelu", f.uniform(5, layout="strided"), f.uniform(1))
    f.case("prelu", torch.tensor([0.0, -0.0, 1.0, -1.0]), torch.tensor([0.25]))
    f.case("prelu", f.uniform(4, 3, dtype=bf16), f.uniform(3, dtype=bf16))
