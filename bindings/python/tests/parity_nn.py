"""Layers with random options and sizes, ours and PyTorch's in one process: outputs, gradients, buffers, printing and errors must agree.

    python parity_nn.py [--seconds 30] [--seed 0]      with a Python that has torch; exits with 1 if something differs

Both get the same parameters and inputs in float64.
"""

import argparse
import pathlib
import random
import sys
import time
import warnings

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import rushlight  # noqa: E402


class Draw:
    """Random layers: ``layer()`` gives a name, options and inputs (shapes to be filled, or arrays)."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.array = np.random.default_rng(seed)
        self.kinds = self._kinds()

    def layer(self):
        name, make = self.random.choice(self.kinds)
        options, inputs = make()
        return name, options, [self.array.standard_normal(i) if isinstance(i, tuple) else i for i in inputs]

    def one_of(self, *values):
        return self.random.choice(values)

    def sizes(self, count, low, high):
        return tuple(self.random.randint(low, high) for _ in range(count))

    def convolution(self, dims, transposed=False):
        groups = self.one_of(1, 1, 2)
        stride, dilation = self.sizes(dims, 1, 3), self.sizes(dims, 1, 2)
        options = dict(
            in_channels=2 * groups, out_channels=self.random.randint(1, 3) * groups, kernel_size=self.sizes(dims, 1, 3), stride=stride,
            padding=self.sizes(dims, 0, 2), dilation=dilation, groups=groups, bias=self.one_of(True, False),
        )
        if transposed:
            options["output_padding"] = tuple(self.random.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation))
        else:
            options["padding_mode"] = self.one_of("zeros", "zeros", "reflect", "replicate", "circular")
            if self.random.random() < 0.3:
                options.update(stride=1, padding=self.one_of("same", "valid"))
        return options, [(self.random.randint(1, 3), 2 * groups, *self.sizes(dims, 6, 9))]

    def pool(self, dims, largest):
        kernel = self.sizes(dims, 1, 3)
        options = dict(
            kernel_size=kernel, stride=self.one_of(None, 1, 2), padding=tuple(self.random.randint(0, k // 2) for k in kernel),
            ceil_mode=self.one_of(True, False),
        )
        options.update(dilation=self.one_of(1, 2)) if largest else options.update(count_include_pad=self.one_of(True, False))
        return options, [(2, 3, *self.sizes(dims, 6, 9))]

    def adaptive(self, dims):
        wanted = tuple(self.one_of(None, 1, 2, 3, 5) for _ in range(dims)) if dims > 1 else self.random.randint(1, 5)
        return dict(output_size=wanted), [(2, 3, *self.sizes(dims, 4, 9))]

    def recurrent(self, kind):
        options = dict(
            input_size=self.random.randint(1, 4), hidden_size=self.random.randint(2, 5), num_layers=self.random.randint(1, 3),
            bias=self.one_of(True, False), batch_first=self.one_of(True, False), bidirectional=self.one_of(True, False),
        )
        if kind == "LSTM":
            options["proj_size"] = self.one_of(0, 0, 1)
        if kind == "RNN":
            options["nonlinearity"] = self.one_of("tanh", "relu")
        return options, [(*self.sizes(2, 1, 5), options["input_size"])]

    def loss(self, name):
        options, (batch, classes) = dict(reduction=self.one_of("mean", "sum", "none")), self.sizes(2, 2, 5)
        shape = (batch, classes)
        signs = lambda *shape: np.sign(self.array.standard_normal(shape))
        probabilities = lambda: self.array.random(shape) * 0.9 + 0.05
        if name == "CrossEntropyLoss":
            space = self.sizes(self.random.randint(0, 2), 1, 3)
            options.update(label_smoothing=self.one_of(0.0, 0.1), ignore_index=self.one_of(-100, 1))
            if self.random.random() < 0.5:
                options["weight"] = self.array.random(classes)
            return options, [(*shape, *space), self.array.integers(0, classes, (batch, *space))]
        inputs = {
            "NLLLoss": lambda: [shape, self.array.integers(0, classes, batch)],
            "BCELoss": lambda: [probabilities(), probabilities()],
            "BCEWithLogitsLoss": lambda: [shape, probabilities()],
            "KLDivLoss": lambda: [shape, probabilities()],
            "PoissonNLLLoss": lambda: [shape, probabilities()],
            "GaussianNLLLoss": lambda: [shape, shape, probabilities()],
            "CosineEmbeddingLoss": lambda: [shape, shape, signs(batch)],
            "MarginRankingLoss": lambda: [(batch,), (batch,), signs(batch)],
            "TripletMarginLoss": lambda: [shape] * 3,
            "HingeEmbeddingLoss": lambda: [shape, signs(*shape)],
            "SoftMarginLoss": lambda: [shape, signs(*shape)],
        }
        return options, inputs.get(name, lambda: [shape, shape])()

    def _kinds(self):
        kinds, one_of, number = [], self.one_of, self.random.randint
        for d in (1, 2, 3):
            kinds += [
                (f"Conv{d}d", lambda d=d: self.convolution(d)),
                (f"ConvTranspose{d}d", lambda d=d: self.convolution(d, transposed=True)),
                (f"MaxPool{d}d", lambda d=d: self.pool(d, True)),
                (f"AvgPool{d}d", lambda d=d: self.pool(d, False)),
                (f"AdaptiveAvgPool{d}d", lambda d=d: self.adaptive(d)),
                (f"AdaptiveMaxPool{d}d", lambda d=d: self.adaptive(d)),
                (f"BatchNorm{d}d", lambda d=d: (
                    dict(num_features=3, momentum=one_of(None, 0.1, 0.5), affine=one_of(True, False)), [(4, 3, *(3,) * d)])),
                (f"InstanceNorm{d}d", lambda d=d: (
                    dict(num_features=3, affine=one_of(True, False), track_running_stats=one_of(True, False)), [(2, 3, *(4,) * d)])),
            ]
            kinds += [
                (f"{kind}Pad{d}d", lambda d=d: (dict(padding=self.sizes(2 * d, 0, 2)), [(1, 2, *(4,) * d)]))
                for kind in ("Zero", "Reflection", "Replication", "Circular")
            ]
        kinds += 3 * [(kind, lambda kind=kind: self.recurrent(kind)) for kind in ("RNN", "LSTM", "GRU")]
        kinds += [
            (name, lambda name=name: self.loss(name))
            for name in (
                "BCELoss BCEWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss "
                "MSELoss MarginRankingLoss NLLLoss PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss".split()
            )
        ]
        transformer = dict(d_model=4, nhead=2, dim_feedforward=6, dropout=0.0)
        kinds += [
            ("LayerNorm", lambda: (dict(normalized_shape=(3, 4)[number(0, 1) :], eps=one_of(1e-5, 0.1)), [(2, 3, 4)])),
            ("GroupNorm", lambda: (dict(num_groups=2, num_channels=4), [(2, 4, *(3,) * number(0, 2))])),
            ("RMSNorm", lambda: (dict(normalized_shape=4), [(2, 3, 4)])),
            ("LocalResponseNorm", lambda: (dict(size=number(1, 5), alpha=0.1), [(2, 5, 3)])),
            ("Unfold", lambda: (dict(kernel_size=2, dilation=number(1, 2), padding=number(0, 1), stride=number(1, 2)), [(2, 2, 5, 5)])),
            ("Bilinear", lambda: (dict(in1_features=2, in2_features=3, out_features=4), [(5, 2), (5, 3)])),
            ("Upsample", lambda: (
                dict(scale_factor=one_of(0.7, 1.5, 2.0), mode=one_of("nearest", "bilinear", "bicubic", "nearest-exact")), [(1, 2, 5, 6)])),
            ("Upsample", lambda: (
                dict(size=self.sizes(2, 2, 9), mode=one_of("bilinear", "bicubic"), align_corners=one_of(True, False)), [(1, 2, 5, 6)])),
            ("LPPool2d", lambda: (
                dict(norm_type=number(1, 3), kernel_size=2, ceil_mode=one_of(True, False)), [self.array.random((1, 2, 5, 5))])),
            ("TransformerEncoderLayer", lambda: (
                dict(transformer, batch_first=one_of(True, False), norm_first=one_of(True, False), activation=one_of("relu", "gelu")),
                [(2, 3, 4)])),
            ("Transformer", lambda: (
                dict(transformer, num_encoder_layers=1, num_decoder_layers=2, batch_first=True), [(2, 3, 4), (2, 5, 4)])),
            ("CosineSimilarity", lambda: (dict(dim=number(0, 1)), [(3, 4), (3, 4)])),
            ("PairwiseDistance", lambda: (dict(p=one_of(1.0, 2.0, 3.0), keepdim=one_of(True, False)), [(3, 4), (3, 4)])),
        ]
        return kinds


def flat(result):
    return [leaf for part in result for leaf in flat(part)] if isinstance(result, (tuple, list)) else [result]


def run(package, name, options, inputs, seed):
    """What one of the two makes of a layer: its text, and arrays by name. Errors are given back."""
    values = np.random.default_rng(seed)
    try:
        options = {k: package.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        module = getattr(package.nn, name)(**options).double()
        with package.no_grad():
            for parameter in module.parameters():
                parameter.copy_(package.tensor(values.standard_normal(tuple(parameter.shape))))
        given = [package.tensor(i) for i in inputs]
        given[0].requires_grad_()
        outputs = [o for o in flat(module(*given)) if o.is_floating_point()]
        weights = [package.tensor(np.cos(np.arange(o.numel())).reshape(tuple(o.shape))) for o in outputs]
        sum((o * w).sum() for o, w in zip(outputs, weights)).backward()
        found = {f"output {i}": o for i, o in enumerate(outputs)}
        found["gradient of the input"] = given[0].grad
        found.update((f"gradient of {k}", p.grad) for k, p in module.named_parameters() if p.grad is not None)
        found.update(module.named_buffers())
        return str(module), {k: v.detach().numpy() for k, v in found.items()}
    except Exception as error:
        return error


def difference(ours, theirs):
    """What differs, or None."""
    if isinstance(ours, Exception) or isinstance(theirs, Exception):
        agree = isinstance(ours, Exception) and isinstance(theirs, Exception)
        return None if agree else f"here {ours!r:.200}, PyTorch {theirs!r:.200}"
    if ours[0] != theirs[0]:
        return f"prints {ours[0]}, PyTorch {theirs[0]}"
    if ours[1].keys() != theirs[1].keys():
        return f"has {sorted(ours[1])}, PyTorch {sorted(theirs[1])}"
    for name, expected in theirs[1].items():
        found = ours[1][name]
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return f"{name}: {found.dtype} {found.shape}, PyTorch {expected.dtype} {expected.shape}"
        if not np.allclose(found, expected, rtol=1e-7, atol=1e-8, equal_nan=True):
            return f"{name}: differs by {np.abs(found - expected).max()}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    draw, cases, wrong, end = Draw(args.seed), 0, 0, time.monotonic() + args.seconds
    while time.monotonic() < end and wrong < 20:
        name, options, inputs = draw.layer()
        found = difference(*(run(package, name, options, inputs, cases) for package in (rushlight, torch)))
        if found is not None:
            wrong += 1
            print(f"{name}({options}) of {[i.shape for i in inputs]}: {found}", file=sys.stderr)
        cases += 1
    print(f"nn: {cases} layers, {wrong} differ from PyTorch {torch.__version__}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
