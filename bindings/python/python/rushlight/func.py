"""Derivatives as functions, and functions over batches: ``torch.func``."""

import collections
import functools
import threading

from . import _C
from ._batch import Batched, Level, lift
from ._rearrange import rearrange
from .autograd import grad as _grad

Tensor = _C.Tensor

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "rearrange",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """A module called with other parameters and buffers than its own."""
    from .nn.utils.stateless import _functional_call

    given = parameter_and_buffer_dicts
    if isinstance(given, (list, tuple)):
        if not all(isinstance(part, dict) for part in given):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        names = [name for part in given for name in part]
        repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {name: tensor for part in given for name, tensor in part.items()}
    elif not isinstance(given, dict):
        raise ValueError(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}")
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


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
            args[n] = _prepared(args[n])
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
        raise ValueError(
            f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})" if call == "vmap" else f"{call}: `chunk_size` should be greater than 0."
        )


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
    # Results may be lists where out_dims are tuples; arguments may not.
    kinds = [(list, tuple)] if "out_dims" in where else [list, tuple]
    same = type(dims) is type(value) or any(isinstance(dims, kind) and isinstance(value, kind) for kind in kinds)
    if isinstance(value, dict) and same and dims.keys() == value.keys():
        return [pair for key in value for pair in _matched(dims[key], value[key], where)]
    if isinstance(value, (list, tuple)) and same and len(dims) == len(value):
        return [pair for d, v in zip(dims, value) for pair in _matched(d, v, where)]
    raise ValueError(f"{where} is not compatible with the structure of `{'outputs' if 'out_dims' in where else 'inputs'}`: got {dims}")


def _are_dims(dims):
    """Whether something is a dimension, None, or a structure of these."""
    if isinstance(dims, (list, tuple)):
        return all(map(_are_dims, dims))
    return all(map(_are_dims, dims.values())) if isinstance(dims, dict) else dims is None or isinstance(dims, int)


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
        made = {key: _rebuilt(item, leaves) for key, item in value.items()}
        return collections.OrderedDict(made) if isinstance(value, collections.OrderedDict) else made
    if isinstance(value, (list, tuple)):
        made = [_rebuilt(item, leaves) for item in value]
        return getattr(type(value), "_make", type(value))(made)
    return next(leaves)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """A function over batches: ``func`` of each slice of the arguments along ``in_dims``, its results along ``out_dims``.

    ``func`` runs once. It gets tensors whose batch is hidden, and every function of ``torch`` runs once for the whole batch by its rule (``_batch``); those
    without a rule run once for each slice. With ``chunk_size`` the batch is divided, to save memory.
    """
    _check_randomness(randomness)
    _check_chunks(chunk_size, "vmap")
    name = getattr(func, "__name__", repr(func))
    where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"

    @functools.wraps(func, updated=())
    def batched(*args, **kwargs):
        pairs, size = _mapped(where, in_dims, args)
        if chunk_size is None or chunk_size >= size:
            return _at_once(func, name, pairs, args, kwargs, size, out_dims, randomness)
        start = _C.get_rng_state()
        parts = []
        for first in range(0, size, chunk_size):
            if randomness == "same" and first:
                _C.set_rng_state(start)
            count = min(chunk_size, size - first)
            chunk = [(leaf if dim is None else leaf.narrow(dim, first, count), dim) for leaf, dim in pairs]
            parts.append(_at_once(func, name, chunk, args, kwargs, count, out_dims, randomness))
        single = out_dims[0] if isinstance(parts[0], Tensor) and isinstance(out_dims, tuple) else out_dims
        columns = zip(*([(leaf, dim) for leaf, dim in _matched(single, part, "out_dims")] for part in parts))
        joined = [column[0][0] if column[0][1] is None else _C._torch.cat([leaf for leaf, _ in column], column[0][1]) for column in columns]
        return _rebuilt(parts[0], iter(joined))

    return batched


def _mapped(where, in_dims, args):
    """The leaves of the arguments with their mapped dimensions, and the size of those."""
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
        raise ValueError(f"{where}: at least one input must be mapped: expected an in_dim other than None for at least one Tensor")
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")
    return pairs, sizes[0]


