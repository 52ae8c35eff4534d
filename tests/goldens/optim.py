"""PyTorch's answers for the optimizers, schedules, gradient scaler, clipping and weight averages of crates/optim.

    python tests/goldens/optim.py            writes data/optim
    python tests/goldens/optim.py --check    compares
"""

import json
import math
import pathlib
import sys
import warnings

import torch
from safetensors.torch import load_file, save_file

warnings.simplefilter("ignore")
torch.set_num_threads(1)
DATA = pathlib.Path(__file__).resolve().parent / "data" / "optim"
STEPS = 20
RECORDED = [1, 2, 6, 20]
SHAPES = {"any": [(3, 4), (7,), (), (2, 3, 5)], "matrices": [(6, 4), (4, 6), (5, 5), (1, 3)]}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}

tensors, report = {}, {"optimizers": [], "schedulers": [], "clip": [], "lbfgs": []}
generator = torch.Generator().manual_seed(7)

for kind, shapes in SHAPES.items():
    for i, shape in enumerate(shapes):
        tensors[f"{kind}/param/{i}"] = torch.randn(shape, generator=generator, dtype=torch.float64)
        # One gradient per step; those of bf16 precision are exact in every dtype but f16's smallest.
        grads = torch.randn((STEPS, *shape), generator=generator, dtype=torch.float64)
        tensors[f"{kind}/grad/{i}"] = grads.bfloat16().double()


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def flat(values):
    return torch.cat([v.detach().double().reshape(-1) for v in values])


def optimizer(name, cls, options, dtype="f32", kind="any", groups=None, fused=False):
    params = [
        tensors[f"{kind}/param/{i}"].to(DTYPES[dtype]).clone().requires_grad_() for i in range(len(SHAPES[kind]))
    ]
    extra = {"fused": True} if fused else {}
    what = params
    if groups:
        what = [{"params": [params[i] for i in g["params"]], **{k: v for k, v in g.items() if k != "params"}} for g in groups]
    opt = cls(what, **options, **extra)
    key = f"optimizer/{name}"
    for step in range(1, STEPS + 1):
        for i, p in enumerate(params):
            # The third parameter has a gradient every other step only.
            p.grad = None if i == 2 and step % 2 == 0 else tensors[f"{kind}/grad/{i}"][step - 1].to(p.dtype)
        opt.step()
        if step in RECORDED:
            tensors[f"{key}/step/{step}"] = flat(params)
    state = opt.state_dict()
    names = list(state["state"].get(0, {}).keys())
    for n in names:
        tensors[f"{key}/state/{n}"] = flat([state["state"][i][n] for i in range(len(params))])
    for group in state["param_groups"]:
        if "fused" in group:
            group["fused"] = None
    report["optimizers"].append(
        {
            "name": name, "optimizer": cls.__name__, "options": plain(options), "dtype": dtype, "kind": kind,
            "groups": plain(groups), "state": names, "param_groups": plain(state["param_groups"]),
        }
    )


O = torch.optim
for dtype in ["f32", "f64"]:
    optimizer(f"sgd-{dtype}", O.SGD, {"lr": 0.1}, dtype)
    optimizer(f"adam-{dtype}", O.Adam, {"lr": 0.01}, dtype)
    optimizer(f"rmsprop-{dtype}", O.RMSprop, {}, dtype)
    optimizer(f"adadelta-{dtype}", O.Adadelta, {}, dtype)
    optimizer(f"adamax-{dtype}", O.Adamax, {}, dtype)
for dtype in ["bf16", "f16"]:
    optimizer(f"sgd-{dtype}", O.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, dtype, fused=True)
    optimizer(f"adamw-{dtype}", O.AdamW, {"lr": 0.01}, dtype, fused=True)
    optimizer(f"adam-{dtype}", O.Adam, {"lr": 0.01, "amsgrad": True}, dtype, fused=True)
    optimizer(f"adagrad-{dtype}", O.Adagrad, {"lr": 0.05}, dtype, fused=True)
