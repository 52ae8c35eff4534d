#!/usr/bin/env python3
"""Writes PyTorch's answers for the layers and losses of the nn crate.

data/nn/layers.safetensors: for every case, its state dict, inputs, outputs, gradients and changed buffers; `cases` in its metadata says which
layer, which options, and how PyTorch prints it. data/nn/init.json: statistics of PyTorch's initial values.

Example:
    python tests/goldens/nn.py            # write both files
    python tests/goldens/nn.py --check    # compare with the committed files, exit 1 on a difference
"""

import argparse
import json
import pathlib
import sys
import warnings
import zlib

import safetensors
import safetensors.torch
import torch
from torch import nn

DATA = pathlib.Path(__file__).resolve().parent / "data"
RTOL, ATOL = 1e-5, 1e-6


class Cases:
    """Runs modules in float64 from float32 values, and keeps what went in and came out, rounded to float32."""

    def __init__(self):
        self.cases = []
        self.tensors = {}

    def keep(self, name, tensor):
        tensor = tensor.detach()
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        self.tensors[name] = tensor.clone().contiguous()
        return name

    def add(self, layer, options, *inputs, train=True, repeat=1, forward=None, grads=None):
        """One case. `inputs` are shapes (filled with normal values) or tensors; `forward` names what is called, and its options."""
        number = len(self.cases)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{layer}{options}{number}".encode()))
        normal = lambda shape: torch.randn(shape, generator=generator)
        kwargs = {k: normal(v["normal"]).abs() + 0.1 if isinstance(v, dict) else v for k, v in options.items()}
        # `weight_norm(Linear)`: the layer with a parametrization, whose options begin with `by_`.
        parametrization, _, plain = layer.rstrip(")").rpartition("(")
        own = {k: tuple(v) if isinstance(v, list) else v for k, v in kwargs.items() if not k.startswith("by_")}
        module = getattr(nn, plain)(**own)
        if parametrization:
            norm = {k.removeprefix("by_"): v for k, v in kwargs.items() if k.startswith("by_")}
            getattr(nn.utils.parametrizations, parametrization)(module, **norm)
        for name, parameter in module.named_parameters():
            parameter.data = normal(parameter.shape)
        for name, buffer in module.named_buffers():
            if name.startswith("running"):
                buffer.copy_(normal(buffer.shape).abs() + 0.5)
            if name.endswith(("._u", "._v")):
                buffer.copy_(nn.functional.normalize(normal(buffer.shape), dim=0))
        printed = None if parametrization else str(module)
        module.double().train(train)
        entry = {"layer": layer, "options": options, "repr": printed, "train": train, "repeat": repeat}
        if forward:
            entry["forward"] = forward
        entry["tensor_options"] = {
            k: self.keep(f"{number}.option.{k}", v) for k, v in kwargs.items() if isinstance(v, torch.Tensor)}
        entry["options"] = {k: v for k, v in options.items() if not isinstance(kwargs[k], torch.Tensor)}
        entry["state"] = {k: self.keep(f"{number}.state.{k}", v) for k, v in module.state_dict().items()}
        entry["keys"] = list(module.state_dict())
        given = [normal(x) if isinstance(x, (tuple, list)) else x for x in inputs]
        entry["inputs"] = [self.keep(f"{number}.x{i}", x) for i, x in enumerate(given)]
        wants = grads or [x.is_floating_point() for x in given]
        given = [x.double().requires_grad_(w) if x.is_floating_point() else x for x, w in zip(given, wants)]
        for _ in range(repeat):
            outputs = module(*given, **(forward or {}))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        entry["outputs"] = [self.keep(f"{number}.y{i}", y) for i, y in enumerate(outputs)]
        if outputs[0].requires_grad:
            dy = normal(outputs[0].shape)
            outputs[0].backward(dy.double())
            entry["dy"] = self.keep(f"{number}.dy", dy)
            entry["dx"] = [self.keep(f"{number}.dx{i}", x.grad) if w and x.grad is not None else None
                           for i, (x, w) in enumerate(zip(given, wants))]
            entry["grads"] = {k: self.keep(f"{number}.grad.{k}", p.grad) for k, p in module.named_parameters()
                              if p.grad is not None}
        changed = {k: v for k, v in module.state_dict().items()
                   if not torch.equal(v, self.tensors[entry["state"][k]].to(v.dtype))}
        entry["after"] = {k: self.keep(f"{number}.after.{k}", v) for k, v in changed.items()}
        self.cases.append(entry)

    def to_bytes(self):
        return safetensors.torch.save(self.tensors, metadata={"cases": json.dumps(self.cases)})


