"""PyTorch's side of the single ops of `src/ops.rs`."""

import torch
import torch.nn.functional as F

MILLION = 1 << 20


def prepare(op):
    def pair(a, b, f):
        return lambda: f(a, b)

    def indices(high, n):
        return torch.randint(0, high, (n,))

    def index_add(shape, dim, count):
        source = list(shape)
        source[dim] = count
        x, v, i = torch.randn(shape), torch.randn(source), indices(shape[dim], count)
        return lambda: x.index_add_(dim, i, v)

    def symmetric(n):
        x = torch.randn(n, n)
        return x + x.T

    def symmetric_batch(n):
        x = torch.randn(64, n, n)
        return x + x.mT

    def resize(shape, mode, size, backward=False):
        x = torch.randn(shape, requires_grad=backward)
        if not backward:
            return lambda: F.interpolate(x, size, mode=mode)
        dy = torch.randn_like(F.interpolate(x, size, mode=mode))
        return lambda: torch.autograd.grad(F.interpolate(x, size, mode=mode), x, dy)

    def cdist_backward():
        a, b, dy = torch.randn(500, 64, requires_grad=True), torch.randn(500, 64, requires_grad=True), torch.randn(500, 500)
        return lambda: torch.autograd.grad(torch.cdist(a, b), (a, b), dy)

    def scatter(f):
        x, i, v = torch.randn(100_000), indices(100_000, MILLION), torch.randn(MILLION)
        return lambda: f(x, i, v)

    def product(dtype):
        return pair(torch.randint(0, 100, (256, 256)).to(dtype), torch.randint(0, 100, (256, 256)).to(dtype), torch.matmul)

    def one(shape, f):
        x = torch.randn(shape)
        return lambda: f(x)

    def of(x, f):
        return lambda: f(x)

    def pairs():
        x, i, j = torch.randn(1000, 1000), indices(1000, 100_000), indices(1000, 100_000)
        return lambda: x[i, j]

    square = (1024, 1024)
    cases = {
        "cdist": lambda: pair(torch.randn(1000, 64), torch.randn(1000, 64), torch.cdist),
        "cdist_batch": lambda: pair(torch.randn(32, 100, 16), torch.randn(32, 100, 16), torch.cdist),
        "cdist_few": lambda: pair(torch.randn(20, 64), torch.randn(24, 64), torch.cdist),
        "cdist_1": lambda: pair(torch.randn(500, 64), torch.randn(500, 64), lambda a, b: torch.cdist(a, b, 1.0)),
        "cdist_backward": cdist_backward,
        "index_add_1d": lambda: index_add((100_000,), 0, MILLION),
        "index_add_rows": lambda: index_add((10_000, 64), 0, 20_000),
        "index_add_columns": lambda: index_add((64, 10_000), 1, 20_000),
        "index_put_add": lambda: scatter(lambda x, i, v: x.index_put_((i,), v, accumulate=True)),
        "scatter_add_1d": lambda: scatter(lambda x, i, v: x.scatter_add_(0, i, v)),
        "histc": lambda: one(MILLION, lambda x: torch.histc(x, 100, -3, 3)),
        "bincount": lambda: of(indices(1000, MILLION), torch.bincount),
        "bincount_weights": lambda: pair(indices(1000, MILLION), torch.randn(MILLION), torch.bincount),
        "roll_flat": lambda: one(square, lambda x: x.roll(777)),
        "roll_rows": lambda: one(square, lambda x: x.roll(100, 0)),
        "roll_columns": lambda: one(square, lambda x: x.roll(100, 1)),
        "roll_both": lambda: one((64, 96, 28, 28), lambda x: x.roll((3, 3), (2, 3))),
        "flip_rows": lambda: one(square, lambda x: x.flip(0)),
        "flip_columns": lambda: one(square, lambda x: x.flip(1)),
        "flip_both": lambda: one(square, lambda x: x.flip(0, 1)),
        "flip_image": lambda: one((64, 3, 64, 64), lambda x: x.flip(3)),
        "eigh_64": lambda: of(symmetric(64), torch.linalg.eigh),
        "eigh_256": lambda: of(symmetric(256), torch.linalg.eigh),
        "eigh_512": lambda: of(symmetric(512), torch.linalg.eigh),
        "eigvalsh_256": lambda: of(symmetric(256), torch.linalg.eigvalsh),
        "svd_64": lambda: one((64, 64), lambda x: torch.linalg.svd(x, full_matrices=False)),
        "svd_256": lambda: one((256, 256), lambda x: torch.linalg.svd(x, full_matrices=False)),
        "svd_tall": lambda: one((1000, 100), lambda x: torch.linalg.svd(x, full_matrices=False)),
        "svdvals_256": lambda: one((256, 256), torch.linalg.svdvals),
        "eigh_64x8": lambda: of(symmetric_batch(8), torch.linalg.eigh),
        "eigh_64x16": lambda: of(symmetric_batch(16), torch.linalg.eigh),
        "eigvalsh_64x8": lambda: of(symmetric_batch(8), torch.linalg.eigvalsh),
        "eigvalsh_64x16": lambda: of(symmetric_batch(16), torch.linalg.eigvalsh),
        "svd_64x8": lambda: one((64, 8, 8), torch.linalg.svd),
        "svd_64x16": lambda: one((64, 16, 16), torch.linalg.svd),
        "svdvals_64x8": lambda: one((64, 8, 8), torch.linalg.svdvals),
        "svdvals_64x16": lambda: one((64, 16, 16), torch.linalg.svdvals),
        "bilinear_layer": lambda: pair(torch.randn(128, 64), torch.randn(128, 64), lambda a, b, w=torch.randn(64, 64, 64): F.bilinear(a, b, w)),
        "bilinear": lambda: resize((8, 32, 64, 64), "bilinear", (128, 128)),
        "bilinear_down": lambda: resize((8, 3, 224, 224), "bilinear", (96, 96)),
        "bilinear_backward": lambda: resize((8, 32, 64, 64), "bilinear", (128, 128), True),
        "bicubic": lambda: resize((8, 32, 64, 64), "bicubic", (128, 128)),
        "bicubic_backward": lambda: resize((8, 32, 64, 64), "bicubic", (128, 128), True),
        "nearest": lambda: resize((8, 32, 64, 64), "nearest", (128, 128)),
        "trilinear": lambda: resize((2, 8, 16, 32, 32), "trilinear", (32, 64, 64)),
        "median": lambda: one(MILLION, torch.median),
        "median_rows": lambda: one((1000, 1000), lambda x: x.median(1)),
        "median_columns": lambda: one((1000, 1000), lambda x: x.median(0)),
        "median_i64": lambda: of(indices(1 << 40, MILLION), torch.median),
        "nanmedian": lambda: one((1000, 1000), lambda x: x.nanmedian(1)),
        "kthvalue": lambda: one(MILLION, lambda x: x.kthvalue(1000)),
        "kthvalue_rows": lambda: one((1000, 1000), lambda x: x.kthvalue(500, 1)),
        "quantile": lambda: one(MILLION, lambda x: torch.quantile(x, 0.9)),
        "select": lambda: one((1000, 64), lambda x: x[500]),
        "take_1m": lambda: pair(torch.randn(MILLION), indices(MILLION, MILLION), lambda x, i: x[i]),
        "take_rows": lambda: pair(torch.randn(10_000, 64), indices(10_000, 20_000), lambda x, i: x[i]),
        "take_pairs": pairs,
        "randperm_1m": lambda: lambda: torch.randperm(MILLION),
        "randperm_1k": lambda: lambda: torch.randperm(1000),
        "matmul_i64": lambda: product(torch.int64),
        "matmul_i32": lambda: product(torch.int32),
        "matmul_u8": lambda: product(torch.uint8),
        "reflect": lambda: one((16, 32, 64, 64), lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect")),
    }
    return cases[op]()
