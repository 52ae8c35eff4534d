"""PyTorch's answers for attention, transformers, recurrent layers, packed sequences and the CTC loss.

    python tests/goldens/nn_sequence.py            # regenerate data/nn/sequence
    python tests/goldens/nn_sequence.py --check    # compare with the committed data; exit 1 on a difference

Each file's `__metadata__` has one entry, `cases`: a JSON array. A case of a module is `{"id", "module", "config", "parameters", "state", "args",
"kwargs", "outputs", "grad"}`: `config` has the keywords of the constructor, `parameters` the names of the state dict in PyTorch's order, and
`state` names the tensor of the file that holds their values end to end; `args`, `outputs` and `{"tensor"}` in `kwargs` name tensors (one
named twice is one tensor) or are null; `grad` has `dy` by output, `args`, and `state` as above.
Cases of `pack` and `ctc` describe themselves.
"""

import json
import sys
from pathlib import Path

import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import rnn as rnn_utils

f32, f64 = torch.float32, torch.float64
FOLDER = Path(__file__).parent / "data" / "nn" / "sequence"


class Family:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.cases, self.tensors = [], {}

    def uniform(self, *shape, dtype=f64, lo=-1.0, hi=1.0):
        return (torch.rand(shape, generator=self.generator, dtype=f64) * (hi - lo) + lo).to(dtype)

    def store(self, tensor):
        """Names a tensor; the same tensor gets the same name."""
        if tensor is None:
            return None
        for name, known in self.tensors.items():
            if known is tensor:
                return name
        name = f"t{len(self.tensors)}"
        self.tensors[name] = tensor
        return name

    def value(self, value):
        return {"tensor": self.store(value)} if isinstance(value, torch.Tensor) else value

    def dy(self, out):
        return self.uniform(*out.shape, dtype=out.dtype) if out is not None and out.requires_grad else None

    def module(self, kind, config, args, kwargs=None, call=None, dtype=f64):
        """Runs `kind(**config)(*args, **kwargs)`, or `call(module, *args, **kwargs)`, with random parameters."""
        kwargs = kwargs or {}
        made = construct(kind, config).to(dtype).train()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(self.uniform(*parameter.shape, dtype=dtype, lo=-0.7, hi=0.7))
        floats = list({id(a): a for a in args if a is not None and a.is_floating_point()}.values())
        for tensor in floats:
            tensor.requires_grad_()
        result = (call or (lambda m, *a, **k: m(*a, **k)))(made, *args, **kwargs)
        outputs = flatten(result)
        dys = [self.dy(o) for o in outputs]
        live = [(o, d) for o, d in zip(outputs, dys) if d is not None]
        wanted = floats + list(made.parameters())
        grads = torch.autograd.grad([o for o, _ in live], wanted, [d for _, d in live], materialize_grads=True)
        by_id = {id(t): g for t, g in zip(wanted, grads)}
        self.cases.append({
            "id": f"{kind}/{len(self.cases)}",
            "module": kind,
            "config": config | {"dtype": str(dtype).split(".")[1]},
            "parameters": [name for name, _ in made.named_parameters()],
            "state": self.store(joined(made.parameters())),
            "args": [self.store(a) for a in args],
            "kwargs": {key: self.value(value) for key, value in kwargs.items()},
            "outputs": [self.store(o) for o in outputs],
            "grad": {
                "dy": [self.store(d) for d in dys],
                "args": [None if a is None else self.store(by_id.get(id(a))) for a in args],
                "state": self.store(joined(by_id[id(p)] for p in made.parameters())),
            },
        })
        if list(made.state_dict()) != [name for name, _ in made.named_parameters()]:
            raise AssertionError(f"{kind}: the state dict is not the parameters")

    def to_bytes(self):
        tensors = {name: t.detach().contiguous().clone() for name, t in self.tensors.items()}
        return safetensors.torch.save(tensors, {"cases": json.dumps(self.cases, separators=(",", ":"))})


def construct(kind, config):
    if kind == "TransformerEncoder":
        layer = nn.TransformerEncoderLayer(**{k: v for k, v in config.items() if k not in ("num_layers", "norm")})
        norm = nn.LayerNorm(config["d_model"]) if config["norm"] else None
        return nn.TransformerEncoder(layer, config["num_layers"], norm, enable_nested_tensor=False)
    if kind == "TransformerDecoder":
        layer = nn.TransformerDecoderLayer(**{k: v for k, v in config.items() if k not in ("num_layers", "norm")})
        norm = nn.LayerNorm(config["d_model"]) if config["norm"] else None
        return nn.TransformerDecoder(layer, config["num_layers"], norm)
    return getattr(nn, kind)(**config)


