"""``torch.onnx.export``: files are read back by our own reader; scripts/onnx_out compares them with onnxruntime."""

import io

import pytest
import rushlight as torch
from rushlight import nn
from rushlight.nn import functional as F


def back(model, example, **options):
    file = io.BytesIO()
    program = torch.onnx.export(model, example, file, verify=True, **options)
    assert isinstance(program, torch.onnx.ONNXProgram) and file.getvalue() == program._data
    file.seek(0)
    return torch.jit.load(file)


def agree(model, loaded, *inputs):
    with torch.no_grad():
        wanted, found = model(*inputs), loaded(*inputs)
    wanted = [t for t in torch.utils._pytree.tree_leaves(wanted) if isinstance(t, torch.Tensor)]
    found = torch.utils._pytree.tree_leaves(found)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 5))

    def forward(self, x):
        return self.head(self.features(x) + self.features(x).mean())


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places, self.norm = nn.Embedding(19, 8), nn.Embedding(16, 8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.head = nn.Linear(8, 19, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        n, m = tokens.shape
        x = self.embed(tokens) + self.places(torch.arange(m))
        q, k, v = (t.view(n, m, 2, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).split(8, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, m, 8)
        return self.head(F.gelu(x + self.out(y)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return y, h, c


def test_models_go_out_and_come_back():
    torch.manual_seed(0)
    net = Net()
    axes = {"image": {0: "batch", 2: "height", 3: "width"}, "scores": {0: "batch"}}
    loaded = back(net, torch.randn(2, 3, 8, 8), input_names=["image"], output_names=["scores"], dynamic_axes=axes)
    assert net.training and "image: float32[batch, 3, height, width]" in loaded.code
    agree(net.eval(), loaded, torch.randn(3, 3, 10, 12))
    gpt = Gpt().eval()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=16)
    loaded = back(gpt, (torch.randint(0, 19, (2, 5)),), dynamic_shapes=({0: batch, 1: length},))
    for sizes in ((1, 1), (3, 9), (2, 16)):
        agree(gpt, loaded, torch.randint(0, 19, sizes))
    recurrent = Recurrent().eval()
    loaded = back(recurrent, (torch.randn(2, 5, 3),), dynamic_axes={"x": [0, 1]})
    agree(recurrent, loaded, torch.randn(1, 7, 3))
    fixed = back(recurrent, (torch.randn(2, 5, 3),))
    assert "x: float32[2, 5, 3]" in fixed.code


def test_an_exported_program_goes_out():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    exported = torch.export.export(model, (torch.randn(2, 3, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    program = torch.onnx.export(exported)
    x = torch.randn(5, 3, 8)
    with torch.no_grad():
        torch.testing.assert_close(program(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_what_cannot_go_out_is_an_error():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    with pytest.raises(torch.onnx.OnnxExporterError, match="linalg"):
        torch.onnx.export(Odd(), (torch.eye(3),))
    linear = nn.Linear(2, 3)
    with pytest.raises(ValueError, match="opset_version"):
        torch.onnx.export(linear, (torch.ones(1, 2),), opset_version=11)
    with pytest.raises(ValueError, match="neither an input"):
        torch.onnx.export(linear, (torch.ones(1, 2),), dynamic_axes={"y": {0: "batch"}})
    with pytest.raises(NotImplementedError, match="export_params"):
        torch.onnx.export(linear, (torch.ones(1, 2),), export_params=False)
