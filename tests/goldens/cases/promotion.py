"""The table of torch.result_type: every pair of dtypes as tensors, zero-dim tensors and Python numbers."""

import json

import torch

from family import bf16, boolean, f16, f32, f64, i8, i16, i32, i64, u8

DTYPES = [f32, f64, f16, bf16, i64, i32, i16, i8, u8, boolean]
NUMBERS = {"bool": True, "int": 1, "float": 1.0}


def operands():
    for dtype in DTYPES:
        name = str(dtype).split(".")[1]
        yield {"kind": "tensor", "type": name}, torch.ones(2, dtype=dtype)
        yield {"kind": "zero-dim", "type": name}, torch.ones((), dtype=dtype)
    for name, number in NUMBERS.items():
        yield {"kind": "number", "type": name}, number


def table():
    rows = []
    for a, left in operands():
        for b, right in operands():
            result = str(torch.result_type(left, right)).split(".")[1]
            rows.append(json.dumps({"a": a, "b": b, "result": result}))
    return "[\n" + ",\n".join(rows) + "\n]\n"