def linear(c):
    c.add("Linear", dict(in_features=3, out_features=2), (4, 3))
    c.add("Linear", dict(in_features=3, out_features=2, bias=False), (2, 4, 3))
    c.add("Bilinear", dict(in1_features=2, in2_features=3, out_features=4), (3, 2), (3, 3))
    c.add("Bilinear", dict(in1_features=2, in2_features=3, out_features=2, bias=False), (2, 2, 2), (2, 2, 3))
    c.add("Identity", {}, (2, 3))
    c.add("Flatten", {}, (2, 3, 2))
    c.add("Flatten", dict(start_dim=0, end_dim=1), (2, 3, 2))
    c.add("Unflatten", dict(dim=1, unflattened_size=[2, 3]), (2, 6))
    c.add("PixelShuffle", dict(upscale_factor=2), (2, 8, 2, 3))
    c.add("PixelUnshuffle", dict(downscale_factor=2), (2, 4, 6))
    c.add("ChannelShuffle", dict(groups=2), (1, 6, 2))


def convolutions(c):
    base = dict(in_channels=2, out_channels=4, kernel_size=3)
    c.add("Conv1d", base, (2, 2, 7))
    c.add("Conv1d", {**base, "padding": "same", "dilation": 2, "padding_mode": "circular"}, (2, 2, 7))
    c.add("Conv1d", {**base, "stride": 2, "padding": 1, "groups": 2, "bias": False}, (2, 7))
    c.add("Conv2d", base, (2, 2, 5, 4))
    c.add("Conv2d", {**base, "kernel_size": [3, 2], "stride": [2, 1], "padding": [1, 0], "dilation": [1, 2]}, (1, 2, 5, 5))
    c.add("Conv2d", {**base, "padding": "same", "bias": False}, (1, 2, 4, 4))
    c.add("Conv2d", {**base, "kernel_size": 2, "padding": "same"}, (1, 2, 4, 4))
    c.add("Conv2d", {**base, "padding": "valid"}, (1, 2, 4, 4))
    for mode in ("reflect", "replicate", "circular"):
        c.add("Conv2d", {**base, "kernel_size": [3, 4], "padding": [1, 2], "padding_mode": mode}, (1, 2, 4, 3))
        c.add("Conv2d", {**base, "kernel_size": [3, 2], "padding": "same", "padding_mode": mode}, (1, 2, 4, 3))
    c.add("Conv2d", {**base, "groups": 2, "padding": 1}, (2, 2, 3, 3))
    c.add("Conv3d", {**base, "kernel_size": 2}, (1, 2, 3, 3, 3))
    c.add("Conv3d", {**base, "kernel_size": [1, 2, 2], "stride": [1, 2, 1], "padding": [0, 1, 1], "padding_mode": "replicate"},
          (1, 2, 2, 3, 3))
    c.add("ConvTranspose1d", base, (2, 2, 4))
    c.add("ConvTranspose1d", {**base, "stride": 2, "padding": 1, "output_padding": 1, "bias": False}, (2, 4))
    c.add("ConvTranspose2d", base, (1, 2, 3, 3))
    c.add("ConvTranspose2d", {**base, "stride": 2, "padding": [1, 0], "output_padding": [1, 0], "groups": 2, "dilation": [2, 1]},
          (1, 2, 3, 3))
    c.add("ConvTranspose2d", {**base, "stride": 3}, (1, 2, 2, 2), forward=dict(output_size=[7, 8]))
    c.add("ConvTranspose3d", {**base, "kernel_size": 2, "stride": 2}, (1, 2, 2, 2, 2))


