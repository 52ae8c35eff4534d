"""Optimizer steps made of tensor operations, for ``differentiable=True``: gradients pass through the step to gradients, state and learning rate."""

from .. import _C

_torch = _C._torch


def _kept(state, name, like, value=0.0):
    """A tensor of the state, created if missing."""
    if name not in state:
        state[name] = _torch.full_like(like.detach(), value)
    return state[name]


def _number(state, name, value=0.0):
    if name not in state:
        state[name] = _C.tensor(value, dtype=_C.float32)
    return float(state[name])


def _counted(state):
    """The number of this step."""
    step = _number(state, "step") + 1
    state["step"] = _C.tensor(step, dtype=_C.float32)
    return step


def _decayed(p, grad, group):
    """The gradient with weight decay, or decays the parameter itself."""
    if group.get("decoupled_weight_decay"):
        p.mul_(1 - group["lr"] * group["weight_decay"])
        return grad
    decay = group["weight_decay"]
    return grad + decay * p if isinstance(decay, _C.Tensor) or decay != 0 else grad


def _averages(state, grad, betas):
    first, second = betas
    state["exp_avg"] = first * _kept(state, "exp_avg", grad) + (1 - first) * grad
    state["exp_avg_sq"] = second * _kept(state, "exp_avg_sq", grad) + (1 - second) * grad * grad
    return state["exp_avg"], state["exp_avg_sq"]


def _sgd(p, grad, state, group):
    grad = _decayed(p, grad, group)
    if group["momentum"] != 0:
        old = state.get("momentum_buffer")
        # As in PyTorch, the first buffer is a copy without a history.
        state["momentum_buffer"] = grad.detach().clone() if old is None else group["momentum"] * old + (1 - group["dampening"]) * grad
        grad = grad + group["momentum"] * state["momentum_buffer"] if group["nesterov"] else state["momentum_buffer"]
    p.sub_(group["lr"] * grad)


def _adam(p, grad, state, group):
    step, (first, second) = _counted(state), group["betas"]
    grad = _decayed(p, grad, group)
    mean, square = _averages(state, grad, group["betas"])
    if group["amsgrad"]:
        square = state["max_exp_avg_sq"] = _torch.maximum(_kept(state, "max_exp_avg_sq", grad), square)
    p.sub_(group["lr"] / (1 - first**step) * mean / (square.sqrt() / (1 - second**step) ** 0.5 + group["eps"]))


def _nadam(p, grad, state, group):
    step, (first, second) = _counted(state), group["betas"]
    grad = _decayed(p, grad, group)
    mean, square = _averages(state, grad, group["betas"])
    mu, later = (first * (1 - 0.5 * 0.96 ** (at * group["momentum_decay"])) for at in (step, step + 1))
    product = _number(state, "mu_product", 1.0) * mu
    state["mu_product"] = _C.tensor(product, dtype=_C.float32)
    root = (square / (1 - second**step)).sqrt() + group["eps"]
    p.sub_(group["lr"] * (1 - mu) / (1 - product) * grad / root)
    p.sub_(group["lr"] * later / (1 - product * later) * mean / root)


def _radam(p, grad, state, group):
    step, (first, second) = _counted(state), group["betas"]
    grad = _decayed(p, grad, group)
    mean, square = _averages(state, grad, group["betas"])
    limit = 2 / (1 - second) - 1
    length = limit - 2 * step * second**step / (1 - second**step)
    mean = mean / (1 - first**step)
    if length > 5:
        rectified = ((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)) ** 0.5
        mean = mean * rectified * (1 - second**step) ** 0.5 / (square.sqrt() + group["eps"])
    p.sub_(group["lr"] * mean)


def _adamax(p, grad, state, group):
    step, (first, second) = _counted(state), group["betas"]
    grad = _decayed(p, grad, group)
    state["exp_avg"] = first * _kept(state, "exp_avg", grad) + (1 - first) * grad
    state["exp_inf"] = _torch.maximum(second * _kept(state, "exp_inf", grad), grad.abs() + group["eps"])
    p.sub_(group["lr"] / (1 - first**step) * state["exp_avg"] / state["exp_inf"])


def _adagrad(p, grad, state, group):
    step = _counted(state)
    grad = _decayed(p, grad, group)
    state["sum"] = _kept(state, "sum", grad, group["initial_accumulator_value"]) + grad * grad
    p.sub_(group["lr"] / (1 + (step - 1) * group["lr_decay"]) * grad / (state["sum"].sqrt() + group["eps"]))


def _adadelta(p, grad, state, group):
    _counted(state)
    grad, rho, eps = _decayed(p, grad, group), group["rho"], group["eps"]
    state["square_avg"] = rho * _kept(state, "square_avg", grad) + (1 - rho) * grad * grad
    delta = (_kept(state, "acc_delta", grad) + eps).sqrt() / (state["square_avg"] + eps).sqrt() * grad
    state["acc_delta"] = rho * state["acc_delta"] + (1 - rho) * delta * delta
    p.sub_(group["lr"] * delta)


def _rmsprop(p, grad, state, group):
    _counted(state)
    grad, alpha = _decayed(p, grad, group), group["alpha"]
    square = state["square_avg"] = alpha * _kept(state, "square_avg", grad) + (1 - alpha) * grad * grad
    if group["centered"]:
        state["grad_avg"] = alpha * _kept(state, "grad_avg", grad) + (1 - alpha) * grad
        square = square - state["grad_avg"] * state["grad_avg"]
    grad = grad / (square.sqrt() + group["eps"])
    if group["momentum"] > 0:
        grad = state["momentum_buffer"] = group["momentum"] * _kept(state, "momentum_buffer", grad) + grad
    p.sub_(group["lr"] * grad)


def _asgd(p, grad, state, group):
    eta, mu = _number(state, "eta", float(group["lr"])), _number(state, "mu", 1.0)
    step, lr, average = _counted(state), group["lr"], _kept(state, "ax", p)
    grad = _decayed(p, grad, group)
    p.mul_(1 - group["lambd"] * eta)
    p.sub_(eta * grad)
    state["ax"] = p.clone() if mu == 1 else average + (p - average) * mu
    state["eta"] = _C.tensor(float(lr) / (1 + group["lambd"] * float(lr) * step) ** group["alpha"], dtype=_C.float32)
    state["mu"] = _C.tensor(1 / max(1, step - group["t0"]), dtype=_C.float32)


def _rprop(p, grad, state, group):
    _counted(state)
    (low, high), (least, most) = group["etas"], group["step_sizes"]
    trend = (grad * _kept(state, "prev", grad)).sign()
    factor = _torch.where(trend > 0, high, _torch.where(trend < 0, low, 1.0))
    state["step_size"] = (_kept(state, "step_size", grad, float(group["lr"])) * factor).clamp(least, most)
    state["prev"] = grad = _torch.where(trend < 0, 0.0, grad)
    p.sub_(grad.sign() * state["step_size"])


_FORMULAS = {
    "SGD": _sgd, "Adam": _adam, "AdamW": _adam, "NAdam": _nadam, "RAdam": _radam, "Adamax": _adamax, "Adagrad": _adagrad, "Adadelta": _adadelta,
    "RMSprop": _rmsprop, "ASGD": _asgd, "Rprop": _rprop,
}


def step(optimizer):
    """One step of an optimizer, recorded for autograd."""
    formula = _FORMULAS[optimizer._formula]
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                formula(p, -p.grad if group["maximize"] else p.grad, optimizer.state[p], group)
