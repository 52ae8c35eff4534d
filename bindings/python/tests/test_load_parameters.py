"""Parameters in files: read in Rust, and no file changes a class of the process."""

import io
import pickle
import zipfile

import pytest

import rushlight as torch


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def archive(body):
    """A file of ``torch.save`` with a pickle of one's own."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
        out.writestr("archive/data.pkl", body)
        out.writestr("archive/byteorder", "little")
        out.writestr("archive/version", "3\n")
    file.seek(0)
    return file


def test_parameters_come_back(tmp_path):
    weight = torch.nn.Parameter(torch.arange(3.0))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    value = {"w": weight, "again": [weight], "frozen": frozen, "plain": torch.zeros(1)}
    path = tmp_path / "f.pt"
    torch.save(value, path)
    for loaded in (
        torch.load(saved(value)), torch.load(path), torch.load(path, mmap=True), torch.load(path, weights_only=False),
        torch.load(path, map_location="cpu"), torch.load(path, map_location=lambda storage, location: storage),
    ):
        assert type(loaded["w"]) is torch.nn.Parameter and loaded["w"].requires_grad and loaded["w"].is_leaf
        assert loaded["again"][0] is loaded["w"]
        assert type(loaded["frozen"]) is torch.nn.Parameter and not loaded["frozen"].requires_grad
        assert type(loaded["plain"]) is torch.Tensor
        assert loaded["w"].tolist() == [0.0, 1.0, 2.0] and loaded["frozen"].tolist() == [1.0, 1.0]


class Declared:
    pass


#: Sets an attribute of a class: the class, then BUILD with a state for its slots. Names the function of parameters too.
HOSTILE = b"\x80\x02ctorch._utils\n_rebuild_parameter\n0c%s\n(N}X\x04\x00\x00\x00evilK\x01stb."


@pytest.mark.parametrize("name", [b"torch.nn.parameter\nParameter", b"collections\nOrderedDict", b"torch\nTensor"])
@pytest.mark.parametrize("declared", [False, True])
def test_a_file_cannot_change_a_class(name, declared):
    with torch.serialization.safe_globals([Declared] if declared else []):
        with pytest.raises((pickle.UnpicklingError, RuntimeError, OSError)):
            torch.load(archive(HOSTILE % name))
    assert not hasattr(torch.nn.Parameter, "evil") and not hasattr(torch.Tensor, "evil")


def test_a_file_cannot_change_a_declared_class():
    name = f"{Declared.__module__}\nDeclared".encode()
    with torch.serialization.safe_globals([Declared]):
        with pytest.raises(pickle.UnpicklingError, match="not allowed"):
            torch.load(archive(HOSTILE % name))
    assert not hasattr(Declared, "evil")
