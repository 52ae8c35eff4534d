"""Exported programs: ``torch.export``, ``torch.jit.trace``, and archives of PyTorch."""

import io
import pathlib

import pytest

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn

FIXTURES = pathlib.Path(__file__).parents[3] / "tests" / "fixtures" / "script"
ARCHIVES = sorted(path for path in FIXTURES.glob("*.pt") if not path.name.endswith(".answers.pt"))
Dim = torch.export.Dim


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (part.view(B, T, 2, C // 2).transpose(1, 2) for part in self.qkv(x).split(C, dim=2))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
        weights = F.softmax(weights.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf")), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B * T, C))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), nn.GRU(10, 3)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return {"last": self.gru(y)[0][:, -1], "state": [h, c]}


class Indexed(nn.Module):
    def forward(self, x, index, scale=2.0):
        y = x.clone()
        y[:, 0] = 0.5
        y[..., 1:3] = x[..., 1:3] * 2
        y[index] = -1.0
        return 1.0 / (1.0 + y**2), y[None, ::2, -1], x[x > 0].sum(), (2 - y) // 0.5, y.T @ x * scale


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(16, 5),
    )


CASES = {
    "convolutional": (convolutional, lambda: (torch.randn(2, 3, 8, 8),), ({0: Dim("batch"), 2: Dim("height"), 3: Dim("width")},), lambda: (torch.randn(5, 3, 9, 6),)),
    "attention": (Attention, lambda: (torch.randn(2, 7, 8),), ({0: Dim("batch"), 1: Dim("length", max=16)},), lambda: (torch.randn(3, 11, 8),)),
    "recurrent": (Recurrent, lambda: (torch.randn(2, 7, 4),), ({0: Dim("batch"), 1: Dim("length")},), lambda: (torch.randn(1, 3, 4),)),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), lambda: (torch.randn(2, 7, 8),),
        ({0: Dim("batch"), 1: Dim("length")},), lambda: (torch.randn(3, 4, 8),),
    ),
    "indexed": (
        Indexed, lambda: (torch.randn(4, 5), torch.tensor([1, 3])), ({0: Dim("rows", min=4)}, {0: Dim("count")}),
        lambda: (torch.randn(6, 5), torch.tensor([0, 4, 5])),
    ),
}


def same(found, wanted):
    found, wanted = torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        assert a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_exported_models_run_without_their_source(name, tmp_path):
    make, example, shapes, other = CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    exported = torch.export.export(model, example(), dynamic_shapes=shapes)
    torch.export.save(exported, tmp_path / "model.rlm")
    for program in (exported.module(), torch.export.load(tmp_path / "model.rlm").module(), torch.jit.load(tmp_path / "model.rlm")):
        for inputs in (example(), other()):
            same(program(*inputs), model(*inputs))
    traced, inputs = torch.jit.trace(model, example()), other()
    same(traced(*inputs), model(*inputs))
    torch.jit.save(traced, tmp_path / "traced.rlm")
    same(torch.jit.load(io.BytesIO((tmp_path / "traced.rlm").read_bytes()))(*inputs), model(*inputs))


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.stem)
def test_archives_of_pytorch_run(path):
    module, answers = torch.jit.load(path), torch.load(path.with_suffix(".answers.pt"))
    frozen = torch.jit.freeze(torch.jit.load(path).eval())
    # The second call of a frozen module runs what the first one recorded.
    for program in (module, frozen, frozen, torch.jit.optimize_for_inference(frozen)):
        with torch.no_grad():
            outputs = program(answers["input"])
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for found, wanted in zip(outputs, answers["outputs"]):
            assert found.dtype == wanted.dtype and torch.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert isinstance(module, torch.jit.ScriptModule) and not list(frozen.parameters())
    assert "batch_norm" not in frozen.code


def test_a_network_of_rust_runs():
    """Exported by ``rushlight::graph::Export``; the answers are PyTorch's."""
    folder = FIXTURES.parent / "rust"
    module, answers = torch.jit.load(folder / "net.rlm"), torch.load(folder / "net.pt")
    assert set(module.state_dict()) == {name for name in answers["state"] if not name.endswith("num_batches_tracked")}
    for program in (module, torch.jit.freeze(module.eval())):
        with torch.no_grad():
            assert torch.allclose(program(answers["input"]), answers["outputs"][0], rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="must be 4, got 5"):
        module(torch.zeros(1, 3, 4, 5))


