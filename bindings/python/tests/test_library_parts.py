"""Parts of PyTorch that tools and libraries build on: modes that count ops, graphs of traces, grouped products. Answers are PyTorch 2.15's."""

import copy
import pathlib
import pickle
import subprocess
import sys

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.jit import _get_trace_graph
from rushlight.utils._python_dispatch import TorchDispatchMode

F = nn.functional


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


X, IMAGE, WEIGHT = torch.ones(4, 4), torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)


@pytest.mark.parametrize("call, expected", [
    (lambda: 1 / X, "aten.reciprocal.default aten.mul.Tensor"),
    (lambda: F.linear(X[None], X, X[0]), "aten.unsqueeze.default aten.select.int aten.view.default aten.t.default aten.addmm.default aten._unsafe_view.default"),
    (lambda: F.conv2d(IMAGE, WEIGHT, padding=1), "aten.convolution.default"),
    (lambda: F.max_pool2d(IMAGE, 2), "aten.max_pool2d_with_indices.default"),
    (lambda: F.adaptive_avg_pool2d(IMAGE, 1), "aten.mean.dim"),
    (lambda: F.layer_norm(X, (4,)), "aten.native_layer_norm.default"),
    (lambda: F.group_norm(IMAGE, 3), "aten.native_group_norm.default"),
    (lambda: F.dropout(X, 0.5, False), ""),
    (lambda: X.var(1), "aten.var.correction"),
    (lambda: X.T, "aten.permute.default"),
    (lambda: X.sum().item(), "aten.sum.default aten._local_scalar_dense.default"),
    (lambda: (X > 0) & (X > 1), "aten.gt.Scalar aten.gt.Scalar aten.bitwise_and.Tensor"),
    (lambda: X.float(), ""),
    (lambda: (X.numel(), X.shape, X.size(0)), ""),
    (lambda: nn.Linear(4, 4), "aten.empty.memory_format aten.empty.memory_format aten.uniform_.default aten.uniform_.default"),
])
def test_a_mode_counts_ops_of_aten(call, expected):
    with Names() as mode:
        call()
    assert mode.seen == expected.split()


def test_ops_of_layers_compute():
    target = torch.tensor([0, 1, 2, 3])
    with Names() as mode:
        losses = F.cross_entropy(X.tril(), target), F.batch_norm(IMAGE, torch.zeros(3), torch.ones(3))
    assert "aten.nll_loss_forward.default" in mode.seen and "aten.native_batch_norm.default" in mode.seen
    assert torch.allclose(losses[0], F.cross_entropy(X.tril(), target)) and torch.allclose(losses[1], IMAGE, atol=1e-4)
    table = {torch.ops.aten.mm: 1, torch.ops.aten.mm.default: 2}
    assert copy.deepcopy(table)[torch.ops.aten.mm] == 1


def test_functions_of_torch_take_arguments_as_kernels_do():
    rows, weight, mean, var = torch.tensor([2, 0]), torch.arange(6.0).reshape(3, 2), torch.zeros(2), torch.full((2,), 4.0)
    assert torch.embedding(weight, rows).tolist() == [[4, 5], [0, 1]] and torch.embedding is not F.embedding
    assert torch.embedding_bag(weight, rows, torch.tensor([0]), False, 1)[0].tolist() == [[2, 3]]
    assert torch.embedding_renorm_(weight.clone(), rows, 1.0, 2.0)[1].tolist() == [2, 3]
    # The weight and the bias come before the running statistics.
    assert torch.allclose(torch.batch_norm(weight, torch.ones(2), mean, mean, var, False, 0.1, 0.0, True), weight / 2)
    assert torch.layer_norm(weight, (2,), None, None, 1e-5, False).shape == torch.group_norm(weight, 1, None, None, 1e-5, True).shape == (3, 2)
    x, y = torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.0])
    each = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    for number, expected in enumerate((each, each.mean(), each.sum())):
        assert torch.allclose(torch.binary_cross_entropy_with_logits(x, y, None, None, number), expected)
    assert torch.allclose(torch.kl_div(x, y), F.kl_div(x, y, reduction="none")) and torch.hinge_embedding_loss(x, y * 2 - 1, 1.0, 2).item() == 2.5
    assert [part.tolist() for part in torch.adaptive_max_pool1d(x[None], 1)] == [[[0.5]], [[0]]]
    assert torch._C._nn.upsample_nearest2d(IMAGE, [4, 4]).shape == (1, 3, 4, 4) and torch._C._nn.flatten_dense_tensors([x, y]).shape == (4,)
    assert not hasattr(torch._C._nn, "no_such_layer")
    assert torch.nuclear_norm(torch.eye(2)).item() == 2 and torch.native_dropout(x, 0.0, True)[1].all()


