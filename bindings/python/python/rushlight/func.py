"""Derivatives as functions, and functions over batches: ``torch.func``."""

import threading

from . import _C, _absent
from ._rearrange import rearrange
from .autograd import grad as _grad

Tensor = _C.Tensor

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "rearrange",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
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
        return getattr(type(value), "_make", type(value))(made)
    return value


def _leaves(value):
    found = []
    _tree(value, lambda t: found.append(t) or t)
    return found


class _Transforms(threading.local):
    """How many transforms of this module the thread is in."""

    depth = 0


_transforms = _Transforms()


def _differentiated(func, argnums, has_aux, args, kwargs, derive):
    """Calls ``func`` with arguments that are recorded, and ``derive(value, wanted, rebuild, create_graph)`` with its value."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    args = list(args)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    before = _C._set_grad_enabled(True)
    _transforms.depth += 1
    try:
        for n in numbers:
            args[n] = _tree(args[n], lambda t: t.view_as(t) if t.requires_grad else t.detach().requires_grad_())
        result = func(*args, **kwargs)
        value, aux = result if has_aux else (result, None)
        wanted = [leaf for n in numbers for leaf in _leaves(args[n])]

        def rebuild(parts):
            parts = iter(parts)
            made = tuple(_tree(args[n], lambda t: next(parts)) for n in numbers)
            return made[0] if isinstance(argnums, int) else made

        # The result is recorded only if a caller differentiates it, here or in an outer call.
        outer = before and (_transforms.depth > 1 or any(leaf.grad_fn is not None for leaf in wanted))
        found = derive(value, wanted, rebuild, outer)
    finally:
        _transforms.depth -= 1
        _C._set_grad_enabled(before)
    if not outer:
        found, value = _tree(found, lambda t: t.detach()), _tree(value, lambda t: t.detach())
    return found, value, _tree(aux, lambda t: t if outer else t.detach())


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that gives the gradient of a scalar function, and its value."""

    def derive(value, wanted, rebuild, create_graph):
        if not isinstance(value, Tensor) or value.dim():
            raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor")
        return rebuild(_gradients(value, wanted, None, create_graph))

    def derivative(*args, **kwargs):
        gradients, value, aux = _differentiated(func, argnums, has_aux, args, kwargs, derive)
        return (gradients, (value, aux)) if has_aux else (gradients, value)

    return derivative


def _gradients(output, wanted, weight, create_graph):
    if not output.requires_grad:
        return [_C._torch.zeros_like(leaf) for leaf in wanted]
    return _grad(output, wanted, weight, retain_graph=True, create_graph=create_graph, allow_unused=True, materialize_grads=True)


def grad(func, argnums=0, has_aux=False):
    """A function that gives the gradient of a scalar function."""
    both = grad_and_value(func, argnums, has_aux)

    def derivative(*args, **kwargs):
        gradients, rest = both(*args, **kwargs)
        return (gradients, rest[1]) if has_aux else gradients

    return derivative


def _jacobian(func, argnums, has_aux, inputs_outermost):
    def derive(value, wanted, rebuild, create_graph):
        def of(output):
            shape, rows = tuple(output.shape), []
            for k in range(output.numel()):
                unit = _C._torch.zeros_like(output.detach(), memory_format=_C.contiguous_format).view(-1)
                unit[k] = 1
                rows.append(_gradients(output, wanted, unit.view(shape), create_graph))
            parts = []
            for i, leaf in enumerate(wanted):
                whole = shape + tuple(leaf.shape)
                part = _C._torch.stack([row[i] for row in rows]).reshape(whole) if rows else leaf.new_zeros(whole)
                if inputs_outermost:
                    # The memory order of a loop over tangents of the input.
                    n, rank = len(shape), len(whole)
                    part = part.permute(*range(n, rank), *range(n)).contiguous().permute(*range(rank - n, rank), *range(rank - n))
                parts.append(part)
            return rebuild(parts)

        return _tree(value, of)

    def derivative(*args, **kwargs):
        found, _, aux = _differentiated(func, argnums, has_aux, args, kwargs, derive)
        return (found, aux) if has_aux else found

    return derivative


def _check_chunks(chunk_size, call):
    if not (chunk_size is None or isinstance(chunk_size, int) and chunk_size > 0):
        raise ValueError(f"{call}: `chunk_size` should be greater than 0.")


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None):
    """A function that gives all derivatives by its arguments. Rows are computed one by one, whatever ``chunk_size``."""
    _check_chunks(chunk_size, "jacrev")
    return _jacobian(func, argnums, has_aux, False)


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """A function that gives all derivatives by its arguments, in the memory order of forward differentiation. It calls ``func`` once."""
    _check_randomness(randomness)
    return _jacobian(func, argnums, has_aux, True)


