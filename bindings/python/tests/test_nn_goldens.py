"""Layers and losses against PyTorch's answers: printing, state dicts, outputs, gradients, buffers, initial values."""

import json

import goldens
import pytest

import rushlight as torch
from goldens import DEVICE
from rushlight import nn
from rushlight.nn.utils import rnn as rnn_utils

FOLDER = goldens.DATA / "nn"
_layers = goldens.File(FOLDER / "layers.safetensors")
LAYERS = json.loads(_layers.metadata["cases"])


def close(found, expected, what, rtol=1e-5, atol=2e-6):
    goldens.assert_close(found, expected.to(found.dtype), rtol, atol, what)


def as_tuples(options):
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}


def construct(case):
    options = as_tuples(case["options"])
    options.update((name, _layers[tensor]) for name, tensor in case["tensor_options"].items())
    name, _, inner = case["layer"].rstrip(")").partition("(")
    if not inner:
        return getattr(nn, name)(**options)
    # `weight_norm(Linear)`: the layer with a parametrization, whose options begin with `by_`.
    by = {k[len("by_"):]: options.pop(k) for k in list(options) if k.startswith("by_")}
    return getattr(nn.utils.parametrizations, name)(getattr(nn, inner)(**options), **by)


@pytest.mark.parametrize("case", LAYERS, ids=lambda c: f"{LAYERS.index(c)}-{c['layer']}")
def test_layer(case):
    module = construct(case)
    assert case["repr"] in (None, str(module))
    assert list(module.state_dict()) == case["keys"]
    state = {name: _layers[tensor] for name, tensor in case["state"].items()}
    assert str(module.load_state_dict(state)) == "<All keys matched successfully>"
    module.double().to(DEVICE).train(case["train"])
    inputs = [_layers[name].to(DEVICE) for name in case["inputs"]]
    wanted = [name is not None for name in case.get("dx", [])] or [True] * len(inputs)
    inputs = [x.double().requires_grad_(wants) if x.is_floating_point() else x for x, wants in zip(inputs, wanted)]
    for _ in range(case["repeat"]):
        outputs = module(*inputs, **case.get("forward", {}))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for found, name in zip(outputs, case["outputs"]):
        close(found, _layers[name], name)
    if "dy" in case:
        outputs[0].backward(_layers[case["dy"]].double().to(DEVICE))
        for x, name in zip(inputs, case["dx"]):
            if name is not None:
                close(x.grad, _layers[name], name)
        for name, gradient in case["grads"].items():
            close(module.get_parameter(name).grad, _layers[gradient], gradient)
    for name, tensor in case["after"].items():
        close(module.state_dict()[name], _layers[tensor], tensor)


def sequence_cases():
    for family in ("attention", "transformer", "recurrent"):
        file = goldens.File(FOLDER / "sequence" / f"{family}.safetensors")
        for case in json.loads(file.metadata["cases"]):
            yield pytest.param(file, case, id=case["id"])


def construct_sequence(kind, config):
    config = {k: v for k, v in config.items() if k != "dtype"}
    if kind in ("TransformerEncoder", "TransformerDecoder"):
        norm = nn.LayerNorm(config["d_model"]) if config.pop("norm") else None
        layers = config.pop("num_layers")
        return getattr(nn, kind)(getattr(nn, kind + "Layer")(**config), layers, norm)
    return getattr(nn, kind)(**config)


def flatten(result):
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in flatten(part)]
    return [result]


def run_sequence(kind, module, args, kwargs):
    if kind in ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"):
        x, *states = args
        states = tuple(states) if len(states) == 2 else states[0] if states else None
        if "lengths" in kwargs:
            packed = rnn_utils.pack_padded_sequence(x, kwargs["lengths"], module.batch_first, kwargs["enforce_sorted"])
            out, state = module(packed, states)
            return rnn_utils.pad_packed_sequence(out, module.batch_first)[0], state
        return module(x, states)
    return module(*args, **kwargs)


