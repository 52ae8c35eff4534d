"""Loss scaling, so that half-precision gradients do not underflow."""

from collections import abc

from .. import _C


def _gradients(optimizer):
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


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

    def unscale_(self, optimizer):
        """Divides the gradients of an optimizer's parameters by the scale."""
        if self._enabled:
            self._scaler.unscale_(id(optimizer), _gradients(optimizer))

    def step(self, optimizer, *args, **kwargs):
        """The optimizer's step, unless its gradients are not finite. Returns the result of the optimizer's step."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        return self._scaler.step(id(optimizer), _gradients(optimizer), lambda: optimizer.step(*args, **kwargs))

    def update(self, new_scale=None):
        """Adapts the scale after all steps of an iteration."""
        if self._enabled:
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