optimizer("sgd-momentum", O.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05})
optimizer("sgd-nesterov", O.SGD, {"lr": 0.1, "momentum": 0.8, "nesterov": True, "maximize": True})
optimizer("adam-all", O.Adam, {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1, "amsgrad": True, "maximize": True})
optimizer("adam-beta0", O.Adam, {"lr": 0.02, "betas": (0.0, 0.3)})
optimizer("adamw", O.AdamW, {"lr": 0.01, "weight_decay": 0.1})
optimizer("adamw-amsgrad", O.AdamW, {"lr": 0.01, "amsgrad": True, "maximize": True})
optimizer("nadam", O.NAdam, {"lr": 0.01})
optimizer("nadam-coupled", O.NAdam, {"lr": 0.01, "weight_decay": 0.1, "momentum_decay": 0.02})
optimizer("nadam-decoupled", O.NAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True})
optimizer("radam", O.RAdam, {"lr": 0.01})
optimizer("radam-coupled", O.RAdam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.9), "maximize": True})
optimizer("radam-decoupled", O.RAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True})
optimizer("adamax-decay", O.Adamax, {"lr": 0.01, "betas": (0.7, 0.9), "weight_decay": 0.1, "maximize": True})
optimizer("adagrad", O.Adagrad, {"lr": 0.05})
optimizer("adagrad-decay", O.Adagrad, {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "maximize": True})
optimizer("adadelta-decay", O.Adadelta, {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True})
optimizer("rmsprop-momentum", O.RMSprop, {"momentum": 0.9, "weight_decay": 0.1})
optimizer("rmsprop-centered", O.RMSprop, {"centered": True, "alpha": 0.9, "eps": 1e-3, "maximize": True})
optimizer("rmsprop-both", O.RMSprop, {"centered": True, "momentum": 0.5, "alpha": 0.9, "eps": 1e-3})
optimizer("groups", O.AdamW, {"lr": 0.01}, groups=[{"params": [0, 2]}, {"params": [1, 3], "lr": 0.1, "weight_decay": 0.0, "betas": (0.5, 0.9)}])
optimizer("muon", O.Muon, {"lr": 0.02}, kind="matrices")
optimizer("muon-rms", O.Muon, {"lr": 0.02, "nesterov": False, "momentum": 0.8, "weight_decay": 0.0, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}, kind="matrices")
optimizer("muon-spectral", O.Muon, {"lr": 0.02, "adjust_lr_fn": "spectral_unclamped", "ns_coefficients": (3.0, -4.0, 2.0)}, kind="matrices")

# ---- schedules: two groups, the learning rate (and momentum) after construction and after each step

S = torch.optim.lr_scheduler


def scheduled(name, make, spec, base="SGD", steps=45, metrics=None):
    groups = [{"params": [torch.zeros(1, requires_grad=True)]}, {"params": [torch.zeros(1, requires_grad=True)], "lr": 0.02}]
    opt = O.SGD(groups, lr=0.5, momentum=0.9) if base == "SGD" else O.Adam(groups, lr=0.5)
    scheduler = make(opt)
    row = lambda: [g["lr"] for g in opt.param_groups] + [
        g["momentum"] if base == "SGD" else g["betas"][0] for g in opt.param_groups
    ]
    rows = [row()]
    for step in range(steps):
        opt.step()
        scheduler.step(metrics[step]) if metrics else scheduler.step()
        rows.append(row())
    report["schedulers"].append(
        {"name": name, "spec": spec, "base": base, "rows": rows, "metrics": metrics, "state": plain(scheduler.state_dict())}
    )


def simple(cls, base="SGD", **options):
    spec = {"scheduler": cls.__name__, **options}
    name = "-".join([cls.__name__, base] + [f"{k}={v}" for k, v in options.items()])
    scheduled(name, lambda opt: cls(opt, **options), spec, base)


