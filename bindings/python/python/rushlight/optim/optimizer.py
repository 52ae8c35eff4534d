"""Base class of optimizers: parameter groups, state, hooks, and PyTorch's state dicts."""

import copy
import functools
import sys
import warnings
from collections import OrderedDict, defaultdict
from typing import Any, Dict, Iterable, Tuple, Union

from .. import _C
from ..utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

Tensor = _C.Tensor
#: The type of an optimizer's parameters: tensors, groups, or tensors by name.
ParamsT = Union[Iterable[Tensor], Iterable[Dict[str, Any]], Iterable[Tuple[str, Tensor]]]

_SPARSE_MODULE = __name__.partition(".")[0] + ".sparse._gradients"
_global_pre_hooks = OrderedDict()
_global_post_hooks = OrderedDict()


class _RequiredParameter:
    """Marks an option in ``defaults`` that every group must give."""

    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()


def _register(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """Calls ``hook(optimizer, args, kwargs)`` before each step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Calls ``hook(optimizer, args, kwargs)`` after each step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _hooked(step):
    """``step`` with the hooks around it. A step that calls its parent's step runs them once."""

    @functools.wraps(step)
    def run(*args, **kwargs):
        self = args[0]
        self._opt_called = True
        if _C._profiler_is_on() and not isinstance(self, _ByFormula):
            from ..profiler import record_function

            with record_function(f"Optimizer.step#{type(self).__name__}.step"):
                return hooked(self, args, kwargs)
        return hooked(self, args, kwargs)

    def hooked(self, args, kwargs):
        if not (self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _global_pre_hooks or _global_post_hooks):
            return step(*args, **kwargs)
        if self._stepping:
            return step(*args, **kwargs)
        self._stepping = True
        try:
            for hook in (*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(f"step pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                    args, kwargs = changed
            result = step(*args, **kwargs)
            for hook in (*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()):
                hook(self, args, kwargs)
            return result
        finally:
            self._stepping = False

    run.hooked = True
    return run


class Optimizer:
    """Base class of optimizers. Subclasses define ``defaults`` (options by name) and ``step``."""

    _optimizer_step_pre_hooks = _optimizer_step_post_hooks = OrderedDict()
    _stepping = False
    _opt_called = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "hooked", False):
            cls.step = _hooked(step)

    def __init__(self, params, defaults):
        self.defaults = defaults
        self._make_hook_tables()
        if isinstance(params, Tensor):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {params.type()}"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hook_tables(self):
        for table in (
            "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
            "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
        ):
            self.__dict__.setdefault(table, OrderedDict())

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_hook_tables()
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def __repr__(self):
        lines = [self.__class__.__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"

    def register_step_pre_hook(self, hook):
        """Calls ``hook(optimizer, args, kwargs)`` before each step; it may return new ``(args, kwargs)``."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Calls ``hook(optimizer, args, kwargs)`` after each step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Calls ``hook(optimizer)`` before ``state_dict``."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Calls ``hook(optimizer, state_dict)`` after ``state_dict``; a returned dict replaces it."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Calls ``hook(optimizer, state_dict)`` before ``load_state_dict``; a returned dict is loaded instead."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Calls ``hook(optimizer)`` after ``load_state_dict``."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def state_dict(self):
        """State and groups as plain dictionaries: parameters are numbered in the order of the groups."""
        _C._settle_steps()
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                number.setdefault(id(p), len(number))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {number[id(key)] if isinstance(key, Tensor) else key: _placed(key, value) for key, value in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def load_state_dict(self, state_dict):
        """Restores a ``state_dict``, ours or PyTorch's."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        saved = copy.deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        owner = {n: p for new, group in zip(saved, self.param_groups) for n, p in zip(new["params"], group["params"])}
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in owner:
                state[owner[key]] = _fitted(owner[key], value)
            else:
                state[key] = value
        for new, group in zip(saved, self.param_groups):
            new["params"] = group["params"]
            if "param_names" in group and "param_names" not in new:
                new["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def zero_grad(self, set_to_none=True):
        """Sets the gradients of all parameters to None, or to zeros."""
        if set_to_none:
            _C._forget_grads(self.param_groups)
            gradients = _sparse_gradients()
            if gradients is not None:
                gradients.forget(self.param_groups)
            return
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    # A view that nothing has recorded cannot be detached, and need not be.
                    (p.grad if p.grad.grad_fn is None else p.grad.detach_()).requires_grad_(False).zero_()

    def step(self, closure=None):
        """Updates the parameters by their gradients. ``closure`` recomputes the loss and its gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no step(): a subclass of Optimizer must write one")

    def add_param_group(self, param_group):
        """Adds parameters with their own options; missing options are the optimizer's defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections: a set has another order in each run; use a list"
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names:
            if len(names) != len(params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            params = [p[1] for p in params]
            param_group["param_names"] = names
        param_group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not (p.is_leaf or p.retains_grad or self.defaults.get("differentiable")):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, value in self.defaults.items():
            if value is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, value)
        if len({id(p) for p in params}) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; they are updated more than once", stacklevel=3)
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        if self.param_groups and ("param_names" in param_group) != ("param_names" in self.param_groups[0]):
            named = "with" if "param_names" in param_group else "without"
            raise ValueError(
                f"all optimizer param groups should be with/without names. cannot add param group {named} names to the optimizer"
            )
        self.param_groups.append(param_group)


def _placed(param, state):
    """The state of a distributed parameter: what has its local shape lies as it does."""
    if not getattr(param, "_is_dtensor", False):
        return state
    local = param.to_local().shape

    def placed(value):
        is_part = type(value) is Tensor and value.dim() > 0 and value.shape == local
        return param._like(value) if is_part else value

    return {key: placed(value) for key, value in state.items()}


def _fitted(param, value, key=None):
    """Converts a loaded value to the parameter's device and dtype. Step counts are unchanged."""
    if isinstance(value, Tensor):
        if key == "step":
            return value
        return value.to(device=param.device, dtype=param.dtype) if param.is_floating_point() else value.to(device=param.device)
    if isinstance(value, dict):
        return {k: _fitted(param, v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fitted(param, v) for v in value)
    return value


def _call(closure):
    """Calls a closure with gradients enabled and returns its loss."""
    before = _C._set_grad_enabled(True)
    try:
        return closure()
    finally:
        _C._set_grad_enabled(before)


def _sparse_gradients():
    """The module of sparse gradients, if an embedding has imported it."""
    return sys.modules.get(_SPARSE_MODULE)


def _no_grad():
    from ..autograd.grad_mode import no_grad

    return no_grad()


class _ByFormula(Optimizer):
    """An optimizer whose step the engine runs in one pass over all parameters; ``_formula`` names it."""

    def _step(self, closure=None):
        loss = None if closure is None else _call(closure)
        if self.defaults.get("differentiable"):
            from ._differentiable import step

            before = _C._set_grad_enabled(True)
            try:
                step(self)
            finally:
                _C._set_grad_enabled(before)
        elif not self._skipped_by_scaler():
            self._sparse_steps()
            if self._has_complex:
                self._step_by_parts()
            else:
                _C._optim_step(self._formula, self.param_groups, self.state, self)
        return loss

    def _step_by_parts(self):
        """A step that treats complex parameters as pairs of reals, as PyTorch does; their state stays complex."""
        real, whole = _C._torch.view_as_real, _C._torch.view_as_complex
        state, groups, pairs = type(self.state)(self.state.default_factory, self.state), [], []
        for group in self.param_groups:
            parameters = []
            for p in group["params"]:
                if p.is_complex():
                    parts = real(p.detach())
                    parts.grad = None if p.grad is None else real(p.grad)
                    if p in state:
                        state[parts] = {k: real(v) if isinstance(v, Tensor) and v.is_complex() else v for k, v in state.pop(p).items()}
                    pairs.append((p, parts))
                    p = parts
                parameters.append(p)
            groups.append({**group, "params": parameters})
        _C._optim_step(self._formula, groups, state, self)
        for p, parts in pairs:
            if parts in state:
                state[p] = {k: whole(v) if isinstance(v, Tensor) and v.shape == parts.shape else v for k, v in state.pop(parts).items()}
        self.state.clear()
        self.state.update(state)

    def _sparse_steps(self):
        """Updates parameters with sparse gradients, by the class's ``_sparse_step(group, parameter, gradient)``. The engine's pass leaves them out."""
        gradients = _sparse_gradients()
        if gradients is not None:
            with _no_grad():
                for group, parameter, gradient in gradients.sparse_parameters(self.param_groups):
                    self._sparse_step(group, parameter, gradient)

    def _sparse_step(self, group, parameter, gradient):
        raise RuntimeError(f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead")

    def _skipped_by_scaler(self):
        """For fused optimizers: whether ``found_inf`` says to skip the step. Divides the gradients by ``grad_scale`` if there is one."""
        found_inf, scale = self.__dict__.get("found_inf"), self.__dict__.get("grad_scale")
        if not self.defaults.get("fused"):
            return False
        if found_inf is not None and float(found_inf) != 0:
            return True
        if scale is not None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.detach().div_(scale)
        return False

    _step_with_hooks = _hooked(_step)

    def step(self, closure=None):
        """One step over all parameters that have a gradient. Returns the closure's loss, if there is a closure."""
        if closure is None and not (self._is_special() or self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _global_pre_hooks or _global_post_hooks):
            # Fast path of most steps, which matters for small models.
            self._opt_called = True
            return _C._optim_step(self._formula, self.param_groups, self.state, self)
        return self._step_with_hooks(closure)

    def _is_special(self):
        """Whether a step is more than one pass over the parameters."""
        return (
            self.defaults.get("differentiable")
            or "found_inf" in self.__dict__
            or "grad_scale" in self.__dict__
            or _sparse_gradients() is not None
            or self._has_complex
        )

    @property
    def _has_complex(self):
        groups = self.param_groups
        # Looked at again when the groups change: parameters are replaced, not changed in kind.
        key = (len(groups), sum(len(g["params"]) for g in groups))
        if self.__dict__.get("_complex_of", (None,))[0] != key:
            self.__dict__["_complex_of"] = key, any(p.is_complex() for g in groups for p in g["params"])
        return self.__dict__["_complex_of"][1]

    step.hooked = True


def _require(ok, what, value):
    if not ok:
        raise ValueError(f"Invalid {what}: {value}")


def _check_lr(lr, foreach=None, capturable=False):
    if isinstance(lr, Tensor):
        if foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    _require(0.0 <= lr, "learning rate", lr)


def _check_adam(lr, betas, eps, weight_decay, foreach=None, capturable=False):
    _check_lr(lr, foreach, capturable)
    _require(0.0 <= eps, "epsilon value", eps)
    for i, beta in enumerate(betas):
        _require(0.0 <= beta < 1.0, f"beta parameter at index {i}", beta)
    _require(0.0 <= weight_decay, "weight_decay value", weight_decay)


def _check_execution(differentiable, foreach=None, fused=None):
    """Steps are always fused, so ``foreach`` and ``fused`` have no effect."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


from ._helpers import *  # noqa: E402, F403
