"""Times the ops of the Python front on a GPU, one by one, at three sizes, in float32 and bfloat16. The same file runs under PyTorch and, by
`python -m rushlight`, under Rushlight; `bench/gpu_ops` runs both and makes the table. Every line is `name size dtype microseconds`, or `failed` and why.
Usage: gpu_ops.py [WORD,WORD...] [--quick]. Only ops whose name has one of
the words; --quick: the middle size only."""

import sys
import time

import torch
import torch.nn.functional as F

WORDS = [word for word in sys.argv[1:] if not word.startswith("--")]
FILTERS = WORDS[0].split(",") if WORDS else [""]
#: Rows of matrices, and the number of columns, for small, middle and large problems.
SIZES = {"small": (64, 256), "middle": (2048, 1024), "large": (16384, 2048)}
if "--quick" in sys.argv:
    SIZES = {"middle": SIZES["middle"]}

UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac i0 isfinite isinf isnan lgamma log log10 log1p "
    "log2 logit neg positive rad2deg reciprocal relu round rsqrt sigmoid sign signbit sgn sin sinc sinh sqrt square tan tanh trunc logical_not clone t contiguous"
).split()
ACTIVATIONS = "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus softshrink softsign tanhshrink".split()
BINARY = (
    "add sub mul div true_divide floor_divide fmod remainder pow atan2 hypot maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or logical_xor copysign "
    "logaddexp logaddexp2 nextafter xlogy heaviside ldexp"
).split()
REDUCTIONS = "sum mean prod amax amin var std norm logsumexp argmax argmin all any count_nonzero nansum nanmean median cumsum cumprod cummax logcumsumexp sort argsort".split()

#: More expressions. Matrices x and y have the size's rows n and columns c; v is a vector of c, p positive, m boolean, q
#: a square of c; indices i are below n, labels j below c; `img` are images, `last` the same with channels last; k are
#: heads of 64, `wide` of 256.
EXPRESSIONS = {
    "addcmul": "torch.addcmul(x, x, y)", "addcdiv": "torch.addcdiv(x, y, p)", "lerp": "torch.lerp(x, y, 0.3)", "where": "torch.where(m, x, y)", "clamp": "x.clamp(-1, 1)",
    "masked_fill": "x.masked_fill(m, 0.0)", "masked_select": "x.masked_select(m)", "nonzero": "m.nonzero()", "dropout": "F.dropout(x, 0.1)", "glu": "F.glu(x)",
    "prelu": "F.prelu(x, v[:1])", "softmax": "x.softmax(-1)", "softmax columns": "x.softmax(0)", "log_softmax": "x.log_softmax(-1)", "layer_norm": "F.layer_norm(x, (c,), v, v)",
    "rms_norm": "F.rms_norm(x, (c,), v)", "transpose": "x.t().contiguous()", "cat": "torch.cat([x, y])", "cat columns": "torch.cat([x, y], 1)", "stack": "torch.stack([x, y])",
    "flip": "x.flip(1)", "roll": "x.roll(3, 0)", "repeat": "x.repeat(2, 1)", "tril": "x.tril()", "index_select": "x.index_select(0, i)", "gather": "x.gather(0, i[:, None].expand(-1, c))",
    "index": "x[i]", "index_add": "x.index_add(0, i, y)", "index_copy": "x.index_copy(0, i, y)", "scatter_add": "x.scatter_add(0, i[:, None].expand(-1, c), y)",
    "take_along_dim": "torch.take_along_dim(x, j[:, None], 1)", "topk 8": "x[:, :8].topk(2)", "topk": "x.topk(50)", "unique": "j.unique()", "bincount": "torch.bincount(j)",
    "unique inverse": "i.unique(return_inverse=True)", "searchsorted": "torch.searchsorted(v.sort().values.float(), x.float())", "histc": "x.float().histc(64)",
    "sum rows": "x.sum(1)", "sum columns": "x.sum(0)", "sum all": "x.sum()", "max values": "x.max(1).values", "kthvalue": "x.kthvalue(5).values", "matmul": "x @ x.t()",
    "linear": "F.linear(x, q)", "addmm": "torch.addmm(v, x, q)", "bmm": "torch.bmm(k[0], k[0].transpose(1, 2))", "einsum": "torch.einsum('ij,kj->ik', x, q)", "outer": "torch.outer(v, v)",
    "embedding": "F.embedding(i, x)", "embedding_bag": "F.embedding_bag(i.view(-1, 16), x)", "one_hot": "F.one_hot(j % 64, 64)", "cross_entropy": "F.cross_entropy(x, j)",
    "nll_loss": "F.nll_loss(x, j)", "mse_loss": "F.mse_loss(x, y)", "l1_loss": "F.l1_loss(x, y)", "smooth_l1_loss": "F.smooth_l1_loss(x, y)",
    "bce_with_logits": "F.binary_cross_entropy_with_logits(x, m.to(x.dtype))", "kl_div": "F.kl_div(x, p, reduction='batchmean')", "cosine_similarity": "F.cosine_similarity(x, y)",
    "normalize": "F.normalize(x)", "cdist": "torch.cdist(x[:256].float(), y[:256].float())", "conv2d": "F.conv2d(img, filters, padding=1)", "conv2d last": "F.conv2d(last, filters, padding=1)",
    "depthwise": "F.conv2d(img, taps, padding=3, groups=96)", "depthwise last": "F.conv2d(last, taps, padding=3, groups=96)", "conv_transpose2d": "F.conv_transpose2d(img, filters)",
    "max_pool2d": "F.max_pool2d(img, 2)", "avg_pool2d": "F.avg_pool2d(img, 2)", "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(img, 1)", "interpolate": "F.interpolate(img.float(), scale_factor=2.0)",
    "batch_norm": "F.batch_norm(img, mean, mean + 1, training=True)", "group_norm": "F.group_norm(img, 8)", "pad": "F.pad(img, (1, 1, 1, 1))", "unfold": "F.unfold(img[:2], 3)",
    "attention": "F.scaled_dot_product_attention(k, k, k)", "attention causal": "F.scaled_dot_product_attention(k, k, k, is_causal=True)",
    "attention dropout": "F.scaled_dot_product_attention(k, k, k, dropout_p=0.1)", "attention mask": "F.scaled_dot_product_attention(k, k, k, attn_mask=seen)",
    "attention bias": "F.scaled_dot_product_attention(k, k, k, attn_mask=bias)", "attention 256": "F.scaled_dot_product_attention(wide, wide, wide, is_causal=True)",
    "ctc_loss": "F.ctc_loss(paths, tok[:, :50] % 31 + 1, lengths, labels)", "randn": "torch.randn_like(x)", "rand": "torch.rand_like(x)", "bernoulli": "torch.bernoulli(p.clamp(max=1))",
    "multinomial": "torch.multinomial(p[:64].float(), 4, True)", "randperm": "torch.randperm(n, device='cuda')", "arange": "torch.arange(n, device='cuda')", "zeros": "torch.zeros_like(x)",
    "svd": "torch.linalg.svd(q[:128, :128].float())", "cholesky": "torch.linalg.cholesky(q[:128, :128].float() @ q[:128, :128].float().t() + 128 * torch.eye(128, device='cuda'))",
    "fft": "torch.fft.fft(x[:64].float())", "to": "x.to(torch.float16)",
}
#: Names whose backward pass is timed with them.
BACKWARD = {
    *"relu gelu silu sigmoid tanh exp add mul div softmax log_softmax layer_norm rms_norm sum mean cumsum sort matmul linear addmm conv2d depthwise max_pool2d".split(),
    *"avg_pool2d batch_norm group_norm embedding embedding_bag cross_entropy mse_loss attention index_select gather cat dropout ctc_loss".split(),
    *("conv2d last", "depthwise last", "attention causal", "attention dropout", "attention bias", "attention 256"),
}