def pooling(c):
    c.add("MaxPool1d", dict(kernel_size=2), (2, 2, 5))
    c.add("MaxPool1d", dict(kernel_size=3, stride=2, padding=1, dilation=2, ceil_mode=True), (2, 8))
    c.add("MaxPool1d", dict(kernel_size=2, return_indices=True), (1, 2, 5))
    c.add("MaxPool2d", dict(kernel_size=2), (2, 2, 4, 5))
    c.add("MaxPool2d", dict(kernel_size=[3, 2], stride=[2, 1], padding=[1, 0]), (1, 2, 5, 4))
    c.add("MaxPool2d", dict(kernel_size=2, stride=2, ceil_mode=True, return_indices=True), (2, 5, 5))
    c.add("AvgPool1d", dict(kernel_size=2), (2, 2, 5))
    c.add("AvgPool1d", dict(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), (1, 2, 6))
    c.add("AvgPool2d", dict(kernel_size=2), (1, 2, 4, 4))
    c.add("AvgPool2d", dict(kernel_size=[3, 2], stride=2, padding=[1, 0], ceil_mode=True, count_include_pad=False), (1, 2, 4, 5))
    c.add("AvgPool2d", dict(kernel_size=3, divisor_override=4), (1, 4, 4))
    c.add("AdaptiveAvgPool1d", dict(output_size=3), (2, 2, 7))
    c.add("AdaptiveAvgPool2d", dict(output_size=1), (2, 3, 4, 4))
    c.add("AdaptiveAvgPool2d", dict(output_size=[2, None]), (1, 2, 5, 3))
    c.add("AdaptiveMaxPool1d", dict(output_size=3), (1, 2, 7))
    c.add("AdaptiveMaxPool1d", dict(output_size=2, return_indices=True), (1, 2, 7))
    c.add("AdaptiveMaxPool2d", dict(output_size=[2, 3]), (1, 2, 5, 5))
    c.add("AdaptiveMaxPool2d", dict(output_size=2, return_indices=True), (1, 2, 5, 5))
    c.add("MaxPool3d", dict(kernel_size=2, stride=[1, 2, 2], return_indices=True), (1, 2, 3, 4, 4))
    c.add("AvgPool3d", dict(kernel_size=[2, 3, 2], padding=[1, 1, 0]), (1, 2, 3, 4, 4))
    c.add("AdaptiveMaxPool3d", dict(output_size=2), (1, 2, 3, 5, 4))
    c.add("AdaptiveMaxPool3d", dict(output_size=[2, None, 3], return_indices=True), (2, 3, 2, 7))
    c.add("AdaptiveMaxPool3d", dict(output_size=[3, 2, 1], return_indices=True), (2, 1, 7, 3, 4))
    c.add("AdaptiveAvgPool3d", dict(output_size=[2, None, 1]), (1, 2, 3, 2, 4))
    c.add("MaxUnpool1d", dict(kernel_size=2), (1, 2, 3), torch.tensor([[[0, 3, 5], [1, 2, 4]]]))
    c.add("MaxUnpool2d", dict(kernel_size=2, stride=[2, 2]), (1, 1, 2, 2), torch.tensor([[[[0, 3], [8, 15]]]]))
    c.add("MaxUnpool2d", dict(kernel_size=3, stride=2, padding=1), (1, 2, 2), torch.tensor([[[1, 2], [5, 8]]]))
    c.add("MaxUnpool2d", dict(kernel_size=2), (1, 2, 2), torch.tensor([[[1, 2], [5, 24]]]), forward=dict(output_size=[5, 5]))


def parametrizations(c):
    linear, conv = dict(in_features=3, out_features=4), dict(in_channels=2, out_channels=3, kernel_size=2)
    c.add("weight_norm(Linear)", linear, (5, 3))
    c.add("weight_norm(Linear)", linear | dict(bias=False, by_dim=None), (5, 3))
    c.add("weight_norm(Conv2d)", conv, (1, 2, 4, 4))
    c.add("weight_norm(Conv2d)", conv | dict(by_dim=-3), (1, 2, 4, 4))
    c.add("spectral_norm(Linear)", linear, (5, 3))
    c.add("spectral_norm(Linear)", linear, (5, 3), train=False)
    c.add("spectral_norm(Conv2d)", conv | dict(by_n_power_iterations=3), (1, 2, 4, 4), repeat=2)
    c.add("spectral_norm(ConvTranspose2d)", conv, (1, 2, 3, 3))