def hessian(func, argnums=0):
    """A function that gives all second derivatives by its arguments."""
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func, *primals):
    """The value at ``primals``, and a function that gives the derivative along tangents."""
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def _check_randomness(randomness):
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


def _matched(dims, value, where):
    """``(leaf, its entry of dims)`` for the leaves of a value; ``dims`` is one for all, or has the structure of the value."""
    if dims is None or isinstance(dims, int) and not isinstance(dims, bool):
        found = []
        _visit(value, lambda leaf: found.append((leaf, dims)))
        return found
    same = type(dims) is type(value) or isinstance(dims, (list, tuple)) and isinstance(value, (list, tuple))
    if isinstance(value, dict) and same and dims.keys() == value.keys():
        return [pair for key in value for pair in _matched(dims[key], value[key], where)]
    if isinstance(value, (list, tuple)) and same and len(dims) == len(value):
        return [pair for d, v in zip(dims, value) for pair in _matched(d, v, where)]
    raise ValueError(f"{where} is not compatible with the structure of the values: got {dims}")


def _visit(value, function):
    if isinstance(value, dict):
        for item in value.values():
            _visit(item, function)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _visit(item, function)
    else:
        function(value)


def _rebuilt(value, leaves):
    """The structure of a value with other leaves, taken from an iterator."""
    if isinstance(value, dict):
        return {key: _rebuilt(item, leaves) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        made = [_rebuilt(item, leaves) for item in value]
        return getattr(type(value), "_make", type(value))(made)
    return next(leaves)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """A function over batches: ``func`` of each slice of the arguments along ``in_dims``, stacked along ``out_dims``.

    ``func`` is called once for each slice, so this costs as much as the loop that it replaces. ``chunk_size`` changes no result.
    """
    _check_randomness(randomness)
    _check_chunks(chunk_size, "vmap")
    name = getattr(func, "__name__", repr(func))
    where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"

    def batched(*args, **kwargs):
        if not (isinstance(in_dims, (int, tuple)) and not isinstance(in_dims, bool)):
            raise ValueError(f"{where}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}.")
        if not args:
            raise ValueError(f"{where}: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no inputs.")
        pairs = _matched(in_dims, args, f"{where}: in_dims")
        sizes = []
        for leaf, dim in pairs:
            if dim is None:
                continue
            if not isinstance(leaf, Tensor):
                raise ValueError(f"{where}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over non-Tensor arguments.")
            if not -leaf.dim() <= dim < leaf.dim():
                raise ValueError(f"{where}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.dim()}.")
            sizes.append(leaf.shape[dim])
        if not sizes:
            raise ValueError(f"{where}: at least one input must be mapped")
        if len(set(sizes)) > 1:
            raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")

        start = _C.get_rng_state()
        results = []
        # A function of an empty batch is called once, with zeros, for the shapes of its results.
        for i in range(max(sizes[0], 1)):
            if randomness == "same" and i:
                _C.set_rng_state(start)
            slices = (
                leaf if dim is None else leaf.select(dim, i) if sizes[0] else leaf.new_zeros([n for d, n in enumerate(leaf.shape) if d != dim % leaf.dim()])
                for leaf, dim in pairs
            )
            results.append(func(*_rebuilt(args, slices), **kwargs))
            if randomness == "error" and not _C._torch.equal(_C.get_rng_state(), start):
                raise RuntimeError(
                    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap "
                    "or perform the randomness operation out of vmap"
                )
        columns = [_matched(out_dims, result, f"vmap({name}, ..., out_dims={out_dims}): out_dims") for result in results]
        stacked = []
        for parts in zip(*columns):
            for leaf, _ in parts:
                if not isinstance(leaf, Tensor):
                    raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}.")
            dim = parts[0][1]
            whole = parts[0][0] if dim is None else _C._torch.stack([leaf for leaf, _ in parts]).movedim(0, dim)
            stacked.append(whole if sizes[0] or dim is None else whole.narrow(dim, 0, 0))
        return _rebuilt(results[0], iter(stacked))

    return batched


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


_absent.fill(globals(), "torch.func", "functions are not rewritten; the transforms take those with ops in place", "functionalize")


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