def _at_once(func, name, pairs, args, kwargs, size, out_dims, randomness):
    """One call of ``func`` for all slices."""
    level = Level(size, randomness)
    given = (leaf if dim is None else Batched(leaf.movedim(dim, 0) if dim else leaf, level) for leaf, dim in pairs)
    given = _rebuilt(args, given)
    with level:
        result = func(*given, **kwargs)
    found = []
    if not _are_dims(out_dims):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints representing where in the outputs the "
            "vmapped dimension should appear."
        )
    out_dims = out_dims[0] if isinstance(result, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1 else out_dims
    for leaf, dim in _matched(out_dims, result, f"vmap({name}, ..., out_dims={out_dims}): out_dims"):
        if dim is None and not isinstance(leaf, Tensor):
            found.append(leaf)
            continue
        if not isinstance(leaf, Tensor):
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set out_dims= to None for output?")
        if dim is None:
            if level.has(leaf):
                raise ValueError(
                    f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None, got: a tensor of size {tuple(leaf.shape)} that "
                    "depends on the mapped inputs"
                )
            found.append(leaf)
            continue
        whole = level.value(leaf)
        if not -whole.dim() <= dim < whole.dim():
            raise IndexError(f"Dimension out of range (expected to be in range of [{-whole.dim()}, {whole.dim() - 1}], but got {dim})")
        found.append(whole.movedim(0, dim) if dim else whole)
    return _rebuilt(result, iter(found))


def _prepared(value):
    """The tensors of an argument as ones that derivatives are taken by; the graph of an outer call stays."""

    def leaf(tensor):
        tensor = lift(tensor)
        return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()

    return _tree(value, leaf)


def vjp(func, *primals, has_aux=False):
    """The value, and a function from gradients of it to gradients of the arguments."""
    before = _C._set_grad_enabled(True)
    _transforms.depth += 1
    try:
        given = _prepared(primals)
        result = func(*given)
    finally:
        _transforms.depth -= 1
        _C._set_grad_enabled(before)
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError("vjp(f, *primals): output of function f should be a tuple: (output, aux) if has_aux is True")
    output, aux = result if has_aux else (result, None)
    leaves, outputs = _leaves(given), _leaves(output)
    if not outputs:
        raise RuntimeError(f"vjp(f, *primals): Expected f to be a function that has non-empty output (got output = {output})")
    outer = before and (_transforms.depth > 0 or any(leaf.grad_fn is not None for leaf in leaves))

    def back(*cotangents, retain_graph=True, create_graph=None):
        cotangents = cotangents[0] if len(cotangents) == 1 else cotangents
        weights = _leaves(cotangents)
        if len(weights) != len(outputs):
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. cotangents: {len(weights)} "
                               f"tensors, primal output: {len(outputs)} tensors")
        wanted = _C.is_grad_enabled() if create_graph is None else create_graph
        recorded = wanted and (outer or _transforms.depth > 0 or any(w.requires_grad for w in weights))
        live = [(o, w) for o, w in zip(outputs, weights) if o.requires_grad]
        if not live:
            found = [_C._torch.zeros_like(leaf) for leaf in leaves]
        else:
            found = _grad([o for o, _ in live], leaves, [w for _, w in live], retain_graph=True, create_graph=recorded, allow_unused=True, materialize_grads=True)
        parts = iter(found)
        return _tree(given, lambda leaf: next(parts))

    value = output if outer else _tree(output, lambda t: t.detach())
    return (value, back, aux if outer else _tree(aux, lambda t: t.detach())) if has_aux else (value, back)


def _along(outputs, leaves, tangents, recorded):
    """The derivatives of outputs along tangents of the leaves: the gradient is linear in its weight; its derivative by the weight is the result.

    None for outputs that no leaf has a part in."""
    live = [o for o in outputs if o.requires_grad]
    if not live:
        return [None] * len(outputs)
    weights = [_C._torch.zeros_like(o.detach()).requires_grad_() for o in live]
    gradients = _grad(live, leaves, weights, retain_graph=True, create_graph=True, allow_unused=True)
    terms = [((g.conj() * t).real if g.is_complex() else g * t).sum() for g, t in zip(gradients, tangents) if g is not None]
    if not terms:
        return [None] * len(outputs)
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    found = _grad(total, weights, retain_graph=True, create_graph=recorded, allow_unused=True) if total.requires_grad else [None] * len(weights)
    parts = iter(_C._torch.zeros_like(w) if f is None else f for f, w in zip(found, weights))
    return [next(parts) if o.requires_grad else None for o in outputs]


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """The value of a function and its derivative in a direction."""
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple):
            raise RuntimeError(f"jvp(f, primals, tangents): Expected {what} to be a tuple. E.g. it should be valid to call f(*primals).")
    directions = _leaves(tangents)
    if len(directions) != len(_leaves(primals)) or not directions:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. For example, if primals is a tuple of 3 tensors, "
            "tangents also must be."
        )
    before = _C._set_grad_enabled(True)
    _transforms.depth += 1
    try:
        given = _prepared(primals)
        leaves = _leaves(given)
        for leaf, direction in zip(leaves, directions):
            if leaf.shape != direction.shape:
                raise RuntimeError(f"jvp(f, primals, tangents): tangent of shape {tuple(direction.shape)} for a primal of shape {tuple(leaf.shape)}")
        result = func(*given)
        output, aux = result if has_aux else (result, None)
        outputs = _leaves(output)
        if not outputs:
            raise RuntimeError(f"jvp(f, primals, tangents): Expected f to be a function that has non-empty output (got output = {output})")
        outer = before and (_transforms.depth > 1 or any(t.grad_fn is not None for t in leaves) or any(t.requires_grad for t in directions))
        found = _along(outputs, leaves, directions, outer)
        if strict and any(f is None for f in found):
            raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with strict=True.")
        parts = iter(_C._torch.zeros_like(o) if f is None else f for o, f in zip(outputs, found))
        found = _tree(output, lambda t: next(parts))
    finally:
        _transforms.depth -= 1
        _C._set_grad_enabled(before)
    if not outer:
        output, found, aux = (_tree(value, lambda t: t.detach()) for value in (output, found, aux))
    return (output, found, aux) if has_aux else (output, found)


def functionalize(func, *, remove="mutations"):
    """The function itself: the transforms take functions with ops in place, and nothing is rewritten."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove={remove!r}): valid options for remove are: 'mutations', 'mutations_and_views'")

    @functools.wraps(func, updated=())
    def call(*args, **kwargs):
        return func(*args, **kwargs)

    return call


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


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