simple(S.StepLR, step_size=7)
simple(S.StepLR, step_size=10, gamma=0.5)
simple(S.MultiStepLR, milestones=[3, 10, 10, 30], gamma=0.3)
simple(S.ConstantLR)
simple(S.ConstantLR, factor=0.25, total_iters=12)
simple(S.LinearLR)
simple(S.LinearLR, start_factor=0.1, end_factor=0.7, total_iters=20)
simple(S.ExponentialLR, gamma=0.9)
simple(S.PolynomialLR)
simple(S.PolynomialLR, total_iters=30, power=2.5)
simple(S.CosineAnnealingLR, T_max=10)
simple(S.CosineAnnealingLR, T_max=45, eta_min=0.001)
simple(S.CosineAnnealingWarmRestarts, T_0=5)
simple(S.CosineAnnealingWarmRestarts, T_0=4, T_mult=2, eta_min=0.01)
simple(S.OneCycleLR, max_lr=0.3, total_steps=46)
simple(S.OneCycleLR, "Adam", max_lr=[0.3, 0.1], epochs=5, steps_per_epoch=10, pct_start=0.4, anneal_strategy="linear")
simple(S.OneCycleLR, "Adam", max_lr=0.3, total_steps=50, three_phase=True, div_factor=10.0, final_div_factor=100.0, base_momentum=0.6, max_momentum=0.9)
simple(S.OneCycleLR, max_lr=0.3, total_steps=50, cycle_momentum=False)
simple(S.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=5)
simple(S.CyclicLR, "Adam", base_lr=[0.01, 0.02], max_lr=0.1, step_size_up=5, step_size_down=9, mode="triangular2")
simple(S.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=5, mode="exp_range", gamma=0.95, cycle_momentum=False)
simple(O.swa_utils.SWALR, swa_lr=0.05)
simple(O.swa_utils.SWALR, swa_lr=[0.05, 0.3], anneal_epochs=7, anneal_strategy="linear")
simple(O.swa_utils.SWALR, "Adam", swa_lr=0.05, anneal_epochs=0)
scheduled("LambdaLR", lambda o: S.LambdaLR(o, lambda e: 0.95**e), {"scheduler": "LambdaLR"})
scheduled("MultiplicativeLR", lambda o: S.MultiplicativeLR(o, lambda e: 1 / (1 + 0.1 * e)), {"scheduler": "MultiplicativeLR"})
scheduled(
    "SequentialLR",
    lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, total_iters=5), S.CosineAnnealingLR(o, 20), S.ExponentialLR(o, 0.9)], [5, 30]),
    {"scheduler": "SequentialLR"},
)
scheduled(
    "ChainedScheduler",
    lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, total_iters=8), S.ExponentialLR(o, 0.95)]),
    {"scheduler": "ChainedScheduler"},
)
falling = [1 / (1 + 0.3 * min(i, 12)) + (0.002 if i % 3 else 0.0) for i in range(45)]
for options in [
    {}, {"patience": 2, "factor": 0.5, "cooldown": 3, "min_lr": [0.01, 0.001]},
    {"mode": "max", "patience": 1, "threshold": 0.01, "threshold_mode": "abs", "min_lr": 1e-4}, {"patience": 0, "threshold_mode": "abs", "threshold": 0.05},
]:
    scheduled(
        f"ReduceLROnPlateau-{options}", lambda o: S.ReduceLROnPlateau(o, **options),
        {"scheduler": "ReduceLROnPlateau", **options}, metrics=falling,
    )

# ---- gradient scaler: a parameter with gradient 1 times the scale, infinite at some steps

p = torch.zeros(3, requires_grad=True)
opt = O.SGD([p], lr=1.0)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_factor=2.0, backoff_factor=0.25, growth_interval=3)
rows = []
infinite = [5, 6, 11]
for step in range(16):
    opt.zero_grad()
    scaler.scale((p * torch.tensor([1.0, 2.0, 3.0])).sum()).backward()
    if step in infinite:
        p.grad[1] = float("nan") if step == 6 else float("inf")
    scaler.step(opt)
    scaler.update()
    rows.append([scaler.get_scale(), *p.tolist()])
report["scaler"] = {"rows": rows, "infinite": infinite, "state": scaler.state_dict()}

