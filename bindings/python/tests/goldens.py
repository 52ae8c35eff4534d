"""Reads the golden files (tests/goldens/README.md says what is in them)."""

import json
import os
import pathlib
import struct

import rushlight as torch

DATA = pathlib.Path(__file__).parents[3] / "tests" / "goldens" / "data"
#: Where the ops run: another device is for a machine that has one.
DEVICE = os.environ.get("RUSHLIGHT_TEST_DEVICE", "cpu")
if DEVICE != "cpu":
    torch.backends.cudnn.allow_tf32 = False  # the answers are the CPU's
DTYPES = {
    "F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}


class File:
    """A safetensors file: tensors by name, and its metadata."""

    def __init__(self, path):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        self.metadata = header.pop("__metadata__", {})
        self._entries, self._data = header, data[8 + length :]

    def __getitem__(self, name):
        entry = self._entries[name]
        start, end = entry["data_offsets"]
        return torch._C._from_bytes(self._data[start:end], DTYPES[entry["dtype"]], entry["shape"])


class Case:
    """One call that PyTorch made, and what came of it."""

    def __init__(self, file, case):
        self.op, self.id, self.rtol, self.atol = case["op"], case["id"], case["rtol"], case["atol"]
        self.grad = case["grad"]
        self.tensors = []
        self.inputs = [self._item(file, item, True) for item in case["inputs"]]
        self.kwargs = {k: self._kwarg(file, k, v) for k, v in case["kwargs"].items()}
        self.outputs = [file[name] for name in case["outputs"]]
        if self.grad is not None:
            named = lambda name, device="cpu": None if name is None else file[name].to(device)
            self.dy = [named(n, DEVICE) for n in self.grad["dy"]]
            flat = []
            for item, expected in zip(case["inputs"], self.grad["dx"]):
                if "tensor" in item:
                    flat.append(expected)
                elif "tensors" in item:
                    parts = [i for i in item["tensors"] if "tensor" in i]
                    flat.extend([None] * len(parts) if expected is None else [e for e, i in zip(expected, item["tensors"]) if "tensor" in i])
            self.dx = [named(n) for n in flat]

    def _item(self, file, item, positional):
        if "tensor" in item:
            layout = item["layout"]
            tensor = file[item["tensor"]].to(DEVICE).as_strided(layout["size"], layout["stride"], layout["offset"])
            if item.get("requires_grad"):
                tensor = tensor.requires_grad_()
            if positional:
                self.tensors.append(tensor)
            return tensor
        if "tensors" in item:
            return [self._item(file, i, positional) for i in item["tensors"]]
        return float(item["float"]) if "float" in item else item["value"]

    def _kwarg(self, file, name, value):
        if isinstance(value, dict):
            return self._item(file, value, False)
        return getattr(torch, value) if "dtype" in name and isinstance(value, str) else value


def families():
    return sorted(path.stem for path in DATA.glob("*.safetensors"))


def load(family):
    file = File(DATA / f"{family}.safetensors")
    return [Case(file, case) for case in json.loads(file.metadata["cases"])]


def assert_close(found, expected, rtol, atol, what):
    found = found.cpu()
    assert tuple(found.shape) == tuple(expected.shape), f"{what}: shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    assert found.dtype == expected.dtype, f"{what}: {found.dtype}, expected {expected.dtype}"
    if not expected.is_floating_point():
        assert torch.equal(found, expected), f"{what}: {found} is not {expected}"
        return
    close = torch.isclose(found.detach().double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True)
    assert close.all(), f"{what}: {found} is not close to {expected}"
