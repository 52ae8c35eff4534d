"""Unsigned integers above 8 bits and 8-bit floats: files, memory shared with others, modules. ``behaviour.txt`` has their ops."""

import copy
import io
import pickle

import numpy as np
import pytest

import rushlight as torch

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def sample(dtype):
    """Elements with bits of all kinds."""
    codes = torch.arange(64 * dtype.itemsize) * 37 % 256
    return codes.to(torch.uint8).view(dtype).reshape(8, 8)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("dtype", UNSIGNED + FLOAT8, ids=str)
def test_files_keep_every_bit(dtype, tmp_path):
    x = sample(dtype)
    torch.save({"x": x, "t": x.t(), "row": x[1]}, tmp_path / "x.pt")
    for options in ({}, {"mmap": True}, {"weights_only": False}):
        back = torch.load(tmp_path / "x.pt", **options)
        assert same(back["x"], x) and same(back["t"], x.t()) and same(back["row"], x[1])
        assert back["t"].data_ptr() == back["x"].data_ptr() and back["t"].stride() == (1, 8)
    buffer = io.BytesIO()
    torch.save(torch.nn.Parameter(x, requires_grad=False), buffer)
    assert same(torch.load(io.BytesIO(buffer.getvalue())).detach(), x)
    for kept in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone(), x.cpu(), x.t().contiguous().t()):
        assert same(kept, x)
    assert pickle.loads(pickle.dumps(dtype)) is dtype


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_numpy_shares_unsigned_memory(dtype):
    array = np.array([1, 2, np.iinfo(str(dtype)[6:]).max], dtype=str(dtype)[6:])
    x = torch.from_numpy(array)
    assert x.dtype == dtype and x.tolist() == array.tolist()
    array[0] = 9
    assert x[0].item() == 9 and x.numpy().dtype == array.dtype
    assert torch.tensor(array[2]).item() == array[2].item()


def test_float8_weights_are_read_and_widened():
    layer = torch.nn.Linear(4, 3)
    narrow = {k: v.to(torch.float8_e4m3fn) for k, v in layer.state_dict().items()}
    other = torch.nn.Linear(4, 3)
    other.load_state_dict(narrow)
    assert other.weight.dtype == torch.float32
    assert torch.allclose(other.weight, layer.weight, rtol=0.07, atol=0.01)
    moved = torch.nn.Linear(4, 3).to(torch.float8_e5m2)
    assert moved.weight.dtype == torch.float8_e5m2 and moved.to(torch.bfloat16)(torch.ones(1, 4, dtype=torch.bfloat16)).shape == (1, 3)


def test_gradients_pass_through_float8():
    x = torch.tensor([1.0, -2.5, 300.0], requires_grad=True)
    y = x.to(torch.float8_e4m3fn).float()
    assert y.tolist() == [1.0, -2.5, 288.0]
    (y * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_refusals_name_the_dtype():
    for dtype in UNSIGNED + FLOAT8:
        x = torch.ones(3, dtype=dtype)
        with pytest.raises(NotImplementedError, match=f"not implemented for {str(dtype)[6:]}"):
            x + x
        with pytest.raises(RuntimeError, match="Promotion for"):
            x * torch.ones(3, dtype=torch.int32)
        assert torch.zeros(2, dtype=dtype, device="meta").to(torch.float32).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers_have_no_sign(dtype):
    assert torch.signbit(torch.tensor([0, 1, 65535]).to(dtype)).tolist() == [False] * 3


def test_scaled_products_of_float8():
    a = torch.tensor([[1.0, 2.0, -3.0], [0.5, 4.0, 1.5]]).to(torch.float8_e4m3fn)
    b = torch.tensor([[1.0, -2.0], [3.0, 0.25], [2.0, 1.0]]).to(torch.float8_e5m2)
    whole = a.float() @ b.float()
    half, quarter = torch.tensor(0.5), torch.tensor(0.25)
    assert torch.equal(torch._scaled_mm(a, b, half, quarter, out_dtype=torch.float32), whole / 8)
    rows, columns, bias = torch.tensor([[1.0], [2.0]]), torch.tensor([[4.0, 0.5]]), torch.tensor([1.0, -1.0])
    assert torch.equal(torch._scaled_mm(a, b, rows, columns, bias=bias, out_dtype=torch.bfloat16).float(), whole * rows * columns + bias)
    assert torch._scaled_mm(a, b, half, quarter).dtype == torch.float8_e4m3fn
    for wrong in (lambda: torch._scaled_mm(a.float(), b, half, quarter), lambda: torch._scaled_mm(a, a, half, quarter), lambda: torch._scaled_mm(a[0], b, half, quarter)):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(ValueError, match="scales must have"):
        torch._scaled_mm(a, b, rows, quarter)
    with pytest.raises(NotImplementedError, match="scale_result"):
        torch._scaled_mm(a, b, half, quarter, scale_result=half)