def norms(c):
    shapes = {"1d": (3, 4, 3), "2d": (2, 4, 3, 2), "3d": (2, 4, 2, 2, 2)}
    for dims, shape in shapes.items():
        for train in (True, False):
            c.add(f"BatchNorm{dims}", dict(num_features=4), shape, train=train)
            c.add(f"InstanceNorm{dims}", dict(num_features=4, affine=True, track_running_stats=True), shape, train=train)
        c.add(f"InstanceNorm{dims}", dict(num_features=4), shape[1:])
    c.add("BatchNorm1d", dict(num_features=4), (5, 4))
    c.add("BatchNorm1d", dict(num_features=4, momentum=None, eps=1e-3), (5, 4), repeat=3)
    c.add("BatchNorm1d", dict(num_features=4, momentum=0.3, affine=False), (5, 4), repeat=2)
    c.add("BatchNorm2d", dict(num_features=2, track_running_stats=False), (2, 2, 2, 2), train=False)
    c.add("BatchNorm2d", dict(num_features=2, affine=False, track_running_stats=False), (2, 2, 2, 2))
    c.add("BatchNorm2d", dict(num_features=2, bias=False), (2, 2, 2, 2))
    c.add("InstanceNorm2d", dict(num_features=2, momentum=0.5, track_running_stats=True, eps=1e-2), (2, 2, 3, 2), repeat=2)
    c.add("InstanceNorm1d", dict(num_features=2, affine=True, bias=False), (2, 2, 4))
    c.add("LayerNorm", dict(normalized_shape=6), (2, 3, 6))
    c.add("LayerNorm", dict(normalized_shape=[3, 4], eps=1e-3), (2, 3, 4))
    c.add("LayerNorm", dict(normalized_shape=[6], bias=False), (3, 6))
    c.add("LayerNorm", dict(normalized_shape=[6], elementwise_affine=False), (3, 6))
    c.add("GroupNorm", dict(num_groups=2, num_channels=4), (2, 4, 3))
    c.add("GroupNorm", dict(num_groups=4, num_channels=4, affine=False, eps=1e-3), (2, 4, 2, 2))
    c.add("GroupNorm", dict(num_groups=1, num_channels=4, bias=False), (2, 4, 3))
    c.add("RMSNorm", dict(normalized_shape=6), (3, 6))
    c.add("RMSNorm", dict(normalized_shape=[2, 3], eps=1e-6), (3, 2, 3))
    c.add("RMSNorm", dict(normalized_shape=[6], eps=1e-6, elementwise_affine=False), (3, 6))


def embeddings(c):
    indices = torch.tensor([[1, 2, 0, 2], [4, 2, 1, 2]])
    flat, offsets = torch.tensor([1, 2, 4, 2, 0, 1, 3]), torch.tensor([0, 2, 2, 5])
    base = dict(num_embeddings=5, embedding_dim=3)
    c.add("Embedding", base, indices)
    c.add("Embedding", {**base, "padding_idx": 2}, indices)
    c.add("Embedding", {**base, "padding_idx": -1, "scale_grad_by_freq": True}, indices)
    c.add("Embedding", {**base, "max_norm": 1.0}, indices)
    c.add("Embedding", {**base, "max_norm": 1.5, "norm_type": 1.0}, indices)
    for mode in ("sum", "mean", "max"):
        c.add("EmbeddingBag", {**base, "mode": mode}, indices)
        c.add("EmbeddingBag", {**base, "mode": mode, "padding_idx": 2}, flat, offsets)
        c.add("EmbeddingBag", {**base, "mode": mode, "include_last_offset": True}, flat, torch.tensor([0, 3, 3, 7]))
    c.add("EmbeddingBag", {**base, "mode": "sum"}, flat, offsets, (7,))
    c.add("EmbeddingBag", {**base, "mode": "sum", "padding_idx": 2, "max_norm": 1.0}, flat, offsets, (7,))
    c.add("EmbeddingBag", {**base, "scale_grad_by_freq": True}, indices)


