"""Optimizers against PyTorch's steps (tests/goldens/optim.py), and what all of them promise."""

import copy
import json
import pickle

import pytest
from goldens import DATA, DEVICE, File

import rushlight as torch
from rushlight import optim

REPORT = json.loads((DATA / "optim" / "report.json").read_text())
PYTHON = json.loads((DATA / "optim" / "python.json").read_text())
TENSORS = File(DATA / "optim" / "tensors.safetensors")
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCE = {"f32": 2e-6, "f64": 1e-12, "bf16": 1e-2, "f16": 2e-3}


def tuples(options):
    return {k: tuple(v) if isinstance(v, list) else v for k, v in (options or {}).items()}


def flat(tensors):
    return torch.cat([t.detach().cpu().double().reshape(-1) for t in tensors])


def close(found, expected, tolerance, what):
    error = (found - expected).abs() - tolerance * expected.abs()
    assert error.max().item() <= tolerance, f"{what}: {found} is not {expected}"


def recorded(name):
    return sorted(int(n.rsplit("/", 1)[1]) for n in TENSORS._entries if n.startswith(f"optimizer/{name}/step/"))


@pytest.mark.parametrize("case", REPORT["optimizers"], ids=lambda c: c["name"])
def test_steps_and_state_are_pytorchs(case):
    kind, dtype, key = case["kind"], DTYPES[case["dtype"]], f"optimizer/{case['name']}"
    count = sum(n.startswith(f"{kind}/param/") for n in TENSORS._entries)
    params = [TENSORS[f"{kind}/param/{i}"].to(DEVICE, dtype).requires_grad_() for i in range(count)]
    grads = [TENSORS[f"{kind}/grad/{i}"].to(DEVICE, dtype) for i in range(count)]
    what = params
    if case["groups"]:
        what = [dict(tuples(g), params=[params[i] for i in g["params"]]) for g in case["groups"]]
    optimizer = getattr(optim, case["optimizer"])(what, **tuples(case["options"]))
    steps = recorded(case["name"])
    tolerance = TOLERANCE[case["dtype"]] if kind == "any" else 2e-2
    for step in range(1, grads[0].shape[0] + 1):
        for i, p in enumerate(params):
            p.grad = None if i == 2 and step % 2 == 0 else grads[i][step - 1]
        if step == 3:
            # A round trip through the state dict changes nothing.
            kept = pickle.loads(pickle.dumps(optimizer.state_dict()))
            optimizer = getattr(optim, case["optimizer"])(what if not case["groups"] else [dict(g) for g in what], lr=7.0)
            optimizer.load_state_dict(kept)
        optimizer.step()
        if step in steps:
            close(flat(params), TENSORS[f"{key}/step/{step}"], tolerance * step, f"{case['name']} step {step}")
    state = optimizer.state_dict()
    assert set(state["state"].get(0, {})) == set(case["state"])
    for name in case["state"]:
        found = flat([state["state"][i][name] for i in range(count)])
        close(found, TENSORS[f"{key}/state/{name}"], tolerance * grads[0].shape[0], f"{case['name']} {name}")
    plain = json.loads(json.dumps(state["param_groups"]))
    assert plain == case["param_groups"]


@pytest.mark.parametrize("case", REPORT["lbfgs"], ids=lambda c: c["name"])
def test_lbfgs(case):
    matrix, target = TENSORS["lbfgs/matrix"], TENSORS["lbfgs/target"]
    valley = case["problem"] == "valley"
    a = torch.tensor([-1.2] if valley else [0.5, -0.5], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0] if valley else [1.0, 2.0], dtype=torch.float64, requires_grad=True)
    optimizer = optim.LBFGS([a, b], **case["options"])

    def closure():
        optimizer.zero_grad()
        if valley:
            loss = ((1 - a) ** 2 + 100 * (b - a**2) ** 2).sum()
        else:
            loss = ((matrix @ torch.cat([a, b]) - target) ** 2).sum()
            loss = -loss if case["options"].get("maximize") else loss
        loss.backward()
        return loss

    for row in case["rows"]:
        loss = optimizer.step(closure)
        assert [loss.item(), *a.tolist(), *b.tolist()] == pytest.approx(row, rel=1e-5, abs=1e-8)
    kept = optimizer.state_dict()["state"][0]
    assert kept["func_evals"] == case["func_evals"] and kept["n_iter"] == case["n_iter"]
    assert set(kept) == set(case["state"])


