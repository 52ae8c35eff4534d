"""Memory shared with NumPy and by DLPack; pickling; files."""

import copy
import io
import pickle

import numpy as np
import pytest

import rushlight as torch


def test_numpy_shares_memory_both_ways():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = torch.from_numpy(array)
    tensor += 1
    assert array[0, 0] == 1
    array[1, 2] = 40
    assert tensor[1, 2] == 40
    back = tensor.numpy()
    back[0, 1] = -5
    assert array[0, 1] == -5


def test_numpy_keeps_memory_alive():
    array = torch.arange(1000.0).numpy()
    junk = [torch.randn(1000) for _ in range(50)]
    assert array.sum() == 499500 and len(junk) == 50
    tensor = torch.from_numpy(np.arange(1000.0))
    assert tensor.sum() == 499500


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_numpy_dtypes(dtype):
    array = np.ones((2, 2), dtype=dtype)
    tensor = torch.from_numpy(array)
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.numpy().dtype == dtype


def test_views_and_strides():
    array = np.arange(12).reshape(3, 4)
    tensor = torch.from_numpy(array[:, ::2].T)
    assert tensor.stride() == (2, 4)
    assert np.array_equal(tensor.numpy(), array[:, ::2].T)
    assert torch.arange(12).view(3, 4).T[1:].numpy().tolist() == array.T[1:].tolist()


def test_read_only_arrays_are_copied():
    array = np.arange(3)
    array.setflags(write=False)
    tensor = torch.from_numpy(array)
    tensor += 1
    assert array.tolist() == [0, 1, 2]


def test_classes_of_arrays_are_arrays(tmp_path):
    np.arange(12, dtype=np.float32).tofile(tmp_path / "f")
    for array in (np.memmap(tmp_path / "f", dtype=np.float32, shape=(4, 3), mode="r"), np.arange(3).view(np.recarray)):
        for made in (torch.tensor(array), torch.as_tensor(array)):
            assert made.shape == array.shape and made.tolist() == array.tolist()


def test_numpy_functions_take_tensors():
    tensor = torch.tensor([1.0, 4.0])
    assert np.asarray(tensor).tolist() == [1, 4]
    assert np.array(tensor, dtype=np.float64).dtype == np.float64
    assert isinstance(np.sqrt(tensor), (torch.Tensor, np.ndarray))
    assert float(np.mean(tensor.numpy())) == 2.5


def test_refusals():
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(2, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="BFloat16"):
        torch.ones(2, dtype=torch.bfloat16).numpy()
    assert torch.ones(2, requires_grad=True).numpy(force=True).sum() == 2
    with pytest.raises(TypeError):
        torch.from_numpy(np.array(["a"]))
    array = np.array([1 + 2j])
    torch.from_numpy(array).imag.fill_(5)
    assert array[0] == 1 + 5j


def test_dlpack():
    tensor = torch.arange(6.0).view(2, 3).T
    array = np.from_dlpack(tensor)
    assert array.tolist() == tensor.tolist()
    array[0, 0] = 9
    assert tensor[0, 0] == 9
    source = np.arange(4)
    shared = torch.from_dlpack(source)
    source[0] = 7
    assert shared[0] == 7
    assert torch.equal(torch.from_dlpack(tensor), tensor)
    capsule = tensor.__dlpack__()
    torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="consumed only once"):
        torch.from_dlpack(capsule)
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        torch.ones(1, requires_grad=True).__dlpack__()


def test_an_untaken_capsule_is_freed():
    before = torch._C._memory_stats()[0]
    for _ in range(10):
        torch.ones(1000).__dlpack__()
    assert torch._C._memory_stats()[0] <= before + 4096


