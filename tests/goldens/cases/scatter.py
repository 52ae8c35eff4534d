"""Writing by index: scatter and its reductions, index_add, index_copy, index_fill, index_put, masked_scatter."""

import torch

from family import bf16, f16, f64, i32, i64


def permutation_rows(f, rows, columns, limit):
    """An index without repeats along dim 1, where repeated writes would leave the winner undefined."""
    return torch.stack([torch.randperm(limit, generator=f.generator)[:columns] for _ in range(rows)])


def build(f):
    f.case("scatter", f.uniform(3, 5), 1, permutation_rows(f, 3, 4, 5), f.uniform(3, 4))
    f.case("scatter", f.uniform(5, 3), 0, permutation_rows(f, 3, 4, 5).t(), f.uniform(4, 3))
    f.case("scatter", f.uniform(3, 5, dtype=f64, layout="transposed"), -1, permutation_rows(f, 2, 3, 5),
           f.uniform(2, 3, dtype=f64, layout="strided"))
    # PyTorch differentiates only where index and source have one shape; the forward takes a larger source.
    f.case("scatter", f.uniform(3, 5), -1, permutation_rows(f, 2, 3, 5), f.uniform(3, 4), grad=False)
    f.case("scatter", f.uniform(3, 5), 1, f.ints(3, 4, lo=0, hi=5), 2.5)
    f.case("scatter", f.uniform(3, 5, layout="expanded"), 1, f.ints(2, 3, lo=0, hi=5), -1)
    f.case("scatter", f.ints(3, 5), 1, permutation_rows(f, 3, 2, 5), f.ints(3, 2))
    f.case("scatter", f.uniform(3, 5, dtype=bf16), 1, permutation_rows(f, 3, 2, 5), f.uniform(3, 2, dtype=bf16))
    f.case("scatter", f.uniform(4), 0, torch.zeros(0, dtype=i64), f.uniform(0))
    for dim in (0, 1):
        f.case("scatter_add", f.uniform(4, 5), dim, f.ints(3, 5, lo=0, hi=4), f.uniform(3, 5))
        f.case("scatter_add", f.uniform(4, 4, dtype=f64, layout="transposed"), dim,
               f.ints(3, 2, lo=0, hi=4, layout="transposed"), f.uniform(3, 2, dtype=f64, layout="strided"))
    f.case("scatter_add", f.uniform(2, 3, 4), 2, f.ints(2, 2, 6, lo=0, hi=4), f.uniform(2, 2, 6))
    f.case("scatter_add", torch.zeros(3), 0, torch.tensor([0, 0, 0, 2]), f.uniform(4))
    f.case("scatter_add", f.ints(4), 0, f.ints(6, lo=0, hi=4), f.ints(6))
    f.case("scatter_add", f.uniform(4, dtype=f16), 0, f.ints(5, lo=0, hi=4), f.uniform(5, dtype=f16))
    scatter_reduce(f)
    index_writes(f)
    index_put(f)
    f.case("masked_scatter", f.uniform(3, 4), f.bools(3, 4), f.uniform(12))
    f.case("masked_scatter", f.uniform(3, 4), f.bools(4), f.uniform(3, 4))
    f.case("masked_scatter", f.uniform(3, 4, dtype=f64, layout="transposed"), f.bools(3, 4, layout="strided"),
           f.uniform(4, 4, dtype=f64, layout="transposed"))
    f.case("masked_scatter", f.ints(6), f.bools(6), f.ints(6))
    f.case("masked_scatter", f.uniform(6, dtype=bf16), f.bools(6), f.uniform(6, dtype=bf16))


