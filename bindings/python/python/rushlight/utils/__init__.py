"""Data loading, checkpoints of activations, hooks: ``torch.utils``."""

import weakref

_MODULES = frozenset("_contextlib _foreach_utils _import_utils _mode_utils _python_dispatch _pytree _sympy benchmark checkpoint cpp_extension data deterministic dlpack flop_counter hooks model_zoo tensorboard".split())


def swap_tensors(t1, t2):
    """Exchanges two tensors: values, gradients, classes and attributes. The objects stay, so whoever holds one sees the other's contents."""
    for name, tensor in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    if not (t1.is_leaf and t2.is_leaf):
        raise RuntimeError("swap_tensors: both tensors must be leaves; detach them first")
    kinds, attributes = (type(t1), type(t2)), (dict(vars(t1)), dict(vars(t2)))
    data, needed, gradients = (t1.detach(), t2.detach()), (t1.requires_grad, t2.requires_grad), (t1.grad, t2.grad)
    if kinds[0] is not kinds[1]:
        t1.__class__, t2.__class__ = kinds[1], kinds[0]
    for tensor, other in ((t1, 1), (t2, 0)):
        tensor.requires_grad_(False)
        tensor.grad = None
        tensor.data = data[other]
        tensor.requires_grad_(needed[other])
        if gradients[other] is not None:
            tensor.grad = gradients[other]
        vars(tensor).clear()
        vars(tensor).update(attributes[other])


def __getattr__(name):
    if name == "cmake_prefix_path":
        from .cpp_extension import _cmake_prefix_path

        return _cmake_prefix_path()
    if name in _MODULES:
        import importlib

        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing(__name__, name)


def __dir__():
    return sorted(set(globals()) | _MODULES)