def activations(c):
    for name in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Sigmoid", "LogSigmoid", "Tanh", "Tanhshrink", "Softsign", "Hardsigmoid",
                 "Hardswish", "LeakyReLU", "ELU", "CELU", "Softplus", "Softshrink", "Hardshrink", "Hardtanh", "GELU", "PReLU"):
        c.add(name, {}, (3, 4))
    c.add("LeakyReLU", dict(negative_slope=0.2), (3, 4))
    c.add("ELU", dict(alpha=0.5), (3, 4))
    c.add("CELU", dict(alpha=0.5), (3, 4))
    c.add("Softplus", dict(beta=2.0, threshold=1.0), (3, 4))
    c.add("Softshrink", dict(lambd=0.2), (3, 4))
    c.add("Hardshrink", dict(lambd=0.2), (3, 4))
    c.add("Hardtanh", dict(min_val=-0.5, max_val=0.3), (3, 4))
    c.add("Threshold", dict(threshold=0.1, value=-2.0), (3, 4))
    c.add("GELU", dict(approximate="tanh"), (3, 4))
    c.add("PReLU", dict(num_parameters=4, init=0.1), (3, 4, 2))
    c.add("RReLU", {}, (3, 4), train=False)
    c.add("RReLU", dict(lower=0.1, upper=0.5), (3, 4), train=False)
    c.add("Softmax", dict(dim=-1), (3, 4))
    c.add("LogSoftmax", dict(dim=1), (2, 3, 2))
    c.add("Softmin", dict(dim=0), (3, 4))
    c.add("Softmax2d", {}, (2, 3, 2, 2))
    c.add("GLU", {}, (3, 4))
    c.add("GLU", dict(dim=1), (2, 4, 3))
    for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"):
        c.add(name, dict(p=0.3), (1, 2, 2, 2, 2)[:5 if name == "Dropout3d" else 4 if name == "Dropout2d" else 3], train=False)


def shapes(c):
    c.add("Upsample", dict(scale_factor=2.0), (1, 2, 3))
    c.add("Upsample", dict(size=[5, 4]), (1, 2, 3, 2))
    c.add("Upsample", dict(scale_factor=[2.0, 1.5], mode="bilinear"), (1, 2, 3, 4))
    c.add("Upsample", dict(size=[5, 6], mode="bilinear", align_corners=True), (1, 2, 3, 4))
    c.add("Upsample", dict(size=7, mode="linear"), (1, 2, 3))
    c.add("Upsample", dict(size=[5, 4], mode="nearest-exact"), (1, 2, 3, 3))
    c.add("Upsample", dict(scale_factor=2.0, mode="bicubic"), (1, 1, 3, 4))
    c.add("Upsample", dict(size=[3, 2, 5], mode="trilinear", align_corners=True), (1, 1, 2, 3, 3))
    c.add("Upsample", dict(scale_factor=1.7, mode="bilinear", recompute_scale_factor=True), (1, 1, 3, 3))
    for dims, shape in (("1d", (1, 2, 3)), ("2d", (1, 2, 3, 3)), ("3d", (1, 1, 3, 2, 3))):
        sides = [1, 0, 1, 1, 0, 1][:2 * int(dims[0])]
        for kind in ("Zero", "Reflection", "Replication", "Circular"):
            c.add(f"{kind}Pad{dims}", dict(padding=1), shape)
            c.add(f"{kind}Pad{dims}", dict(padding=sides), shape)
        c.add(f"ConstantPad{dims}", dict(padding=sides, value=2.5), shape)
    c.add("ZeroPad2d", dict(padding=[-1, 1, 0, -1]), (1, 2, 3, 3))
    c.add("Unfold", dict(kernel_size=2), (1, 2, 3, 3))
    c.add("Unfold", dict(kernel_size=[2, 3], dilation=[2, 1], padding=1, stride=[1, 2]), (2, 3, 4))
    c.add("Fold", dict(output_size=[3, 3], kernel_size=2), (1, 8, 4))
    c.add("Fold", dict(output_size=[3, 4], kernel_size=[2, 3], dilation=[2, 1], padding=1, stride=[1, 2]), (2, 12, 6))
    c.add("CosineSimilarity", {}, (3, 4), (3, 4))
    c.add("CosineSimilarity", dict(dim=0, eps=1.0), (3, 4), (3, 4))
    c.add("PairwiseDistance", {}, (3, 4), (3, 4))
    c.add("PairwiseDistance", dict(p=1.0, eps=0.1, keepdim=True), (3, 4), (3, 4))