def test_pickle_and_copy():
    tensor = torch.arange(6).view(2, 3).T
    tensor.note = "kept"
    for copied in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor), copy.copy(tensor)):
        assert torch.equal(copied, tensor) and copied.note == "kept"
    leaf = torch.ones(2, requires_grad=True)
    leaf.sum().backward()
    again = copy.deepcopy(leaf)
    assert again.requires_grad and torch.equal(again.grad, leaf.grad) and again.grad is not leaf.grad
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(leaf * 2)
    for value in (torch.float32, torch.device("cuda:1"), torch.Size([1, 2]), torch.strided, torch.channels_last):
        assert pickle.loads(pickle.dumps(value)) == value
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    twin = pickle.loads(pickle.dumps(generator))
    assert torch.equal(torch.rand(3, generator=twin), torch.rand(3, generator=generator))
    best = torch.tensor([3, 1]).max(0)
    assert pickle.loads(pickle.dumps(best)).indices == 0


def test_save_and_load(tmp_path):
    state = {"w": torch.randn(3, 4), "half": torch.ones(2, dtype=torch.bfloat16), "step": 3, "rates": [0.1, (1, None)], 5: "five"}
    path = tmp_path / "state.pt"
    torch.save(state, path)
    loaded = torch.load(path)
    assert torch.equal(loaded["w"], state["w"]) and loaded["half"].dtype == torch.bfloat16
    assert loaded["step"] == 3 and loaded["rates"] == [0.1, (1, None)] and loaded[5] == "five"
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, map_location="cpu")["w"], state["w"])
    base = torch.zeros(4)
    torch.save([base, base[1:]], path)
    whole, part = torch.load(path)
    whole[1] = 5
    assert part[0] == 5


class Settings:
    def __init__(self):
        self.scale = torch.tensor([2.0])


def test_objects_need_trust(tmp_path):
    path = tmp_path / "object.pt"
    torch.save({"settings": Settings(), "set": {1, 2}}, path)
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False"):
        torch.load(path)
    loaded = torch.load(path, weights_only=False)
    assert loaded["settings"].scale == 2 and loaded["set"] == {1, 2}
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "absent.pt")
    (tmp_path / "broken.pt").write_bytes(b"PK not a file")
    with pytest.raises(Exception):
        torch.load(tmp_path / "broken.pt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.pt", "object.pt"]


def test_parameters_come_back_as_such(tmp_path):
    path = tmp_path / "parameters.pt"
    path.touch(mode=0o600)
    frozen = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)
    saved = {"plain": torch.ones(2), "deep": [(torch.nn.Parameter(torch.ones(1)),), frozen]}
    torch.save(saved, path)
    assert path.stat().st_mode & 0o777 == 0o600
    for trusted in (False, True):
        loaded = torch.load(path, weights_only=not trusted)
        first, second = loaded["deep"][0][0], loaded["deep"][1]
        assert type(first) is type(second) is torch.nn.Parameter and type(loaded["plain"]) is torch.Tensor
        assert first.requires_grad and not second.requires_grad and second.tolist() == [0.0, 1.0, 2.0]
    with open(path, "rb") as file:
        assert type(torch.load(io.BytesIO(file.read()), map_location="cpu")["deep"][1]) is torch.nn.Parameter


@pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 1)])
def test_unaligned_arrays_are_copied_not_shared(shape):
    """Contiguous arrays whose memory does not start at a multiple of the element size."""
    unaligned = np.frombuffer(bytearray(b"\0" + np.array([1.5, 2.5], dtype=np.float32).tobytes()), dtype=np.uint8)[1:].view(np.float32).reshape(shape)
    assert not unaligned.flags.aligned
    with pytest.raises(ValueError, match="aligned"):
        torch.from_numpy(unaligned)
    with pytest.raises(ValueError, match="aligned"):
        torch.as_tensor(unaligned)
    assert torch.tensor(unaligned).reshape(-1).tolist() == [1.5, 2.5]


def test_bools_of_other_bytes_are_true():
    bytes_ = np.array([0, 1, 2, 255], dtype=np.uint8)
    for shared in (torch.from_numpy(bytes_.view(bool)), torch.from_dlpack(bytes_.view(bool)), torch.from_numpy(bytes_).view(torch.bool)):
        assert shared.tolist() == [False, True, True, True]
        assert shared.sum().item() == 3
        assert shared.cumsum(0).tolist() == [0, 1, 2, 3]
        assert (shared & torch.tensor(True)).tolist() == [False, True, True, True]
    bytes_[0] = 7
    assert shared.all().item()