def joined(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


def flatten(result):
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in flatten(part)]
    return [result]


def bools(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def attention(f):
    kind = "MultiheadAttention"
    u = f.uniform
    mha = lambda config, args, **kwargs: f.module(kind, {"embed_dim": 4, "num_heads": 2} | config, args, kwargs)
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    padding = bools([0, 0, 1], [0, 1, 0])
    same = lambda *shape: [u(*shape)] * 3
    cross = lambda q, k: [u(*q), *([u(*k)] * 2)]

    mha({}, same(3, 2, 4))
    mha({}, same(3, 2, 4), need_weights=False)
    mha({"batch_first": True}, same(2, 3, 4), need_weights=False)
    mha({"batch_first": True}, same(2, 3, 4), average_attn_weights=False)
    mha({"batch_first": True, "bias": False}, same(2, 3, 4), need_weights=False)
    mha({"batch_first": True}, cross((2, 3, 4), (2, 5, 4)), need_weights=False)
    mha({}, cross((3, 2, 4), (5, 2, 4)))
    mha({}, [u(3, 2, 4), u(5, 2, 4), u(5, 2, 4)], need_weights=False)
    mha({"batch_first": True, "kdim": 3, "vdim": 5}, [u(2, 3, 4), u(2, 6, 3), u(2, 6, 5)], need_weights=False)
    mha({"kdim": 3, "vdim": 4, "bias": False}, [u(3, 2, 4), u(6, 2, 3), u(6, 2, 4)])
    for need_weights in (False, True):
        masked = lambda config, args, **kwargs: mha(config, args, need_weights=need_weights, **kwargs)
        masked({"batch_first": True}, same(2, 3, 4), attn_mask=causal)
        masked({"batch_first": True}, same(2, 3, 4), attn_mask=causal, is_causal=True)
        masked({"batch_first": True}, same(2, 3, 4), attn_mask=u(3, 3))
        masked({"batch_first": True}, same(2, 3, 4), attn_mask=u(4, 3, 3), key_padding_mask=padding)
        masked({"batch_first": True}, same(2, 3, 4), key_padding_mask=padding)
        masked({"batch_first": True}, same(2, 3, 4), attn_mask=bools([0, 1, 0], [0, 0, 1], [0, 0, 1]),
               key_padding_mask=bools([0, 0, 1], [0, 0, 0]))
        masked({}, same(3, 2, 4), key_padding_mask=u(2, 3))
        masked({"add_bias_kv": True}, cross((3, 2, 4), (5, 2, 4)))
        masked({"add_zero_attn": True, "batch_first": True}, cross((2, 3, 4), (2, 5, 4)))
        masked({"add_bias_kv": True, "add_zero_attn": True, "batch_first": True}, same(2, 3, 4), attn_mask=causal,
               key_padding_mask=padding)
        masked({}, same(3, 4))
        masked({"batch_first": True}, cross((3, 4), (5, 4)), attn_mask=u(2, 3, 5), key_padding_mask=bools(0, 0, 1, 0, 0))
    f.module(kind, {"embed_dim": 8, "num_heads": 2, "batch_first": True}, [u(2, 3, 8, dtype=f32)] * 3,
             {"need_weights": False}, dtype=f32)


def transformer(f):
    u = f.uniform
    small = {"d_model": 4, "nhead": 2, "dim_feedforward": 6, "dropout": 0.0}
    causal = nn.Transformer.generate_square_subsequent_mask(3, dtype=f64)
    padding = bools([0, 0, 1], [0, 0, 0])
    memory_padding = bools([0, 0, 0, 1, 1], [0, 0, 0, 0, 1])
    for config in ({"batch_first": True}, {"norm_first": True, "activation": "gelu"},
                   {"batch_first": True, "norm_first": True, "bias": False, "layer_norm_eps": 1e-3}):
        seq = lambda n: u(2, n, 4) if config.get("batch_first") else u(n, 2, 4)
        f.module("TransformerEncoderLayer", small | config, [seq(3)])
        f.module("TransformerEncoderLayer", small | config, [seq(3)],
                 {"src_mask": causal, "src_key_padding_mask": padding.to(f64).masked_fill(padding, float("-inf"))})
        f.module("TransformerEncoderLayer", small | config, [seq(3)], {"src_mask": causal, "is_causal": True})
        f.module("TransformerDecoderLayer", small | config, [seq(3), seq(5)])
        f.module("TransformerDecoderLayer", small | config, [seq(3), seq(5)],
                 {"tgt_mask": causal < 0, "memory_mask": u(3, 5), "tgt_key_padding_mask": padding,
                  "memory_key_padding_mask": memory_padding.to(f64) * -2.0})
        f.module("TransformerDecoderLayer", small | config, [seq(3), seq(5)],
                 {"tgt_mask": causal, "tgt_is_causal": True, "memory_key_padding_mask": memory_padding})
    several = small | {"num_layers": 2, "batch_first": True}
    for norm in (False, True):
        f.module("TransformerEncoder", several | {"norm": norm}, [u(2, 3, 4)],
                 {"mask": causal < 0, "src_key_padding_mask": padding})
        f.module("TransformerDecoder", several | {"norm": norm}, [u(2, 3, 4), u(2, 5, 4)],
                 {"tgt_mask": causal, "memory_key_padding_mask": memory_padding.to(f64).masked_fill(memory_padding, -9.0)})
    whole = small | {"num_encoder_layers": 2, "num_decoder_layers": 1}
    f.module("Transformer", whole | {"batch_first": True, "norm_first": True, "bias": False},
             [u(2, 5, 4), u(2, 3, 4)],
             {"src_mask": torch.ones(5, 5, dtype=torch.bool).triu(1), "tgt_mask": causal < 0, "memory_mask": u(3, 5),
              "src_key_padding_mask": memory_padding, "tgt_key_padding_mask": padding,
              "memory_key_padding_mask": memory_padding.to(f64) * -3.0})
    f.module("Transformer", whole | {"activation": "gelu"}, [u(5, 2, 4), u(3, 2, 4)],
             {"tgt_mask": causal, "tgt_is_causal": True})
    f.module("Transformer", whole, [u(5, 4, dtype=f32), u(3, 4, dtype=f32)], dtype=f32)
    f.module("Transformer", whole | {"batch_first": True}, [u(2, 5, 4, dtype=f32), u(2, 3, 4, dtype=f32)], dtype=f32)


def over_packed(module, x, *states, lengths, enforce_sorted):
    packed = rnn_utils.pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted)
    out, state = module(packed, states if len(states) == 2 else states[0] if states else None)
    return rnn_utils.pad_packed_sequence(out, module.batch_first)[0], state