@pytest.mark.parametrize(("file", "case"), list(sequence_cases()))
def test_sequence(file, case):
    dtype = getattr(torch, case["config"]["dtype"])
    tolerance = dict(rtol=1e-9, atol=1e-10) if dtype == torch.float64 else dict(rtol=1e-4, atol=1e-5)
    module = construct_sequence(case["module"], case["config"]).to(DEVICE, dtype)
    assert [name for name, _ in module.named_parameters()] == case["parameters"]
    # One name twice is one tensor.
    known = {}

    def tensor(name):
        if name is not None and name not in known:
            known[name] = file[name].to(DEVICE)
            if known[name].is_floating_point():
                known[name].requires_grad_()
        return None if name is None else known[name]

    with torch.no_grad():
        nn.utils.vector_to_parameters(file[case["state"]].to(DEVICE, copy=True), module.parameters())
    args = [tensor(name) for name in case["args"]]
    kwargs = {k: file[v["tensor"]].to("cpu" if k == "lengths" else DEVICE) if isinstance(v, dict) else v for k, v in case["kwargs"].items()}
    outputs = flatten(run_sequence(case["module"], module, args, kwargs))
    assert len(outputs) == len(case["outputs"])
    for found, name in zip(outputs, case["outputs"]):
        if name is None:
            assert found is None
        else:
            close(found, file[name], name, **tolerance)
    live = [(o, file[d].to(DEVICE)) for o, d in zip(outputs, case["grad"]["dy"]) if d is not None]
    torch.autograd.backward([o for o, _ in live], [d for _, d in live])
    for arg, name in zip(args, case["grad"]["args"]):
        if name is not None:
            close(arg.grad, file[name], f"gradient of {name}", **tolerance)
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
    close(torch.cat([g.flatten() for g in gradients]), file[case["grad"]["state"]], "gradients of the parameters", **tolerance)


def test_packed_sequences():
    file = goldens.File(FOLDER / "sequence" / "pack.safetensors")
    for case in json.loads(file.metadata["cases"]):
        x = file[case["x"]].to(DEVICE)
        packed = rnn_utils.pack_padded_sequence(x, case["lengths"], case["batch_first"], case["enforce_sorted"])
        assert torch.equal(packed.data.cpu(), file[case["data"]])
        assert packed.batch_sizes.tolist() == case["batch_sizes"]
        for name in ("sorted_indices", "unsorted_indices"):
            found = getattr(packed, name)
            assert (None if found is None else found.tolist()) == case[name]
        padded, sizes = rnn_utils.pad_packed_sequence(packed, case["batch_first"], case["padding_value"], case["total_length"])
        assert torch.equal(padded.cpu(), file[case["padded"]])
        assert sizes.tolist() == case["sizes"]


def test_ctc():
    file = goldens.File(FOLDER / "sequence" / "ctc.safetensors")
    for case in json.loads(file.metadata["cases"]):
        log_probs = file[case["log_probs"]].to(DEVICE).requires_grad_()
        lengths = [torch.tensor(case[name]) for name in ("input_lengths", "target_lengths")]
        loss = nn.CTCLoss(**case["kwargs"])(log_probs, file[case["targets"]].to(DEVICE), *lengths)
        close(loss, file[case["loss"]], "loss")
        loss.backward(file[case["dy"]].to(DEVICE))
        close(log_probs.grad, file[case["dx"]], "gradient")


def test_initial_values():
    golden = json.loads((FOLDER / "init.json").read_text())
    for row in golden["statistics"]:
        if "layer" in row:
            tensors = getattr(nn, row["layer"])(**as_tuples(row["options"])).state_dict()
        else:
            tensors = {"tensor": getattr(nn.init, row["function"])(torch.empty(60, 40, 3), **row["options"])}
        what = row.get("layer", row.get("function"))
        assert tensors.keys() == row["state"].keys()
        for name, expected in row["state"].items():
            found = tensors[name].double()
            assert list(found.shape) == expected["shape"], f"{what}.{name}"
            spread = max(expected["std"], 1e-12)
            # Two samples of one distribution: five standard errors of their means, and of their deviations.
            error = 5 * spread * (2 / found.numel()) ** 0.5 + 1e-9
            assert abs(found.mean().item() - expected["mean"]) <= error, f"{what}.{name}: mean"
            assert abs(found.std(correction=0).item() - expected["std"]) <= error, f"{what}.{name}: std"
            bound = expected["max"] - expected["min"]
            assert found.min().item() >= expected["min"] - 0.35 * bound - 1e-9, f"{what}.{name}: min"
            assert found.max().item() <= expected["max"] + 0.35 * bound + 1e-9, f"{what}.{name}: max"
    for row in golden["exact"]:
        found = getattr(nn.init, row["function"])(torch.empty(row["shape"]), **row["options"])
        assert found.flatten().tolist() == row["values"]
    for row in golden["gains"]:
        assert nn.init.calculate_gain(row["nonlinearity"], row["param"]) == pytest.approx(row["gain"])