def parameter(*shape):
    return torch.zeros(*shape or (2,), requires_grad=True)


@pytest.mark.parametrize("case", PYTHON["optimizers"], ids=lambda c: c["optimizer"])
def test_optimizers_written_in_python(case):
    params = [torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_(),
              torch.linspace(1, -1, 3, dtype=torch.float64).requires_grad_()]
    optimizer = getattr(optim, case["optimizer"])(params, **tuples(case["options"]))
    for step, row in enumerate(case["rows"]):
        for i, p in enumerate(params):
            p.grad = torch.sin(torch.arange(p.numel(), dtype=torch.float64) * 3 + step * 2 + i).reshape(p.shape)
        optimizer.step()
        assert flat(params).tolist() == pytest.approx(row, rel=1e-6, abs=1e-8)
    for i, kept in optimizer.state_dict()["state"].items():
        expected = case["state"][str(i)]
        assert set(kept) == set(expected)
        for name, value in kept.items():
            close(value.double(), torch.tensor(expected[name], dtype=torch.float64), 1e-6, name)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: optim.SGD([]), "optimizer got an empty parameter list"),
        (lambda: optim.SGD([parameter()], lr=-1), "Invalid learning rate: -1"),
        (lambda: optim.SGD([parameter()], momentum=-1), "Invalid momentum value: -1"),
        (lambda: optim.SGD([parameter()], nesterov=True), "Nesterov momentum requires a momentum and zero dampening"),
        (lambda: optim.SGD([parameter() * 2]), "can't optimize a non-leaf Tensor"),
        (lambda: optim.SGD([parameter()], lr=torch.tensor([1.0, 2.0])), "Tensor lr must be 1-element"),
        (lambda: optim.Adam([parameter()], betas=(1.0, 0.9)), "Invalid beta parameter at index 0: 1.0"),
        (lambda: optim.Adam([parameter()], eps=-1), "Invalid epsilon value: -1"),
        (lambda: optim.NAdam([parameter()], momentum_decay=-1), "Invalid momentum_decay value: -1"),
        (lambda: optim.Adadelta([parameter()], rho=2), "Invalid rho value: 2"),
        (lambda: optim.Adagrad([parameter()], lr_decay=-1), "Invalid lr_decay value: -1"),
        (lambda: optim.RMSprop([parameter()], alpha=-1), "Invalid alpha value: -1"),
        (lambda: optim.Rprop([parameter()], etas=(1.2, 0.5)), "Invalid eta values: 1.2, 0.5"),
        (lambda: optim.Muon([parameter()]), "Muon only supports 2D parameters whereas we found a parameter with size"),
        (lambda: optim.Adafactor([parameter()], d=0.5), "Clipping threshold d should be >= 1 but is: 0.5"),
        (lambda: optim.LBFGS([{"params": [parameter()]}, {"params": [parameter()]}]), "LBFGS doesn't support per-parameter options"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("?", r"\?")):
        make()


def test_kinds_of_arguments():
    p = parameter()
    for params, message in [(p, "should be an iterable of Tensors or dicts"), ([1], "one of the params is int"),
                            ([{"params": {p}}], "ordered collections")]:
        with pytest.raises(TypeError, match=message):
            optim.SGD(params)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": p}])
    with pytest.warns(UserWarning, match="duplicate"):
        optim.SGD([p, p])
    with pytest.raises(ValueError, match="learning rate"):
        optim.SparseAdam([p], lr=-1.0)
    with pytest.raises(RuntimeError, match="does not support `differentiable`"):
        optim.SGD([p], differentiable=True, fused=True)
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        optim.Adam([p], foreach=True, fused=True)
    with pytest.raises(TypeError, match="lr cannot be a"):
        optimizer = optim.SGD([p])
        optimizer.param_groups[0]["lr"] = object()
        p.grad = torch.ones(2)
        optimizer.step()


def test_groups_may_be_edited_and_named():
    a, b = parameter(), parameter()
    optimizer = optim.SGD([("a", a)], lr=1.0)
    assert optimizer.param_groups[0]["param_names"] == ["a"]
    optimizer = optim.SGD([{"params": [a], "lr": 1.0, "mine": "kept"}, {"params": [b]}], lr=2.0)
    a.grad, b.grad = torch.ones(2), torch.ones(2)
    optimizer.param_groups[1]["lr"] = torch.tensor(3.0)
    optimizer.step()
    assert a.tolist() == [-1.0, -1.0] and b.tolist() == [-3.0, -3.0]
    assert optimizer.state_dict()["param_groups"][0]["mine"] == "kept"
    assert repr(optim.SGD([a])).startswith("SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n")