def test_rows_of_a_weight_lie_as_their_indices_do_not():
    rows = torch.arange(6).reshape(2, 3).t() % 3
    assert not rows.is_contiguous() and F.embedding(rows, X).is_contiguous() and nn.Embedding(3, 4)(rows).is_contiguous()


def test_grouped_products():
    a, w = torch.arange(32 * 16.0).reshape(32, 16).sin(), torch.arange(4 * 16 * 8.0).reshape(4, 16, 8).cos()
    ends = torch.tensor([8, 8, 24, 32], dtype=torch.int32)
    assert abs(F.grouped_mm(a, w, offs=ends).sum().item() - 1.0251) < 1e-3
    assert abs(F.grouped_mm(a.t(), a, offs=ends).sum().item() - 67.8599) < 1e-2
    assert abs(F.grouped_mm(w.transpose(1, 2), a.t(), offs=ends).sum().item() - 1.0251) < 1e-3
    assert abs(F.grouped_mm(w, w.transpose(1, 2)).sum().item() - 23.6007) < 1e-2
    x, y = a.clone().requires_grad_(), w.clone().requires_grad_()
    F.grouped_mm(x, y, offs=ends).square().sum().backward()
    assert abs(x.grad.sum().item() + 3.3019) < 1e-2 and abs(y.grad.sum().item() + 49.9409) < 1e-2 and y.grad[1].abs().sum() == 0
    with pytest.raises(RuntimeError, match="int32"):
        F.grouped_mm(a, w, offs=ends.long())


def test_graphs_of_traces():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    graph, out = _get_trace_graph(net, (IMAGE,))
    kinds = [node.kind() for node in graph.nodes() if node.kind().startswith("aten::")]
    assert kinds == ["aten::_convolution", "aten::batch_norm", "aten::relu"] and out.shape == (1, 8, 6, 6)
    convolution, norm = graph.findNode("aten::_convolution"), graph.findNode("aten::batch_norm")
    assert convolution.inputsSize() == 13 and convolution.output().type().sizes() == [1, 8, 6, 6]
    assert norm.inputsAt(5).toIValue() is False


def test_pickles_name_their_modules():
    for made in (nn.MultiheadAttention, torch.optim.AdamW, torch.optim.lr_scheduler.StepLR, torch.distributions.Gamma):
        assert pickle.loads(pickle.dumps(made)) is made
    assert nn.MultiheadAttention.__module__.endswith("nn.modules.activation") and torch.optim.lr_scheduler.StepLR.__module__.endswith("optim.lr_scheduler")


def test_kernels_of_the_key_default_serve_devices_without_one():
    torch.library.define("parts::times", "(Tensor x) -> Tensor")
    torch.library.register_kernel("parts::times", "default", lambda x: x * 2)
    assert torch.ops.parts.times(torch.ones(2)).tolist() == [2.0, 2.0]
    torch.library.register_kernel("parts::times", "cpu", lambda x: x * 3)
    assert torch.ops.parts.times(torch.ones(2)).tolist() == [3.0, 3.0]


def test_classes_of_parameters_convert_themselves():
    class Packed(nn.Parameter):
        def to(self, *args, **kwargs):
            self.data = self.data.to(torch.int8)
            self.packed = True
            return self

    layer = nn.Linear(2, 2)
    layer.weight = Packed(torch.ones(2, 2) * 3, requires_grad=False)
    weight, bias = layer.weight, layer.bias
    layer.to("cpu")
    assert layer.weight is weight and weight.packed and weight.dtype == torch.int8 and weight.data[0].tolist() == [3, 3]
    assert layer.bias is bias and layer.to(torch.float64).bias.dtype == torch.float64


def test_checks_of_quantised_layers():
    from rushlight.ao.quantization.fx import _decomposed

    _decomposed._per_token_quant_qparam_dim_check(torch.ones(2, 3, 4), torch.ones(6), torch.ones(6))
    with pytest.raises(AssertionError, match="num_tokens: 6 zero_points"):
        _decomposed._per_token_quant_qparam_dim_check(torch.ones(2, 3, 4), torch.ones(6), torch.ones(5))
    with pytest.raises(NotImplementedError, match="quantised"):
        _decomposed.quantize_per_channel_group()


def test_names_that_were_refused_can_still_be_imported_or_set():
    code = """
import torch
import torch.nn.functional as F
for _ in range(3):
    assert not hasattr(F, "scaled_mm") and not hasattr(torch, "missing") and not hasattr(torch.nn, "Lineer")
from torch.nn.functional import scaled_mm
try:
    torch.nn.Lineer
except AttributeError as error:
    assert "Did you mean: 'Linear'" in str(error), error
torch.missing = 1
assert torch.missing == 1
"""
    place = str(pathlib.Path(torch.__file__).parents[1])
    subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {place!r})\nimport rushlight; rushlight.install()\n{code}"], check=True)
