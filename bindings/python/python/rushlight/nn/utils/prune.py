"""Pruning: weights set to zero and kept there. ``torch.nn.utils.prune``."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ... import _C

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]

Tensor = _C.Tensor
_torch = _C._torch


def _check_amount(amount) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (isinstance(amount, float) and amount > 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount, size: int) -> int:
    """The number of ``size`` elements to prune, from a count or a fraction."""
    if isinstance(amount, int):
        if amount > size:
            raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
        return amount
    return round(amount * size)


#: PyTorch's names of the checks.
_validate_pruning_amount_init = _check_amount


def _validate_pruning_amount(amount, tensor_size: int) -> None:
    """Raises if more is to be pruned than there is."""
    _count(amount, tensor_size)


def _compute_nparams_toprune(amount, tensor_size: int) -> int:
    """How many elements ``amount`` means."""
    return _count(amount, tensor_size)


def _hook_of(module, name: str):
    """The key and the hook that prune a tensor, if there is one."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None, None


class BasePruningMethod(ABC):
    """A pruning method: subclasses define ``compute_mask(t, default_mask)``."""

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module, inputs) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """A mask of zeros and ones for scores ``t``, zero at least where ``default_mask`` is."""

    def apply_mask(self, module) -> Tensor:
        """The tensor with its pruned elements set to zero."""
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(original.dtype) * original

    @classmethod
    def apply(cls, module, name: str, *args, importance_scores: Tensor | None = None, **kwargs):
        """Prunes a tensor of a module, before every forward pass from now on."""
        key, former = _hook_of(module, name)
        if former is not None:
            del module._forward_pre_hooks[key]
        method = cls(*args, **kwargs)
        method._tensor_name = name
        if former is not None:
            container = former if isinstance(former, PruningContainer) else PruningContainer(former)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        if importance_scores is None:
            importance_scores = original
        elif importance_scores.shape != original.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        if former is None:
            del module._parameters[name]
            module.register_parameter(name + "_orig", original)
            mask = _torch.ones_like(original.detach())
        else:
            mask = getattr(module, name + "_mask")
        try:
            mask = method.compute_mask(importance_scores.detach(), mask.detach())
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if former is None:
                # Restores the state before the error.
                del module._parameters[name + "_orig"]
                module._buffers.pop(name + "_mask", None)
                module.__dict__.pop(name, None)
                module.register_parameter(name, original)
            raise
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of a tensor."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        mask = _torch.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, mask)

    def remove(self, module) -> None:
        """Makes the pruned tensor a parameter again."""
        weight = self.apply_mask(module)
        if hasattr(module, self._tensor_name):
            delattr(module, self._tensor_name)
        original = module._parameters.pop(self._tensor_name + "_orig")
        original.data = weight.detach()
        del module._buffers[self._tensor_name + "_mask"]
        setattr(module, self._tensor_name, original)


class PruningContainer(BasePruningMethod):
    """Several methods in sequence: each prunes what the previous ones have kept."""

    def __init__(self, *args) -> None:
        self._pruning_methods: tuple = ()
        if len(args) == 1 and isinstance(args[0], BasePruningMethod):
            self._tensor_name = args[0]._tensor_name
        for method in args[0] if len(args) == 1 and not isinstance(args[0], BasePruningMethod) else args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method) -> None:
        """Adds a method for the same tensor."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and getattr(self, "_tensor_name", method._tensor_name) != method._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer {self}.")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, idx):
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            chosen = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.dim()
            kept = mask.sum([d for d in range(t.dim()) if d != dim]) != 0
            chosen = (slice(None),) * dim + (kept.nonzero().reshape(-1),)
        elif method.PRUNING_TYPE == "global":
            chosen = (slice(None),)
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        made = mask.clone()
        made[chosen] = method.compute_mask(t[chosen], mask[chosen]).to(made.dtype)
        return made


class Identity(BasePruningMethod):
    """Prunes nothing, but has a mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Unstructured(BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def __init__(self, amount) -> None:
        _check_amount(amount)
        self.amount = amount

    def _scores(self, t: Tensor) -> Tensor:
        """Prunes the smallest elements."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count != 0:
            pruned = self._scores(t).reshape(-1).topk(count, largest=False)[1]
            mask = mask.reshape(-1).index_fill(0, pruned, 0).reshape(mask.shape)
        return mask


class RandomUnstructured(_Unstructured):
    """Prunes elements at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return _torch.rand_like(t)


class L1Unstructured(_Unstructured):
    """Prunes the smallest elements."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class _Structured(BasePruningMethod):
    PRUNING_TYPE = "structured"

    def _channel_scores(self, t: Tensor) -> Tensor:
        """Prunes the channels with the smallest norms."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.dim() <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. "
                f"Found tensor of shape {t.shape} with {t.dim()} dims"
            )
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        channels = t.shape[self.dim]
        count = _count(self.amount, channels)
        if count == 0:
            return default_mask
        pruned = self._channel_scores(t).topk(count, largest=False)[1]
        return default_mask.index_fill(self.dim, pruned, 0)


class RandomStructured(_Structured):
    """Prunes whole channels at random."""

    def __init__(self, amount, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.dim = dim

    def _channel_scores(self, t: Tensor) -> Tensor:
        return _torch.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """Prunes the channels with the smallest norms."""

    def __init__(self, amount, n, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def _channel_scores(self, t: Tensor) -> Tensor:
        other = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return _C._linalg.vector_norm(t, float(self.n), other)


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module, name: str):
    """Gives a tensor a mask that prunes nothing."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name: str, amount):
    """Prunes elements at random."""
    RandomUnstructured.apply(module, name, amount=amount)
    return module


def l1_unstructured(module, name: str, amount, importance_scores: Tensor | None = None):
    """Prunes the smallest elements.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.prune.l1_unstructured(torch.nn.Linear(4, 2), "weight", amount=0.5)
    >>> int((layer.weight == 0).sum())
    4
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name: str, amount, dim: int):
    """Prunes channels at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name: str, amount, n, dim: int, importance_scores: Tensor | None = None):
    """Prunes the channels with the smallest norms."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name: str, mask: Tensor):
    """Prunes where a mask is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method: type, importance_scores: dict | None = None, **kwargs) -> None:
    """Prunes elements of several tensors, ``(module, name)`` each, chosen among all of them."""
    parameters = list(parameters)
    importance_scores = importance_scores or {}
    scores = _torch.cat([importance_scores.get(pair, getattr(*pair)).detach().reshape(-1) for pair in parameters])
    known = [getattr(module, name + "_mask", None) for module, name in parameters]
    masks = [_torch.ones_like(getattr(*pair).detach()) if mask is None else mask for mask, pair in zip(known, parameters)]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "temp"
    container.add_pruning_method(method)
    final = container.compute_mask(scores, _torch.cat([mask.reshape(-1) for mask in masks]))
    start = 0
    for (module, name), mask in zip(parameters, masks):
        custom_from_mask(module, name, final[start : start + mask.numel()].reshape(mask.shape))
        start += mask.numel()


def is_pruned(module) -> bool:
    """Whether a tensor of a module, or of a submodule, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())


def remove(module, name: str):
    """Makes pruning permanent: the tensor is a parameter again, with its zeros."""
    key, hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module