def test_closures_hooks_and_zero_grad():
    p = parameter()
    optimizer = optim.Adam([p])
    seen = []
    handles = [
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before")),
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after")),
        optim.optimizer.register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("all")),
    ]

    def closure():
        seen.append("closure")
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = (p - 1).square().sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert seen == ["before", "closure", "after", "all"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 4
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.register_state_dict_post_hook(lambda o, d: dict(d, extra=1))
    assert optimizer.state_dict()["extra"] == 1


def test_users_write_optimizers():
    class Descent(optim.Optimizer):
        def __init__(self, params, lr=optim.optimizer.required):
            super().__init__(params, dict(lr=lr))

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["count"] = self.state[p].get("count", 0) + 1
                    p.add_(p.grad, alpha=-group["lr"])

    with pytest.raises(ValueError, match="required"):
        Descent([parameter()])
    p = parameter()
    optimizer = Descent([p], lr=0.5)
    calls = []
    optimizer.register_step_pre_hook(lambda *a: calls.append(1))
    p.grad = torch.ones(2)
    optimizer.step()
    assert p.tolist() == [-0.5, -0.5] and calls == [1]
    assert optimizer.state_dict()["state"] == {0: {"count": 1}}
    with pytest.raises(NotImplementedError):
        optim.Optimizer([p], {}).step()


def test_state_moves_with_copies_and_refuses_other_shapes_of_groups():
    p = parameter()
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    p.grad = torch.ones(2)
    optimizer.step()
    other = copy.deepcopy(optimizer)
    (q,) = other.param_groups[0]["params"]
    assert q is not p and other.state[q]["momentum_buffer"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(ValueError, match="doesn't match the size"):
        optimizer.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})
    # Steps that older files keep as numbers.
    adam = optim.Adam([p])
    kept = {"step": 3, "exp_avg": torch.zeros(2), "exp_avg_sq": torch.zeros(2)}
    adam.load_state_dict({"state": {0: kept}, "param_groups": [{"params": [0], "lr": 0.5}]})
    adam.step()
    assert adam.state[p]["step"].item() == 4 and adam.param_groups[0]["betas"] == (0.9, 0.999)


def test_tensors_that_are_not_contiguous():
    base = torch.arange(6.0).reshape(2, 3)
    p = base.t().detach().requires_grad_()
    p.grad = torch.ones(2, 3).t()
    optimizer = optim.Adam([p], lr=0.5)
    optimizer.step()
    assert torch.allclose(base, torch.arange(6.0).reshape(2, 3) - 0.5)


def test_averaged_models():
    swa = optim.swa_utils
    layer = torch.nn.Linear(3, 2)
    averaged = swa.AveragedModel(layer, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    for step, row in enumerate(REPORT["ema"]["rows"]):
        with torch.no_grad():
            for p in layer.parameters():
                p.fill_(float(step * step + 1))
        averaged.update_parameters(layer)
        assert [averaged.module.weight[0, 0].item(), averaged.module.bias[0].item()] == pytest.approx(row, rel=1e-6)
    assert list(averaged.state_dict()) == REPORT["ema"]["keys"] and averaged.n_averaged.item() == REPORT["ema"]["n_averaged"]
    mean = swa.AveragedModel(layer)
    for value in (1.0, 2.0, 6.0):
        with torch.no_grad():
            layer.bias.fill_(value)
        mean.update_parameters(layer)
    assert mean.module.bias.tolist() == pytest.approx([3.0, 3.0])
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(1))
    swa.update_bn([torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])], model)
    assert model[0].running_mean.item() == pytest.approx(4.0) and model[0].momentum == 0.1


def test_clipping_is_pytorchs():
    for case in REPORT["clip"]:
        params = [torch.zeros_like(TENSORS[f"any/param/{i}"]).float().requires_grad_() for i in range(4)]
        for i, p in enumerate(params):
            p.grad = TENSORS[f"any/grad/{i}"][0].float()
        total = torch.nn.utils.clip_grad_norm_(params, case["max_norm"], float(case["norm_type"]))
        assert total.item() == pytest.approx(case["total"], rel=1e-5)
        close(flat([p.grad for p in params]), TENSORS[case["name"]], 1e-5, case["name"])
