"""Derivatives as functions: ``torch.func``, without ``vmap``."""

from . import _C, _absent
from ._rearrange import rearrange
from .autograd import grad as _grad

Tensor = _C.Tensor

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "rearrange", "replace_all_batch_norm_modules_",
    "stack_module_state", "vjp",
]


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """A module called with other parameters and buffers than its own."""
    given = parameter_and_buffer_dicts
    if isinstance(given, (list, tuple)):
        merged = {}
        for part in given:
            merged.update(part)
        given = merged
    owners = []
    for name, tensor in given.items():
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path) if path else module
        for store in (owner._parameters, owner._buffers):
            if leaf in store:
                owners.append((store, leaf, store[leaf], tensor))
                break
        else:
            raise RuntimeError(f"Unexpected key(s): '{name}' is neither a parameter nor a buffer of the module.")
    if strict:
        have = {n for n, _ in module.named_parameters()} | {n for n, _ in module.named_buffers()}
        missing = have - set(given)
        if missing:
            raise RuntimeError(f"Missing key(s): {sorted(missing)}.")
    if tie_weights:
        tied = {id(old): new for _, _, old, new in owners if old is not None}
        for _, child in module.named_modules():
            for store in (child._parameters, child._buffers):
                for leaf, old in store.items():
                    if id(old) in tied and not any(s is store and l == leaf for s, l, _, _ in owners):
                        owners.append((store, leaf, old, tied[id(old)]))
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for store, leaf, _, new in owners:
            store[leaf] = new
        return module(*args, **(kwargs or {}))
    finally:
        for store, leaf, old, _ in owners:
            store[leaf] = old


def _tree(value, function):
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {k: _tree(v, function) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        made = [_tree(v, function) for v in value]
        return type(value)(made) if type(value) in (list, tuple) else type(value)(*made)
    return value


def _leaves(value):
    found = []
    _tree(value, lambda t: found.append(t) or t)
    return found


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that gives the gradient of a scalar function, and its value."""

    def derivative(*args, **kwargs):
        numbers = (argnums,) if isinstance(argnums, int) else argnums
        args = list(args)
        before = _C._set_grad_enabled(True)
        try:
            for n in numbers:
                args[n] = _tree(args[n], lambda t: t.view_as(t) if t.requires_grad else t.detach().requires_grad_())
            result = func(*args, **kwargs)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, Tensor) or value.dim():
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor")
            wanted = [leaf for n in numbers for leaf in _leaves(args[n])]
            found = iter(_grad(value, wanted, create_graph=before, allow_unused=True, materialize_grads=True))
            gradients = tuple(_tree(args[n], lambda t: next(found)) for n in numbers)
        finally:
            _C._set_grad_enabled(before)
        # The result is recorded only if a caller differentiates it, here or in an outer call.
        outer = before and any(leaf.grad_fn is not None for leaf in wanted)
        gradients = gradients if outer else _tree(gradients, lambda t: t.detach())
        gradients = gradients[0] if isinstance(argnums, int) else gradients
        value = value if outer and value.requires_grad else value.detach()
        return (gradients, (value, aux)) if has_aux else (gradients, value)

    return derivative


def grad(func, argnums=0, has_aux=False):
    """A function that gives the gradient of a scalar function."""
    both = grad_and_value(func, argnums, has_aux)

    def derivative(*args, **kwargs):
        gradients, rest = both(*args, **kwargs)
        return (gradients, rest[1]) if has_aux else gradients

    return derivative


def jacrev(func, argnums=0):
    """A function that gives all derivatives by one argument."""
    from .autograd.functional import jacobian

    def derivative(*args):
        def one(value):
            changed = list(args)
            changed[argnums] = value
            return func(*changed)

        return jacobian(one, args[argnums], create_graph=_C.is_grad_enabled() and args[argnums].requires_grad)

    return derivative


jacfwd = jacrev


def hessian(func, argnums=0):
    """A function that gives all second derivatives by one argument."""
    from .autograd.functional import hessian as second

    def derivative(*args):
        def one(value):
            changed = list(args)
            changed[argnums] = value
            return func(*changed)

        return second(one, args[argnums])

    return derivative


def vjp(func, *primals, has_aux=False):
    """The value, and a function from gradients of it to gradients of the arguments."""
    leaves = [p.detach().requires_grad_() for p in primals]
    before = _C._set_grad_enabled(True)
    try:
        result = func(*leaves)
    finally:
        _C._set_grad_enabled(before)
    output, aux = result if has_aux else (result, None)

    def back(cotangent):
        return _grad(output, leaves, cotangent, retain_graph=True, allow_unused=True, materialize_grads=True)

    return (output.detach(), back, aux) if has_aux else (output.detach(), back)


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """The value of a function and its derivative in a direction, by differentiating a product with the gradient."""
    leaves = [p.detach().requires_grad_() for p in primals]
    before = _C._set_grad_enabled(True)
    try:
        result = func(*leaves)
        output, aux = result if has_aux else (result, None)
        # The gradient is linear in `weight`; its derivative by `weight` along the tangents is the result.
        weight = _C._torch.zeros_like(output).requires_grad_()
        gradients = _grad(output, leaves, weight, create_graph=True, allow_unused=True, materialize_grads=True)
        along = sum((g * t).sum() for g, t in zip(gradients, tangents))
        (found,) = _grad(along, [weight], allow_unused=True, materialize_grads=True)
    finally:
        _C._set_grad_enabled(before)
    return (output.detach(), found.detach(), aux) if has_aux else (output.detach(), found.detach())


def stack_module_state(models):
    """Parameters and buffers of models of one kind, stacked by name."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) != 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = {
        name: _C._torch.stack([m.get_parameter(name).detach() for m in models]).requires_grad_(p.requires_grad) for name, p in models[0].named_parameters()
    }
    buffers = {name: _C._torch.stack([dict(m.named_buffers())[name] for m in models]) for name, _ in models[0].named_buffers()}
    return parameters, buffers


def replace_all_batch_norm_modules_(root):
    """Makes the batch norms of a model keep no running statistics. Returns the model."""
    from .nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


_absent.fill(globals(), "torch.func", "write the batch dimension into the function", "functionalize linearize vmap")


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
