"""Averages of weights over training: ``torch.optim.swa_utils``."""

import copy

from .. import _C
from ..autograd.grad_mode import no_grad
from ..nn import Module
from .lr_scheduler import LRScheduler
from .lr_scheduler._base import as_list, check_optimizer

__all__ = [
    "AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]


def _check_decay(decay):
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_multi_avg_fn(decay=0.999):
    """An exponential moving average over lists of tensors."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list, current_param_list, _):
        _C._average_(list(ema_param_list), list(current_param_list), decay=decay)

    return ema_update


def get_swa_multi_avg_fn():
    """An equal average over lists of tensors."""

    @no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged):
        _C._average_(list(averaged_param_list), list(current_param_list), count=float(num_averaged))

    return swa_update


def get_ema_avg_fn(decay=0.999):
    """An exponential moving average of one tensor."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """An equal average of one tensor."""

    @no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model with averaged weights; ``update_parameters`` adds the model's current weights."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _C.tensor(0, dtype=_C.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _averaged(self, model):
        tensors = list(model.parameters())
        return tensors + list(model.buffers()) if self.use_buffers else tensors

    @no_grad()
    def update_parameters(self, model):
        """Adds the weights of ``model`` to the averages."""
        averages = self._averaged(self.module)
        currents = [current.detach().to(average.device) for average, current in zip(averages, self._averaged(model))]
        averages = [average.detach() for average in averages]
        if int(self.n_averaged) == 0:
            for average, current in zip(averages, currents):
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in zip(averages, currents):
                average.copy_(self.avg_fn(average, current, self.n_averaged.to(average.device)))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, currents, self.n_averaged)
        if not self.use_buffers:
            for average, current in zip(self.module.buffers(), model.buffers()):
                average.detach().copy_(current.detach().to(average.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader, model, device=None):
    """Recomputes the running statistics of batch norms from the batches of a loader."""
    from ..nn.modules.batchnorm import _BatchNorm

    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [module.momentum for module in norms]
    was_training = model.training
    model.train()
    for module in norms:
        module.reset_running_stats()
        # An equal average of all batches.
        module.momentum = None
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        model(batch if device is None else batch.to(device))
    for module, momentum in zip(norms, momenta):
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals to a learning rate for averaging over some epochs, then keeps it."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        check_optimizer(optimizer)
        for lr, group in zip(as_list(optimizer, "swa_lr", swa_lr), optimizer.param_groups):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        self._check_get_lr()
        step = self._step_count - 1
        return [
            _C._lr_swa(step, self.anneal_epochs, self._anneal_strategy, group["swa_lr"], group["lr"])
            for group in self.optimizer.param_groups
        ]
