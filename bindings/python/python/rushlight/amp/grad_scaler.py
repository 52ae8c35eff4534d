"""Loss scaling, so that half-precision gradients do not underflow."""

from collections import abc

from .. import _C


def _gradients(optimizer):
    """This rank's gradients: parts of distributed tensors."""
    found = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return [getattr(grad, "_local_tensor", grad) for grad in found]


def _meshes(optimizer):
    """The groups of ranks that have other parts of the parameters."""
    meshes = [getattr(p, "device_mesh", None) for group in optimizer.param_groups for p in group["params"] if hasattr(p, "_local_tensor")]
    unique = [mesh for i, mesh in enumerate(meshes) if all(mesh is not other for other in meshes[:i])]
    return [mesh.get_group(dim) for mesh in unique for dim in range(mesh.ndim)]


class GradScaler:
    """Scales losses up and gradients down, skips steps whose gradients are not finite, and adapts the scale.

    The scaler is Rust's (`rushlight-optim`). In a captured step ``scale``, ``unscale_``, ``step`` and ``update`` belong inside, with
    one optimizer: the device then decides at each replay whether to step.
    """

    def __init__(self, device="cuda", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._device, self._enabled = device, enabled
        # Verdicts of all ranks about the gradients of optimizers, by id.
        self._unscaled = {}
        self._scaler = _C._GradScaler(float(init_scale), growth_factor, backoff_factor, growth_interval)

    def scale(self, outputs):
        """Outputs times the scale: a tensor, or tensors in nested iterables."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, _C.Tensor):
            return self._scaler.scale(outputs)
        if isinstance(outputs, abc.Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _groups(self, optimizer):
        """The process groups whose ranks step together, or not at all."""
        return _meshes(optimizer)

    def _verdict(self, optimizer, grads, groups):
        """A tensor that is infinite if a gradient of any rank is not finite."""
        from ..distributed import ReduceOp, all_reduce

        infinite = not all(_C._torch.isfinite(grad).all().item() for grad in grads)
        device = optimizer.param_groups[0]["params"][0].device
        flag = _C._torch.full((1,), float("inf") if infinite else 0.0, device=device)
        for group in groups:
            all_reduce(flag, op=ReduceOp.MAX, group=group)
        return flag

    def unscale_(self, optimizer):
        """Divides the gradients of an optimizer's parameters by the scale. Where ranks have parts of them, all ranks find the same."""
        if not self._enabled:
            return
        grads, groups = _gradients(optimizer), self._groups(optimizer)
        if groups:
            self._unscaled[id(optimizer)] = verdict = self._verdict(optimizer, grads, groups)
            grads = [*grads, verdict]
        self._scaler.unscale_(id(optimizer), grads)

    def step(self, optimizer, *args, **kwargs):
        """The optimizer's step, unless its gradients are not finite. Returns the result of the optimizer's step."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if id(optimizer) not in self._unscaled and self._groups(optimizer):
            self.unscale_(optimizer)
        verdict = self._unscaled.get(id(optimizer))
        return self._scaler.step(id(optimizer), _gradients(optimizer) if verdict is None else [verdict], lambda: optimizer.step(*args, **kwargs))

    def update(self, new_scale=None):
        """Adapts the scale after all steps of an iteration."""
        if self._enabled:
            self._unscaled.clear()
            self._scaler.update(None if new_scale is None else float(new_scale))

    def get_scale(self):
        return self._scaler.get_scale() if self._enabled else 1.0

    @property
    def _scale(self):
        return self._scaler.get_scale()

    @property
    def _growth_tracker(self):
        return self._scaler.growth()[3]

    def _get_growth_tracker(self):
        return self._growth_tracker if self._enabled else 0

    def get_growth_factor(self):
        return self._scaler.growth()[0]

    def set_growth_factor(self, new_factor):
        _, backoff_factor, growth_interval, _ = self._scaler.growth()
        self._scaler.set_growth(new_factor, backoff_factor, growth_interval)

    def get_backoff_factor(self):
        return self._scaler.growth()[1]

    def set_backoff_factor(self, new_factor):
        growth_factor, _, growth_interval, _ = self._scaler.growth()
        self._scaler.set_growth(growth_factor, new_factor, growth_interval)

    def get_growth_interval(self):
        return self._scaler.growth()[2]

    def set_growth_interval(self, new_interval):
        growth_factor, backoff_factor, _, _ = self._scaler.growth()
        self._scaler.set_growth(growth_factor, backoff_factor, new_interval)

    def is_enabled(self):
        return self._enabled

    def _state(self):
        growth_factor, backoff_factor, growth_interval, growth_tracker = self._scaler.growth()
        return {
            "scale": self._scaler.get_scale(),
            "growth_factor": growth_factor,
            "backoff_factor": backoff_factor,
            "growth_interval": growth_interval,
            "_growth_tracker": growth_tracker,
        }

    def _load(self, state):
        growth = (state["growth_factor"], state["backoff_factor"], state["growth_interval"], state["_growth_tracker"])
        self._scaler.load(float(state["scale"]), growth)

    def state_dict(self):
        return self._state() if self._enabled else {}

    def load_state_dict(self, state_dict):
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._load(state_dict)

    def __getstate__(self):
        return {"_device": self._device, "_enabled": self._enabled, "state": self._state()}

    def __setstate__(self, state):
        kept = state.pop("state")
        self.__init__(state["_device"], enabled=state["_enabled"])
        self._load(kept)