def scatter_reduce(f):
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include_self in (True, False):
            kwargs = {"include_self": include_self}
            draw = f.distinct if reduce.startswith("am") else lambda *s, **k: f.uniform(*s, lo=0.5, hi=2, **k)
            f.case("scatter_reduce", draw(3, 4), 1, f.ints(3, 6, lo=0, hi=4), draw(3, 6), reduce, **kwargs)
            f.case("scatter_reduce", draw(4, 3, dtype=f64, layout="transposed"), 0, f.ints(5, 3, lo=0, hi=4),
                   draw(5, 3, dtype=f64, layout="strided"), reduce, **kwargs)
            f.case("scatter_reduce", f.ints(4), 0, f.ints(6, lo=0, hi=4), f.ints(6, lo=1, hi=4), reduce, **kwargs)
        f.case("scatter_reduce", torch.tensor([2.0, 1.0, 3.0]), 0, torch.tensor([0, 0, 1, 1]),
               torch.tensor([2.0, 2.0, 0.0, 0.5]), reduce)
        f.case("scatter_reduce", f.uniform(4, dtype=bf16), 0, f.ints(6, lo=0, hi=4), f.uniform(6, dtype=bf16), reduce)


def index_writes(f):
    for dim in (0, 1, -1):
        shape = (3, 4) if dim == 0 else (4, 3)
        f.case("index_add", f.uniform(4, 4), dim, f.ints(3, lo=0, hi=4), f.uniform(*shape))
        f.case("index_add", f.uniform(4, 4, dtype=f64, layout="transposed"), dim, f.ints(3, lo=0, hi=4),
               f.uniform(*shape, dtype=f64, layout="strided"), alpha=-0.5)
        index = torch.randperm(4, generator=f.generator)[:3]
        f.case("index_copy", f.uniform(4, 4), dim, index, f.uniform(*shape))
        f.case("index_copy", f.uniform(4, 4, dtype=f64, layout="transposed"), dim, index,
               f.uniform(*shape, dtype=f64, layout="transposed"))
        f.case("index_fill", f.uniform(4, 4), dim, f.ints(2, lo=0, hi=4), 1.5)
        f.case("index_fill", f.uniform(4, 4, dtype=f64, layout="strided"), dim, torch.tensor([3, 0]),
               torch.tensor(0.25, dtype=f64))
    f.case("index_add", f.uniform(5), 0, torch.tensor([1, 1, 1], dtype=i32), f.uniform(3))
    f.case("index_add", f.ints(4, 2), 0, torch.tensor([3, 3]), f.ints(2, 2), alpha=2)
    f.case("index_add", f.uniform(4, 2, dtype=bf16), 0, torch.tensor([3, 3]), f.uniform(2, 2, dtype=bf16))
    f.case("index_copy", f.ints(4), 0, torch.tensor([2, 0]), f.ints(2))
    f.case("index_fill", f.uniform(4, 2), 0, torch.tensor([-1, 0]), 0.5, grad=False)
    f.case("index_fill", f.ints(4), 0, torch.tensor([2, 0]), 7)
    f.case("index_fill", f.uniform(4, dtype=f16), 0, torch.tensor([2, 0]), 0.5)


def index_put(f):
    rows, columns = torch.tensor([0, 2, -1]), torch.tensor([1, 1, 0])
    for accumulate in (False, True):
        kwargs = {"accumulate": accumulate}
        f.case("index_put", f.uniform(4, 3), [rows, columns], f.uniform(3), **kwargs)
        f.case("index_put", f.uniform(4, 3, dtype=f64, layout="transposed"), [rows], f.uniform(3, 3, dtype=f64),
               **kwargs)
        f.case("index_put", f.uniform(4, 3, layout="strided"), [rows], f.uniform(), **kwargs)
        f.case("index_put", f.uniform(4, 3), [f.bools(4, 3)], f.uniform(), **kwargs)
        f.case("index_put", f.uniform(4, 3), [rows.reshape(3, 1), columns[1:]], f.uniform(3, 1), **kwargs)
        f.case("index_put", f.ints(4, 3), [rows, columns], f.ints(3), **kwargs)
        f.case("index_put", f.uniform(4, dtype=bf16), [rows], f.uniform(3, dtype=bf16), **kwargs)
    f.case("index_put", f.uniform(4), [torch.tensor([1, 1, 3, 1])], f.uniform(4), accumulate=True)
    f.case("index_put", f.uniform(3, 2, dtype=f64), [torch.tensor([0, 0, 2])], f.uniform(2, dtype=f64), accumulate=True)