def losses(c):
    classes, signs = torch.tensor([1, 0, 3, 2, 1]), torch.tensor([1., -1, -1, 1, 1])
    probabilities = torch.softmax(torch.linspace(-1, 1, 20).reshape(5, 4).sin() * 3, 1)
    unit = torch.linspace(0.05, 0.95, 20).reshape(5, 4)
    ignored = torch.tensor([1, -100, 3, 2, 1])
    only_input = [True, False]
    for reduction in ("mean", "sum", "none"):
        r = dict(reduction=reduction)
        c.add("CrossEntropyLoss", r, (5, 4), classes)
        c.add("CrossEntropyLoss", {**r, "weight": {"normal": [4]}, "label_smoothing": 0.2}, (5, 4), ignored)
        c.add("CrossEntropyLoss", {**r, "label_smoothing": 0.1}, (5, 4), probabilities)
        c.add("NLLLoss", {**r, "weight": {"normal": [4]}, "ignore_index": 0}, (5, 4), classes)
        for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"):
            c.add(name, r, (3, 2), (3, 2))
        c.add("SmoothL1Loss", {**r, "beta": 0.5}, (3, 2), (3, 2))
        c.add("HuberLoss", {**r, "delta": 0.5}, (3, 2), (3, 2))
        c.add("BCELoss", {**r, "weight": {"normal": [4]}}, unit, unit.flip(0), grads=only_input)
        c.add("BCEWithLogitsLoss", r, (5, 4), unit, grads=only_input)
        c.add("BCEWithLogitsLoss", {**r, "weight": {"normal": [4]}, "pos_weight": {"normal": [4]}}, (5, 4), unit, grads=only_input)
        c.add("KLDivLoss", r, (5, 4), probabilities, grads=only_input)
        c.add("KLDivLoss", {**r, "log_target": True}, (5, 4), probabilities.log(), grads=only_input)
        c.add("PoissonNLLLoss", r, (5, 4), unit * 5, grads=only_input)
        c.add("PoissonNLLLoss", {**r, "log_input": False, "full": True, "eps": 1e-4}, unit, unit.flip(0) * 5, grads=only_input)
        c.add("GaussianNLLLoss", r, (5, 4), (5, 4), unit)
        c.add("GaussianNLLLoss", {**r, "full": True, "eps": 0.2}, (5, 4), (5, 4), unit[:, :1].contiguous())
        c.add("CosineEmbeddingLoss", r, (5, 4), (5, 4), signs, grads=[True, True, False])
        c.add("CosineEmbeddingLoss", {**r, "margin": 0.3}, (5, 4), (5, 4), signs, grads=[True, True, False])
        c.add("MarginRankingLoss", {**r, "margin": 0.3}, (5,), (5,), signs, grads=[True, True, False])
        c.add("HingeEmbeddingLoss", r, (5,), signs, grads=only_input)
        c.add("SoftMarginLoss", r, (5,), signs, grads=only_input)
        c.add("TripletMarginLoss", r, (5, 4), (5, 4), (5, 4))
        c.add("TripletMarginLoss", {**r, "margin": 0.5, "p": 1.0, "eps": 1e-4, "swap": True}, (5, 4), (5, 4), (5, 4))
        c.add("MultiMarginLoss", r, (5, 4), classes)
        c.add("MultiMarginLoss", {**r, "p": 2, "margin": 0.7, "weight": {"normal": [4]}}, (5, 4), classes)
        c.add("MultiLabelMarginLoss", r, (2, 4), torch.tensor([[3, 0, -1, 1], [-1, 2, 0, 1]]))
        c.add("MultiLabelSoftMarginLoss", {**r, "weight": {"normal": [4]}}, (5, 4), (unit > 0.5).float(), grads=only_input)
    c.add("KLDivLoss", dict(reduction="batchmean"), (5, 4), probabilities, grads=only_input)
    c.add("CrossEntropyLoss", {}, (2, 4, 3), torch.tensor([[0, 1, 2], [3, 2, 1]]))
    c.add("MultiMarginLoss", {}, (4,), torch.tensor(2))
    c.add("MultiLabelMarginLoss", {}, (4,), torch.tensor([1, 3, -1, 0]))


