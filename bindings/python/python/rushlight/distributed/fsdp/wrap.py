"""Policies that choose the modules that ``FullyShardedDataParallel`` wraps."""

import contextlib
import functools

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy", "size_based_auto_wrap_policy", "transformer_auto_wrap_policy",
    "wrap",
]


def always_wrap_policy(*args, **kwargs):
    """Wraps every module."""
    return True


class ModuleWrapPolicy:
    """Wraps modules of some classes."""

    def __init__(self, module_classes):
        self._module_classes = tuple(set(module_classes))

    def __call__(self, module, recurse, *args, **kwargs):
        return recurse or isinstance(module, self._module_classes)

    def __repr__(self):
        return f"ModuleWrapPolicy({set(self._module_classes)})"


class CustomPolicy:
    """Wraps modules for which ``lambda_fn(module)`` is True, or options for that module."""

    def __init__(self, lambda_fn):
        self._lambda_fn = lambda_fn

    def __call__(self, module, recurse, *args, **kwargs):
        return True if recurse else self._lambda_fn(module)


def lambda_auto_wrap_policy(module, recurse, nonwrapped_numel, lambda_fn):
    """Wraps modules for which ``lambda_fn`` is True."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls):
    """Wraps modules of some classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def _module_wrap_policy(module, recurse, nonwrapped_numel, module_classes):
    return recurse or isinstance(module, tuple(module_classes))


def _or_policy(module, recurse, nonwrapped_numel, policies):
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


def size_based_auto_wrap_policy(module, recurse, nonwrapped_numel, min_num_params=100_000_000, force_leaf_modules=None, exclude_wrap_modules=None):
    """Wraps modules with at least ``min_num_params`` elements that no wrapped module within has."""
    from ...nn import ModuleDict, ModuleList, MultiheadAttention

    leaves = tuple(force_leaf_modules or (MultiheadAttention,))
    excluded = tuple(exclude_wrap_modules or (ModuleList, ModuleDict))
    is_large = nonwrapped_numel >= min_num_params
    return is_large and not isinstance(module, leaves) if recurse else is_large and not isinstance(module, excluded)


_wrapper = None


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls, **wrapper_kwargs):
    """Within, ``wrap(module)`` wraps by ``wrapper_cls``."""
    global _wrapper
    before, _wrapper = _wrapper, functools.partial(wrapper_cls, **wrapper_kwargs)
    try:
        yield
    finally:
        _wrapper = before


def wrap(module, **wrap_overrides):
    """Wraps a module within ``enable_wrap``; elsewhere it stays as it is."""
    return module if _wrapper is None else _wrapper(module, **wrap_overrides)


def _apply(module, policy, wrapper, ignored):
    """Wraps the submodules that a policy chooses, the innermost first. Returns the elements that were wrapped."""
    wrapped = 0
    count = sum(p.numel() for p in module.parameters())
    if not policy(module=module, recurse=True, nonwrapped_numel=count):
        return 0
    for name, child in list(module._modules.items()):
        if child is None or child in ignored:
            continue
        inner = _apply(child, policy, wrapper, ignored)
        left = sum(p.numel() for p in child.parameters()) - inner
        chosen = policy(module=child, recurse=False, nonwrapped_numel=left)
        if chosen and left > 0:
            module._modules[name] = wrapper(child, **(chosen if isinstance(chosen, dict) else {}))
            inner += left
        wrapped += inner
    return wrapped
