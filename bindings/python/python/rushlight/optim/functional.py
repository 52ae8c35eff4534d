"""``torch.optim.functional``: steps over lists of parameters, gradients and state, which they change in place."""

from .. import _C
from . import _differentiable as _formulas

__all__ = ["adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd"]


def _steps(formula, params, grads, lists, maximize, differentiable, **group):
    """A step by a formula for each parameter. ``lists`` has the state by name; a None in it is created."""
    before = _C._set_grad_enabled(differentiable)
    try:
        for at, (p, grad) in enumerate(zip(params, grads)):
            kept = {name: values[at] for name, values in lists.items()}
            state = {name: value for name, value in kept.items() if value is not None}
            formula(p, -grad if maximize else grad, state, group)
            for name, old in kept.items():
                if old is None:
                    lists[name][at] = state.get(name)
                elif state[name] is not old:
                    old.copy_(state[name])
    finally:
        _C._set_grad_enabled(before)


def sgd(
    params, d_p_list, momentum_buffer_list, has_sparse_grad=False, foreach=None, fused=None, grad_scale=None, found_inf=None, *, weight_decay, momentum, lr,
    dampening, nesterov, maximize,
):
    """A step of :class:`~torch.optim.SGD`."""
    lists = {"momentum_buffer": momentum_buffer_list} if momentum else {}
    _steps(_formulas._sgd, params, d_p_list, lists, maximize, False, weight_decay=weight_decay, momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov)


def adam(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach=None, capturable=False, differentiable=False, fused=None, grad_scale=None,
    found_inf=None, has_complex=False, decoupled_weight_decay=False, *, amsgrad, beta1, beta2, lr, weight_decay, eps, maximize,
):
    """A step of :class:`~torch.optim.Adam`."""
    lists = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "step": state_steps, **({"max_exp_avg_sq": max_exp_avg_sqs} if amsgrad else {})}
    _steps(
        _formulas._adam, params, grads, lists, maximize, differentiable, amsgrad=amsgrad, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay, eps=eps,
        decoupled_weight_decay=decoupled_weight_decay,
    )


def adamw(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *args, **options):
    """A step of :class:`~torch.optim.AdamW`: of Adam with ``decoupled_weight_decay``."""
    adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *args, **{**options, "decoupled_weight_decay": True})


def nadam(
    params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps, decoupled_weight_decay=False, foreach=None, capturable=False, differentiable=False,
    has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay, momentum_decay, eps,
):
    """A step of :class:`~torch.optim.NAdam`."""
    lists = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "mu_product": mu_products, "step": state_steps}
    _steps(
        _formulas._nadam, params, grads, lists, maximize, differentiable, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay, momentum_decay=momentum_decay,
        eps=eps, decoupled_weight_decay=decoupled_weight_decay,
    )


def radam(
    params, grads, exp_avgs, exp_avg_sqs, state_steps, decoupled_weight_decay=False, foreach=None, differentiable=False, capturable=False, has_complex=False,
    maximize=False, *, beta1, beta2, lr, weight_decay, eps,
):
    """A step of :class:`~torch.optim.RAdam`."""
    lists = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "step": state_steps}
    _steps(
        _formulas._radam, params, grads, lists, maximize, differentiable, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay, eps=eps,
        decoupled_weight_decay=decoupled_weight_decay,
    )


def adamax(
    params, grads, exp_avgs, exp_infs, state_steps, foreach=None, maximize=False, differentiable=False, capturable=False, has_complex=False, *, eps, beta1,
    beta2, lr, weight_decay,
):
    """A step of :class:`~torch.optim.Adamax`."""
    lists = {"exp_avg": exp_avgs, "exp_inf": exp_infs, "step": state_steps}
    _steps(_formulas._adamax, params, grads, lists, maximize, differentiable, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay, eps=eps)


def adagrad(
    params, grads, state_sums, state_steps, fused=None, grad_scale=None, found_inf=None, has_sparse_grad=False, foreach=None, differentiable=False,
    has_complex=False, *, lr, weight_decay, lr_decay, eps, maximize,
):
    """A step of :class:`~torch.optim.Adagrad`."""
    lists = {"sum": state_sums, "step": state_steps}
    _steps(
        _formulas._adagrad, params, grads, lists, maximize, differentiable, lr=lr, weight_decay=weight_decay, lr_decay=lr_decay, eps=eps,
        initial_accumulator_value=0.0,
    )


def adadelta(
    params, grads, square_avgs, acc_deltas, state_steps, capturable=False, foreach=None, differentiable=False, has_complex=False, *, lr, rho, eps, weight_decay,
    maximize,
):
    """A step of :class:`~torch.optim.Adadelta`."""
    lists = {"square_avg": square_avgs, "acc_delta": acc_deltas, "step": state_steps}
    _steps(_formulas._adadelta, params, grads, lists, maximize, differentiable, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay)


def rmsprop(
    params, grads, square_avgs, grad_avgs, momentum_buffer_list, state_steps, foreach=None, maximize=False, differentiable=False, capturable=False,
    has_complex=False, *, lr, alpha, eps, weight_decay, momentum, centered,
):
    """A step of :class:`~torch.optim.RMSprop`."""
    lists = {"square_avg": square_avgs, "step": state_steps}
    lists.update({"grad_avg": grad_avgs} if centered else {})
    lists.update({"momentum_buffer": momentum_buffer_list} if momentum > 0 else {})
    _steps(
        _formulas._rmsprop, params, grads, lists, maximize, differentiable, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
        centered=centered,
    )


def asgd(
    params, grads, axs, mus, etas, state_steps, foreach=None, maximize=False, differentiable=False, capturable=False, has_complex=False, *, lambd, lr, t0,
    alpha, weight_decay,
):
    """A step of :class:`~torch.optim.ASGD`."""
    lists = {"ax": axs, "mu": mus, "eta": etas, "step": state_steps}
    _steps(_formulas._asgd, params, grads, lists, maximize, differentiable, lambd=lambd, lr=lr, t0=t0, alpha=alpha, weight_decay=weight_decay)


def rprop(
    params, grads, prevs, step_sizes, state_steps, foreach=None, capturable=False, maximize=False, differentiable=False, has_complex=False, *, step_size_min,
    step_size_max, etaminus, etaplus,
):
    """A step of :class:`~torch.optim.Rprop`."""
    lists = {"prev": prevs, "step_size": step_sizes, "step": state_steps}
    _steps(_formulas._rprop, params, grads, lists, maximize, differentiable, lr=0.0, etas=(etaminus, etaplus), step_sizes=(step_size_min, step_size_max))