def initial_statistics():
    """Mean, deviation and extremes of initial values: of layers' parameters, and of the functions of nn.init."""
    torch.manual_seed(7)
    layers = [
        ("Linear", dict(in_features=300, out_features=200)),
        ("Bilinear", dict(in1_features=50, in2_features=20, out_features=30)),
        ("Conv1d", dict(in_channels=40, out_channels=60, kernel_size=5)),
        ("Conv2d", dict(in_channels=40, out_channels=80, kernel_size=3, groups=4)),
        ("Conv3d", dict(in_channels=10, out_channels=40, kernel_size=[2, 3, 3])),
        ("ConvTranspose1d", dict(in_channels=40, out_channels=60, kernel_size=5)),
        ("ConvTranspose2d", dict(in_channels=40, out_channels=80, kernel_size=3, groups=4)),
        ("ConvTranspose3d", dict(in_channels=10, out_channels=40, kernel_size=2)),
        ("Embedding", dict(num_embeddings=500, embedding_dim=30)),
        ("EmbeddingBag", dict(num_embeddings=500, embedding_dim=30)),
        ("PReLU", dict(num_parameters=5)),
        ("BatchNorm2d", dict(num_features=8)),
        ("InstanceNorm1d", dict(num_features=8, affine=True, track_running_stats=True)),
        ("LayerNorm", dict(normalized_shape=8)),
        ("GroupNorm", dict(num_groups=2, num_channels=8)),
        ("RMSNorm", dict(normalized_shape=8)),
    ]

    def statistics(t):
        t = t.double()
        return {"shape": list(t.shape), "mean": t.mean().item(), "std": t.std(correction=0).item(),
                "min": t.min().item(), "max": t.max().item()}

    rows = []
    for name, options in layers:
        module = getattr(nn, name)(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
        rows.append({"layer": name, "options": options, "state": {k: statistics(v) for k, v in module.state_dict().items()}})
    functions = [
        ("uniform_", dict(a=-0.5, b=2.0)), ("normal_", dict(mean=1.0, std=2.0)),
        ("trunc_normal_", dict(mean=0.5, std=1.5, a=-1.0, b=1.5)), ("trunc_normal_", dict(mean=0.0, std=0.02, a=-2.0, b=2.0)),
        ("constant_", dict(val=0.3)), ("ones_", {}), ("zeros_", {}),
        ("xavier_uniform_", dict(gain=1.5)), ("xavier_normal_", dict(gain=1.5)),
        ("kaiming_uniform_", dict(a=0.3, mode="fan_in", nonlinearity="leaky_relu")),
        ("kaiming_uniform_", dict(mode="fan_out", nonlinearity="relu")),
        ("kaiming_normal_", dict(mode="fan_in", nonlinearity="tanh")),
        ("kaiming_normal_", dict(mode="fan_out", nonlinearity="selu")),
        ("orthogonal_", dict(gain=2.0)),
    ]
    for name, options in functions:
        tensor = getattr(nn.init, name)(torch.empty(60, 40, 3), **options)
        rows.append({"function": name, "options": options, "state": {"tensor": statistics(tensor)}})
    matrices = [("eye_", {}, (3, 4)), ("dirac_", {}, (4, 3, 3)), ("dirac_", dict(groups=2), (4, 3, 2, 3)),
                ("dirac_", {}, (2, 2, 1, 2, 3))]
    exact = [{"function": n, "options": o, "shape": list(s), "values": getattr(nn.init, n)(torch.empty(s), **o).flatten().tolist()}
             for n, o, s in matrices]
    gains = [{"nonlinearity": n, "param": p, "gain": nn.init.calculate_gain(n, p)}
             for n, p in (("linear", None), ("sigmoid", None), ("tanh", None), ("relu", None), ("leaky_relu", 0.2), ("selu", None))]
    return json.dumps({"statistics": rows, "exact": exact, "gains": gains}, indent=1) + "\n"


def differences(cases, path):
    if not path.exists():
        return [f"{path.name} is missing"]
    with safetensors.safe_open(path, "pt") as file:
        if json.loads(file.metadata()["cases"]) != cases.cases:
            return [f"{path.name}: other cases"]
        return [f"{path.name}: {name} differs" for name, tensor in cases.tensors.items()
                if not torch.allclose(file.get_tensor(name).double(), tensor.double(), RTOL, ATOL, equal_nan=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the committed files differ")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases = Cases()
    for family in (linear, convolutions, pooling, norms, embeddings, activations, shapes, losses, parametrizations):
        family(cases)
    statistics = initial_statistics()
    path, init = DATA / "nn" / "layers.safetensors", DATA / "nn" / "init.json"
    if args.check:
        problems = differences(cases, path)
        if not init.exists() or init.read_text() != statistics:
            problems.append(f"{init.name} differs")
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        return 1 if problems else 0
    path.write_bytes(cases.to_bytes())
    init.write_text(statistics)
    print(f"{len(cases.cases)} cases, {path.stat().st_size / 1024:.0f} KiB and {init.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
