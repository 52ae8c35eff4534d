"""Reading by index: gather, index_select, masks, advanced indexing, embedding."""

import torch

from family import bf16, f16, f32, f64, i32, i64, u8


def build(f):
    for dim in (0, 1, -1):
        f.case("gather", f.uniform(4, 5), dim, f.ints(3, 2, lo=0, hi=4))
        f.case("gather", f.uniform(4, 4, dtype=f64, layout="transposed"), dim,
               f.ints(2, 4, lo=0, hi=4, layout="transposed"))
        f.case("take_along_dim", f.uniform(4, 4), f.ints(*((2, 4) if dim == 0 else (4, 2)), lo=0, hi=4), dim)
        f.case("index_select", f.uniform(4, 5), dim, f.ints(6, lo=0, hi=4))
        f.case("index_select", f.uniform(4, 5, dtype=f64, layout="transposed"), dim,
               f.ints(3, lo=0, hi=4, layout="strided"))
    f.case("gather", f.uniform(2, 3, 4, layout="strided"), 2, f.ints(2, 2, 5, lo=0, hi=4))
    f.case("gather", f.uniform(3, 4, layout="expanded"), 1, f.ints(3, 4, lo=0, hi=4, layout="expanded"))
    f.case("gather", f.uniform(3), 0, torch.tensor([0, 0, 2, 2, 1]))
    f.case("gather", f.uniform(), 0, torch.tensor([0]))
    f.case("gather", f.uniform(3, 4), 1, torch.zeros(3, 0, dtype=i64))
    f.case("gather", f.ints(3, 4), 0, f.ints(2, 4, lo=0, hi=3))
    f.case("gather", f.bools(3, 4), 0, f.ints(2, 4, lo=0, hi=3))
    f.case("gather", f.uniform(3, 4, dtype=bf16), 0, f.ints(2, 4, lo=0, hi=3))
    f.case("take_along_dim", f.uniform(3, 4), f.ints(3, 1, lo=0, hi=4), 1)
    f.case("take_along_dim", f.uniform(3, 4, dtype=f64), f.ints(5, lo=0, hi=12))
    f.case("take_along_dim", f.uniform(2, 1, 4, layout="transposed"), f.ints(1, 3, 2, lo=0, hi=4), 2)
    f.case("index_select", f.uniform(5), 0, torch.tensor([4, 0, 0], dtype=i32))
    f.case("index_select", f.uniform(2, 3, 4, layout="strided"), 1, torch.tensor(2))
    f.case("index_select", f.ints(4, 3), 0, torch.tensor([3, 3, 1]))
    f.case("index_select", f.uniform(4, 3, dtype=f16), 0, torch.tensor([3, 3, 1]))
    f.case("index_select", f.uniform(3, 2), 0, torch.zeros(0, dtype=i64))
    f.case("take", f.uniform(3, 4), f.ints(5, lo=0, hi=12))
    f.case("take", f.uniform(3, 4, layout="transposed"), f.ints(2, 3, lo=-12, hi=12))
    f.case("take", f.uniform(2, 5, dtype=f64, layout="strided"), f.ints(4, lo=0, hi=10, layout="strided"))
    f.case("take", f.ints(6), torch.tensor(2))
    f.case("take", f.uniform(6, dtype=bf16), torch.tensor([[1, 1], [5, 0]]))
    masks(f)
    advanced(f)
    embedding(f)