def test_an_archive_is_a_module_that_trains():
    module = torch.jit.load(FIXTURES / "resnet_trace.pt")
    names = [name for name, _ in module.named_parameters()]
    assert "stem.0.weight" in names and "fc.bias" in names and "block.bn1.running_mean" in dict(module.named_buffers())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.randn(4, 3, 16, 16)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    state = {name: torch.zeros_like(tensor) for name, tensor in module.state_dict().items()}
    module.load_state_dict(state)
    assert module(x).abs().sum().item() == 0
    assert module.double()(x.double()).dtype == torch.float64


def test_programs_are_text_with_names_and_sizes():
    exported = torch.export.export(nn.Linear(2, 3), (torch.randn(4, 2),), dynamic_shapes={"input": {0: Dim("batch")}})
    assert 'def forward(input: float32[batch, 2]):' in exported.graph and 'nn.functional.linear(input, weight("weight"), weight("bias"))' in exported.graph
    assert [name for name, _ in exported.named_parameters()] == ["weight", "bias"]
    with pytest.raises(RuntimeError, match="must be 2, got 3"):
        exported.module()(torch.randn(4, 3))
    with pytest.raises(RuntimeError, match="takes float32, got float64"):
        exported.module()(torch.randn(4, 2).double())
    with pytest.raises(RuntimeError, match=r"exported_program\.module\(\)"):
        exported(torch.randn(4, 2))
    static = torch.export.export(nn.Linear(2, 3), (torch.randn(4, 2),)).module()
    with pytest.raises(RuntimeError, match="must be 4, got 5"):
        static(torch.randn(5, 2))


def test_what_a_trace_does_not_see_is_an_error():
    class Unrolled(nn.Module):
        def forward(self, x):
            for _ in range(x.shape[0]):
                x = x * 2
            return x

    class Rooted(nn.Module):
        def forward(self, x):
            return x / x.shape[1] ** 0.5

    example = (torch.randn(3, 4),)
    for model, shapes in ((Unrolled(), {0: Dim("n")}), (Rooted(), {1: Dim("n")})):
        with pytest.raises(RuntimeError, match="differ with n"):
            torch.export.export(model.eval(), example, dynamic_shapes=(shapes,))
        same(torch.export.export(model.eval(), example).module()(*example), model(*example))
    with pytest.warns(torch.jit.TracerWarning, match="item"):
        torch.jit.trace(lambda x: x * x.sum().item(), torch.ones(2))
    with pytest.raises(ValueError, match="not arguments"):
        torch.export.export(nn.Linear(2, 3), (torch.randn(4, 2),), dynamic_shapes={"x": {0: Dim("batch")}})
    with pytest.raises(ValueError, match="nn.Module"):
        torch.export.export(torch.relu, (torch.ones(2),))
    with pytest.raises(RuntimeError, match="traced or compiled module"):
        torch.jit.save(nn.Linear(2, 3), "unused")


def test_traced_functions():
    traced = torch.jit.trace(lambda x, y: (x * y).sum(1), (torch.ones(2, 3), torch.ones(3)))
    assert traced(torch.ones(5, 3), torch.full((3,), 2.0)).tolist() == [6.0] * 5
    assert isinstance(traced, torch.jit.ScriptFunction) and "torch.mul" in traced.code or "Tensor.mul" in traced.code


def test_modes_see_sizes():
    class Seen(torch.overrides.TorchFunctionMode):
        names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    with Seen():
        x = torch.ones(2, 3)
        assert x.shape == (2, 3) and x.size(1) == 3 and x.size() == (2, 3)
    assert Seen.names[-3:] == ["__get__", "size", "size"]


def test_further_files_of_archives(tmp_path):
    # Written by PyTorch.
    wanted = {"notes/labels.txt": "", "data.bin": "", "none.txt": "as it was"}
    model = torch.jit.load(FIXTURES / "extra.torchscript", _extra_files=wanted)
    assert wanted == {"notes/labels.txt": b"cat\ndog", "data.bin": b"\x00\xff\x01", "none.txt": b"as it was"}
    assert torch.equal(model(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    # Written here.
    torch.jit.save(model, tmp_path / "model.pt", _extra_files={"a/b.txt": "text", "c": b"\x00"})
    found = {"a/b.txt": "", "c": ""}
    with open(tmp_path / "model.pt", "rb") as file:
        torch.jit.load(file, _extra_files=found)
    assert found == {"a/b.txt": b"text", "c": b"\x00"}
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    torch.export.save(program, tmp_path / "model.pt2", extra_files={"labels": "cat"})
    labels = {"labels": "", "none": "as it was"}
    assert torch.export.load(tmp_path / "model.pt2", extra_files=labels).module()(torch.ones(2)).sum() == 2
    assert labels == {"labels": "cat", "none": "as it was"}