def over_states(module, x, *states):
    return module(x, states if len(states) == 2 else states[0] if states else None)


def recurrent(f):
    u = f.uniform
    for kind in ("RNN", "LSTM", "GRU"):
        def case(config, x, states=False, lengths=None, enforce_sorted=True, dtype=f64):
            config = {"input_size": 3, "hidden_size": 2} | config
            args = [x]
            if states:
                batch = [] if x.dim() == 2 else [x.shape[0 if config.get("batch_first") else 1]]
                layers = config.get("num_layers", 1) * (2 if config.get("bidirectional") else 1)
                args.append(u(layers, *batch, config.get("proj_size", 0) or 2, dtype=dtype))
                if kind == "LSTM":
                    args.append(u(layers, *batch, 2, dtype=dtype))
            if lengths is None:
                f.module(kind, config, args, call=over_states, dtype=dtype)
            else:
                f.module(kind, config, args, {"lengths": torch.tensor(lengths), "enforce_sorted": enforce_sorted},
                         over_packed, dtype)

        case({}, u(4, 2, 3))
        case({}, u(4, 2, 3), states=True)
        case({"bias": False, "batch_first": True}, u(2, 4, 3), states=True)
        case({"num_layers": 2, "bidirectional": True}, u(4, 2, 3), states=True)
        case({"num_layers": 2, "batch_first": True, "bidirectional": True}, u(2, 4, 3))
        case({"num_layers": 2}, u(4, 3), states=True)
        case({"bidirectional": True, "batch_first": True}, u(4, 3))
        case({}, u(4, 3, 3), lengths=[4, 2, 1])
        case({"num_layers": 2, "bidirectional": True, "batch_first": True}, u(3, 4, 3), True, [2, 4, 1], False)
        case({"bidirectional": True}, u(5, 3, 3), True, [3, 3, 2], True)
        case({"num_layers": 2, "bidirectional": True}, u(3, 2, 3, dtype=f32), True, dtype=f32)
        if kind == "RNN":
            case({"nonlinearity": "relu", "num_layers": 2}, u(4, 2, 3), states=True)
        if kind == "LSTM":
            case({"hidden_size": 2, "proj_size": 1, "num_layers": 2, "bidirectional": True}, u(4, 2, 3), states=True)
            case({"proj_size": 1}, u(4, 3, 3), True, [4, 2, 2])
    over_pair = lambda module, x, *states: module(x, states if len(states) == 2 else states[0] if states else None)
    for kind in ("RNNCell", "LSTMCell", "GRUCell"):
        for config in ({}, {"bias": False}):
            for batch in ([2], []):
                states = [u(*batch, 4) for _ in range(2 if kind == "LSTMCell" else 1)]
                f.module(kind, {"input_size": 3, "hidden_size": 4} | config, [u(*batch, 3), *states], call=over_pair)
        f.module(kind, {"input_size": 3, "hidden_size": 4}, [u(2, 3)], call=over_pair)
    f.module("RNNCell", {"input_size": 3, "hidden_size": 4, "nonlinearity": "relu"}, [u(2, 3), u(2, 4)])


