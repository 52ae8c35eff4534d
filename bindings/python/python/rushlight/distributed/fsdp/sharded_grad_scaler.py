"""Loss scaling of models whose parameters are sharded: a step is skipped on all ranks or on none."""

from ... import _C
from ...amp import grad_scaler
from ...distributed import distributed_c10d as dist

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(grad_scaler.GradScaler):
    """``GradScaler`` whose check for infinities is that of all ranks of ``process_group``. Gradients may be in half precision."""

    def __init__(
        self, device="cuda", init_scale=2.0**16, backoff_factor=0.5, growth_factor=2.0, growth_interval=2000, enabled=True, process_group=None,
    ):
        super().__init__(device, init_scale=init_scale, backoff_factor=backoff_factor, growth_factor=growth_factor, growth_interval=growth_interval, enabled=enabled)
        self.process_group = process_group

    def _groups(self, optimizer):
        group = dist.group.WORLD if self.process_group is None else self.process_group
        return [group] if group is not None else super()._groups(optimizer)

    def unscale_(self, optimizer):
        """Divides the gradients of an optimizer's parameters by the scale."""
        if not self._enabled:
            return
        grads = grad_scaler._gradients(optimizer)
        self._unscaled[id(optimizer)] = verdict = self._verdict(optimizer, grads, self._groups(optimizer))
        for grad in grads:
            if grad.dtype == _C.float16:
                grad.copy_(grad.float() / self.get_scale())
        self._scaler.unscale_(id(optimizer), [*(grad for grad in grads if grad.dtype != _C.float16), verdict])