def operands(rows, columns, dtype):
    torch.manual_seed(0)
    cuda = {"device": "cuda"}
    new = lambda *shape: torch.randn(*shape, **cuda).to(dtype)
    images = max(2, rows // 256)
    img = new(images, 96, 28, 28)
    made = {
        "x": new(rows, columns), "y": new(rows, columns), "v": new(columns), "q": new(columns, columns), "p": new(rows, columns).abs() + 0.1,
        "i": torch.randint(0, rows, (rows,), **cuda), "j": torch.randint(0, columns, (rows,), **cuda), "n": rows, "c": columns, "img": img,
        "last": img.contiguous(memory_format=torch.channels_last), "filters": new(96, 96, 3, 3), "taps": new(96, 1, 7, 7), "mean": torch.zeros(96, **cuda),
        "k": new(4, 16, 1024, 64), "wide": new(2, 8, 1024, 256), "tok": torch.randint(0, 32, (8, 1024), **cuda), "paths": torch.randn(400, 8, 32, **cuda).log_softmax(-1),
        "lengths": torch.full((8,), 400), "labels": torch.full((8,), 50),
    }
    made["m"] = made["x"] > 0
    made["seen"] = torch.rand(1024, 1024, **cuda) > 0.2
    made["bias"] = new(1, 16, 1024, 1024)
    return made


def microseconds(call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(10):
            call()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / 10)
    return best * 1e6


def cases():
    for name in UNARY:
        yield name, f"torch.{name}(x)" if name not in ("contiguous",) else "x.contiguous()"
    for name in ACTIVATIONS:
        yield name, f"F.{name}(x)"
    for name in BINARY:
        yield name, f"torch.{name}(x, y)"
        yield f"{name} broadcast", f"torch.{name}(x, v)"
    for name in REDUCTIONS:
        yield name, f"torch.{name}(x, dim=1)"
    yield from EXPRESSIONS.items()


def main():
    for size, (rows, columns) in SIZES.items():
        for dtype in (torch.float32, torch.bfloat16):
            names = operands(rows, columns, dtype)
            for name, text in cases():
                if not any(word in name for word in FILTERS):
                    continue
                code = compile(text, name, "eval")
                label = f"{name.replace(' ', '_')} {size} {str(dtype).split('.')[-1]}"
                try:
                    print(label, f"{microseconds(lambda: eval(code, globals(), names)):.2f}", flush=True)
                except Exception as e:
                    print(label, "failed", str(e).splitlines()[0][:120] if str(e) else type(e).__name__, flush=True)
                    continue
                if name not in BACKWARD:
                    continue
                leaves = {key: value.detach().requires_grad_() for key, value in names.items() if isinstance(value, torch.Tensor) and value.is_floating_point() and key != "mean"}
                held = {**names, **leaves}

                def both():
                    for leaf in leaves.values():
                        leaf.grad = None
                    made = eval(code, globals(), held)
                    (made if isinstance(made, torch.Tensor) else made[0]).float().sum().backward()

                label = f"{name.replace(' ', '_')}_backward {size} {str(dtype).split('.')[-1]}"
                try:
                    print(label, f"{microseconds(both):.2f}", flush=True)
                except Exception as e:
                    print(label, "failed", str(e).splitlines()[0][:120] if str(e) else type(e).__name__, flush=True)


main()