def pack(f):
    u = f.uniform
    def case(x, lengths, batch_first, enforce_sorted, total_length=None, padding_value=0.0):
        packed = rnn_utils.pack_padded_sequence(x, torch.tensor(lengths), batch_first, enforce_sorted)
        padded, sizes = rnn_utils.pad_packed_sequence(packed, batch_first, padding_value, total_length)
        f.cases.append({
            "x": f.store(x), "lengths": lengths, "batch_first": batch_first, "enforce_sorted": enforce_sorted,
            "total_length": total_length, "padding_value": padding_value, "data": f.store(packed.data),
            "batch_sizes": packed.batch_sizes.tolist(),
            "sorted_indices": None if packed.sorted_indices is None else packed.sorted_indices.tolist(),
            "unsorted_indices": None if packed.unsorted_indices is None else packed.unsorted_indices.tolist(),
            "padded": f.store(padded), "sizes": sizes.tolist(),
        })
    case(u(4, 3, 2), [4, 2, 1], False, True)
    case(u(3, 5, 2), [4, 4, 1], True, True, padding_value=-1.5)
    case(u(4, 3), [1, 3, 2], False, False, total_length=6)
    case(u(3, 4, 2, 2), [2, 4, 2], True, False)


def ctc(f):
    def case(time, batch, classes, targets, input_lengths, target_lengths, dtype=f64, **kwargs):
        shape = (time, batch, classes) if batch else (time, classes)
        logits = f.uniform(*shape, dtype=dtype, lo=-2.0, hi=2.0)
        log_probs = logits.log_softmax(-1).detach().requires_grad_()
        targets = torch.tensor(targets)
        as_tensor = lambda n: torch.tensor(n)
        loss = nn.functional.ctc_loss(log_probs, targets, as_tensor(input_lengths), as_tensor(target_lengths), **kwargs)
        dy = f.uniform(*loss.shape, dtype=dtype)
        dx, = torch.autograd.grad(loss, log_probs, dy)
        f.cases.append({
            "log_probs": f.store(log_probs), "targets": f.store(targets), "input_lengths": input_lengths,
            "target_lengths": target_lengths, "kwargs": kwargs, "loss": f.store(loss), "dy": f.store(dy), "dx": f.store(dx),
        })
    padded = [[1, 2, 2, 0], [3, 1, 4, 1], [2, 3, 0, 0]]
    for reduction in ("none", "mean", "sum"):
        case(6, 3, 5, padded, [6, 5, 6], [3, 4, 2], reduction=reduction)
        case(6, 3, 5, [1, 2, 2, 3, 1, 4, 1, 2, 3], [6, 6, 4], [3, 4, 2], reduction=reduction)
    case(6, 3, 5, padded, [6, 5, 6], [3, 4, 2], dtype=f32)
    case(6, 3, 5, [[0, 2, 2, 0], [3, 1, 0, 1], [2, 3, 0, 0]], [6, 5, 6], [3, 4, 2], blank=4, reduction="none")
    case(5, 2, 4, [[1, 2], [3, 3]], [5, 5], [0, 2], reduction="none")
    case(5, 2, 4, [[1, 2], [3, 3]], [5, 5], [0, 2], reduction="mean")
    case(3, 2, 4, [[1, 1], [2, 3]], [2, 3], [2, 2], reduction="none", zero_infinity=True)
    case(3, 2, 4, [[1, 1], [2, 3]], [2, 3], [2, 2], reduction="mean", zero_infinity=True)
    case(6, 0, 5, [1, 2, 2], 6, 3, reduction="sum")
    case(6, 0, 5, [1, 2, 2], 6, 3)


def main():
    check, differing = "--check" in sys.argv[1:], []
    FOLDER.mkdir(exist_ok=True)
    for seed, build in enumerate((attention, transformer, recurrent, pack, ctc)):
        family = Family(seed)
        build(family)
        path, data = FOLDER / f"{build.__name__}.safetensors", family.to_bytes()
        if not check:
            path.write_bytes(data)
        elif not path.exists() or path.read_bytes() != data:
            differing.append(path.name)
        print(f"{build.__name__}: {len(family.cases)} cases, {len(data) / 1024:.0f} KiB")
    if differing:
        sys.exit(f"differ from the committed data: {', '.join(differing)}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