def masks(f):
    f.case("masked_select", f.uniform(3, 4), f.bools(3, 4))
    f.case("masked_select", f.uniform(3, 4), f.bools(4))
    f.case("masked_select", f.uniform(3, 1, dtype=f64), f.bools(3, 4, layout="transposed"))
    f.case("masked_select", f.uniform(4, 3, layout="transposed"), f.bools(4, 3, layout="strided"))
    f.case("masked_select", f.ints(6), f.bools(6))
    f.case("masked_select", f.uniform(5), torch.zeros(5, dtype=torch.bool))
    f.case("masked_select", f.uniform(5, dtype=f16), f.bools(5))
    f.case("nonzero", f.ints(3, 4, lo=0, hi=2))
    f.case("nonzero", f.bools(3, 4, layout="transposed"))
    f.case("nonzero", f.ints(2, 3, 3, lo=0, hi=2, layout="strided").to(f32), grad=False)
    f.case("nonzero", torch.tensor([0.0, -0.0, float("nan"), 1e-30]), grad=False)
    f.case("nonzero", torch.tensor(5))
    f.case("nonzero", torch.tensor(0))
    f.case("nonzero", torch.zeros(0, 3))
    f.case("nonzero", f.ints(7, lo=0, hi=2, dtype=u8))
    f.case("nonzero", f.bools(3, 4), as_tuple=True)


def advanced(f):
    x = lambda **kw: f.uniform(4, 3, 5, **kw)
    rows, columns, deep = f.ints(6, lo=-4, hi=4), f.ints(6, lo=-3, hi=3), f.ints(6, lo=0, hi=5)
    f.case("index", x(), [rows])
    f.case("index", x(), [rows, columns])
    f.case("index", x(dtype=f64, layout="transposed"), [None, columns])
    f.case("index", x(layout="reversed"), [rows, None, deep])
    f.case("index", x(layout="strided"), [None, columns, deep])
    f.case("index", x(dtype=f64), [rows, columns, deep])
    f.case("index", x(layout="expanded"), [rows.reshape(2, 3)])
    f.case("index", x(), [rows[:4].reshape(4, 1), None, deep[:3]])
    f.case("index", x(), [rows[:4].reshape(4, 1), columns[:3]])
    f.case("index", x(), [torch.tensor(2)])
    f.case("index", x(), [torch.zeros(0, dtype=i64)])
    f.case("index", x(), [f.bools(4)])
    f.case("index", x(), [f.bools(4, 3)])
    f.case("index", x(), [None, f.bools(3, 5)])
    f.case("index", x(dtype=f64), [torch.tensor([True, False, True, True]), torch.tensor([0, 1, 2])])
    f.case("index", x(), [None, torch.tensor([0, 2, 2], dtype=i32)])
    f.case("index", f.ints(4, 3), [torch.tensor([3, 3, 0])])
    f.case("index", f.bools(4, 3), [torch.tensor([3, -1, 0])])
    f.case("index", f.uniform(4, 3, dtype=bf16), [torch.tensor([3, 3, 0])])


def embedding(f):
    f.case("embedding", f.ints(5, lo=0, hi=6), f.uniform(6, 3))
    f.case("embedding", f.ints(2, 4, lo=0, hi=6), f.uniform(6, 3))
    f.case("embedding", torch.tensor([[1, 2, 1], [0, 1, 5]]), f.uniform(6, 2), padding_idx=1)
    f.case("embedding", torch.tensor([5, 5, 0, 2]), f.uniform(6, 2, dtype=f64), padding_idx=-1)
    f.case("embedding", f.ints(3, 2, lo=0, hi=4, layout="transposed"), f.uniform(4, 3, dtype=f64, layout="transposed"))
    f.case("embedding", f.ints(4, lo=0, hi=4, dtype=i32), f.uniform(4, 3, layout="strided"))
    f.case("embedding", torch.tensor(3), f.uniform(4, 3))
    f.case("embedding", f.ints(5, lo=0, hi=6), f.uniform(6, 3, dtype=bf16))
    f.case("embedding", torch.tensor([0, 0, 1, 0]), f.uniform(3, 2), scale_grad_by_freq=True)
    f.case("one_hot", torch.tensor([0, 2, 1]))
    f.case("one_hot", torch.tensor([0, 2, 1]), num_classes=5)
    f.case("one_hot", f.ints(2, 3, lo=0, hi=4, layout="transposed"), num_classes=4)
    f.case("one_hot", torch.tensor(1), num_classes=3)
    f.case("one_hot", torch.zeros(0, dtype=i64), num_classes=3)
