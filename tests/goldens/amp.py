"""The dtype of every op's result under `torch.autocast("cpu", bfloat16)`, from bfloat16 and from float32 inputs: data/amp.json.

    python tests/goldens/amp.py            writes it
    python tests/goldens/amp.py --check    compares
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F

OUT = pathlib.Path(__file__).parent / "data" / "amp.json"
CLASSES = torch.tensor([0, 1, 2])

# `x` and `y` are 3x3 and positive, `b` is a batch of them, `i` an image, `v` a vector.
CASES = {
    "matmul": lambda x, y, b, i, v: x @ y,
    "matmul_vectors": lambda x, y, b, i, v: torch.matmul(v, v),
    "mm": lambda x, y, b, i, v: x.mm(y),
    "bmm": lambda x, y, b, i, v: b.bmm(b),
    "addmm": lambda x, y, b, i, v: torch.addmm(x, x, y),
    "baddbmm": lambda x, y, b, i, v: torch.baddbmm(b, b, b),
    "linear": lambda x, y, b, i, v: F.linear(x, y, v),
    "einsum": lambda x, y, b, i, v: torch.einsum("ij,jk->ik", x, y),
    "conv2d": lambda x, y, b, i, v: F.conv2d(i, i),
    "conv_transpose2d": lambda x, y, b, i, v: F.conv_transpose2d(i, i),
    "attention": lambda x, y, b, i, v: F.scaled_dot_product_attention(b, b, b),
    "mse_loss": lambda x, y, b, i, v: F.mse_loss(x, y),
    "l1_loss": lambda x, y, b, i, v: F.l1_loss(x, y),
    "smooth_l1_loss": lambda x, y, b, i, v: F.smooth_l1_loss(x, y),
    "huber_loss": lambda x, y, b, i, v: F.huber_loss(x, y),
    "cross_entropy": lambda x, y, b, i, v: F.cross_entropy(x, CLASSES),
    "cross_entropy_soft": lambda x, y, b, i, v: F.cross_entropy(x, y),
    "nll_loss": lambda x, y, b, i, v: F.nll_loss(x, CLASSES),
    "kl_div": lambda x, y, b, i, v: F.kl_div(x, y, reduction="sum"),
    "bce": lambda x, y, b, i, v: F.binary_cross_entropy(x, y),
    "bce_with_logits": lambda x, y, b, i, v: F.binary_cross_entropy_with_logits(x, y),
    "soft_margin_loss": lambda x, y, b, i, v: F.soft_margin_loss(x, y),
    "prod": lambda x, y, b, i, v: x.prod(),
    "cdist": lambda x, y, b, i, v: torch.cdist(x, y),
    "inv": lambda x, y, b, i, v: torch.linalg.inv(x),
    "reflect_pad": lambda x, y, b, i, v: F.pad(i, (1, 1, 1, 1), mode="reflect"),
    "constant_pad": lambda x, y, b, i, v: F.pad(i, (1, 1, 1, 1)),
    "add": lambda x, y, b, i, v: x + y,
    "add_mixed": lambda x, y, b, i, v: x.float() + y.bfloat16(),
    "exp": lambda x, y, b, i, v: x.exp(),
    "softmax": lambda x, y, b, i, v: x.softmax(-1),
    "layer_norm": lambda x, y, b, i, v: F.layer_norm(x, (3,)),
    "gelu": lambda x, y, b, i, v: F.gelu(x),
    "sum": lambda x, y, b, i, v: x.sum(),
    "cat_mixed": lambda x, y, b, i, v: torch.cat([x.float(), y.bfloat16()]),
}


def main():
    answers = {}
    x = torch.tensor([[0.9, 0.1, 0.2], [0.3, 0.8, 0.1], [0.2, 0.3, 0.7]])
    for dtype in (torch.bfloat16, torch.float32):
        inputs = [t.to(dtype) for t in (x, x.flip(0), x.expand(2, 3, 3), x.expand(1, 1, 3, 3), x[0])]
        for name, case in CASES.items():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                answers[f"{name} {str(dtype)[6:]}"] = str(case(*inputs).dtype)[6:]
    text = json.dumps(answers, indent=1) + "\n"
    if "--check" in sys.argv:
        sys.exit(None if OUT.read_text() == text else "amp.json differs from what this PyTorch says")
    OUT.write_text(text)


main()