# ---- clipping

for norm_type in [2.0, 1.0, 3.0, 0.5, float("inf")]:
    for max_norm in [0.5, 1e3]:
        params = [torch.zeros_like(tensors[f"any/param/{i}"]).float().requires_grad_() for i in range(4)]
        for i, p in enumerate(params):
            p.grad = tensors[f"any/grad/{i}"][0].float()
        total = torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
        name = f"clip/{norm_type}/{max_norm}"
        tensors[name] = flat([p.grad for p in params])
        report["clip"].append({"name": name, "norm_type": plain(norm_type), "max_norm": max_norm, "total": total.item()})

# ---- L-BFGS: Rosenbrock's valley and a least squares problem in two parameters each, f64

matrix = torch.randn(5, 4, generator=generator, dtype=torch.float64)
target = torch.randn(5, generator=generator, dtype=torch.float64)
tensors["lbfgs/matrix"], tensors["lbfgs/target"] = matrix, target
for name, problem, options in [
    ("valley-wolfe", "valley", {"line_search_fn": "strong_wolfe"}),
    ("valley-few", "valley", {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 2, "lr": 0.8}),
    ("squares-plain", "squares", {"lr": 0.3, "max_iter": 7}),
    ("squares-wolfe", "squares", {"line_search_fn": "strong_wolfe", "max_iter": 5, "max_eval": 6, "maximize": True}),
]:
    a = torch.tensor([-1.2] if problem == "valley" else [0.5, -0.5], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0] if problem == "valley" else [1.0, 2.0], dtype=torch.float64, requires_grad=True)
    opt = O.LBFGS([a, b], **options)

    def closure():
        opt.zero_grad()
        if problem == "valley":
            loss = ((1 - a) ** 2 + 100 * (b - a**2) ** 2).sum()
        else:
            loss = ((matrix @ torch.cat([a, b]) - target) ** 2).sum()
            loss = -loss if options.get("maximize") else loss
        loss.backward()
        return loss

    rows = []
    for _ in range(4):
        loss = opt.step(closure)
        rows.append([loss.item(), *a.tolist(), *b.tolist()])
    state = opt.state_dict()
    report["lbfgs"].append(
        {
            "name": name, "problem": problem, "options": options, "rows": rows,
            "func_evals": state["state"][0]["func_evals"], "n_iter": state["state"][0]["n_iter"],
            "state": {k: type(v).__name__ for k, v in state["state"][0].items()}, "group": plain(state["param_groups"][0]),
        }
    )

# ---- averaged weights

layer = torch.nn.Linear(3, 2)
averaged = torch.optim.swa_utils.AveragedModel(layer, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
rows = []
for step in range(6):
    with torch.no_grad():
        for p in layer.parameters():
            p.fill_(float(step * step + 1))
    averaged.update_parameters(layer)
    rows.append([averaged.module.weight[0, 0].item(), averaged.module.bias[0].item()])
report["ema"] = {"rows": rows, "keys": list(averaged.state_dict().keys()), "n_averaged": averaged.n_averaged.item()}

tensors = {k: v.contiguous() for k, v in tensors.items()}
text = json.dumps(report, indent=None, separators=(",", ":")).replace('},{"name"', '},\n{"name"') + "\n"
if "--check" not in sys.argv:
    save_file(tensors, DATA / "tensors.safetensors")
    (DATA / "report.json").write_text(text)
else:
    def alike(a, b):
        """Equal, numbers to within what another machine's arithmetic may change."""
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
        if isinstance(a, list):
            return len(a) == len(b) and all(map(alike, a, b))
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7) if isinstance(a, float) and isinstance(b, float) else a == b

    committed = load_file(DATA / "tensors.safetensors")
    same = committed.keys() == tensors.keys() and all(torch.allclose(v, tensors[k], rtol=1e-5, atol=1e-7) for k, v in committed.items())
    if not same or not alike(json.loads((DATA / "report.json").read_text()), json.loads(text)):
        sys.exit("the optimizers' goldens differ from what this PyTorch gives")
