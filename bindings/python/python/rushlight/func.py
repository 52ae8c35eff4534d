"""Derivatives as functions, and functions over batches: ``torch.func``."""

import collections
import functools
import threading

from . import _C
from ._batch import Batched, Level, levels
from ._rearrange import rearrange
from ._tangents import Level as Tangents, detached as _detached, leaf as _leaf, lifted
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
        found, value = _tree(found, _detached), _tree(value, _detached)
    return found, value, aux if outer else _tree(aux, _detached)


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


def _check_chunks(chunk_size, call):
    if not (chunk_size is None or isinstance(chunk_size, int) and chunk_size > 0):
        raise ValueError(
            f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})" if call == "vmap" else f"{call}: `chunk_size` should be greater than 0."
        )


def _units(tensors, first, count):
    """The unit vectors from ``first`` on of all elements of some tensors in order, as a batch for each tensor."""
    made, start = [], 0
    for tensor in tensors:
        flat = _C._torch.zeros(count, tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        low, high = max(first, start), min(first + count, start + tensor.numel())
        if low < high:
            flat.narrow(0, low - first, high - low).narrow(1, low - start, high - low).diagonal().fill_(1)
        made.append(flat.reshape(count, *tensor.shape))
        start += tensor.numel()
    return made


def _in_batches(rows, tensors, chunk_size, randomness="error"):
    """``rows`` of each unit vector of the tensors' elements, stacked: a batch of them at once, or one by one where ``rows`` has no form for batches."""
    total = sum(tensor.numel() for tensor in tensors)
    size = total if chunk_size is None else min(chunk_size, total)
    parts, batched = [], size > 1
    for first in range(0, total, max(size, 1)):
        units = _units(tensors, first, min(size, total - first))
        if batched:
            try:
                parts.append(vmap(rows, randomness=randomness)(*units))
                continue
            except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
                if "randomness" in str(error):
                    raise
                batched = False
        found = [rows(*(unit[k] for unit in units)) for k in range(len(units[0]))]
        parts.append(tuple(_C._torch.stack([row[i] for row in found]) for i in range(len(found[0]))))
    return [_C._torch.cat([part[i] for part in parts]) if len(parts) > 1 else parts[0][i] for i in range(len(parts[0]))] if parts else []


def _must_be_real(tensors, what, call):
    for at, tensor in enumerate(tensors):
        if tensor.is_complex():
            raise RuntimeError(f"{call}: Expected all {what}s to be real but received complex tensor at flattened {what} idx: {at}")
        if not tensor.is_floating_point():
            error = ValueError if call == "jacfwd" and what == "input" else RuntimeError
            raise error(f"{call}: Expected all {what}s to be floating point, got {tensor.dtype} at flattened {what} idx: {at}")


def _split(rows, tensors):
    """The rows of each tensor's elements."""
    return rows.split([tensor.numel() for tensor in tensors])


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """A function that gives all derivatives by its arguments: one backward pass for all elements of the result, or for ``chunk_size`` of them.

    ``func`` is called for its value, and again for a batch of its arguments: the passes of one batch need a graph of a batch. It has to give the same each time;
    random functions, numbers that are read and the like make it run once, with a pass for each element.
    """
    _check_chunks(chunk_size, "jacrev")

    def derivative(*args, **kwargs):
        def derive(value, wanted, rebuild, create_graph):
            outputs = _leaves(value)
            _must_be_real(wanted, "input", "jacrev")
            _must_be_real(outputs, "output", "jacrev")

            def one_by_one(*weights):
                live = [(o, w) for o, w in zip(outputs, weights) if o.requires_grad]
                if not live:
                    return tuple(_C._torch.zeros_like(leaf) for leaf in wanted)
                return _grad(
                    [o for o, _ in live], wanted, [w for _, w in live], retain_graph=True, create_graph=create_graph, allow_unused=True, materialize_grads=True
                )

            def at_once(*weights):
                leaves = [lifted(leaf) for leaf in wanted]
                leaves = leaves if create_graph else [_leaf(leaf.detach()) for leaf in leaves]
                parts = iter(rebuilt(leaves))
                given = list(args)
                for n in (argnums,) if isinstance(argnums, int) else argnums:
                    given[n] = next(parts)
                result = func(*given, **kwargs)
                made = _leaves(result[0] if has_aux else result)
                live = [(o, w) for o, w in zip(made, weights) if o.requires_grad]
                if not live:
                    return tuple(_C._torch.zeros_like(leaf) for leaf in leaves)
                return _grad(
                    [o for o, _ in live], leaves, [w for _, w in live], retain_graph=True, create_graph=create_graph, allow_unused=True, materialize_grads=True
                )

            def rebuilt(leaves):
                made = rebuild(leaves)
                return (made,) if isinstance(argnums, int) else made

            rows = _in_batches(_either(at_once, one_by_one), outputs, chunk_size) or [leaf.new_zeros((0, *leaf.shape)) for leaf in wanted]
            table = [_split(part, outputs) for part in rows]
            numbers = iter(range(len(outputs)))

            def of(output):
                k = next(numbers)
                return rebuild([column[k].reshape(*output.shape, *leaf.shape) for column, leaf in zip(table, wanted)])

            return _tree(value, of)

        found, _, aux = _differentiated(func, argnums, has_aux, args, kwargs, derive)
        return (found, aux) if has_aux else found

    return derivative


def _either(at_once, one_by_one):
    """The form for a batch where the weights are a batch's."""

    def rows(*weights):
        return (at_once if any(type(w) is Batched for w in weights) else one_by_one)(*weights)

    return rows


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """A function that gives all derivatives by its arguments: one forward pass for the value, with a tangent for each element of the arguments."""
    _check_randomness(randomness)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def derivative(*args, **kwargs):
        args = list(args)
        for n in numbers:
            if not -len(args) <= n < len(args):
                raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
        wanted = [leaf for n in numbers for leaf in _leaves(args[n])]
        _must_be_real(wanted, "input", "jacfwd")
        kept = []

        def rebuild(parts):
            parts = iter(parts)
            return tuple(_tree(args[n], lambda t: next(parts)) for n in numbers)

        def changed(*leaves):
            given = list(args)
            for n, part in zip(numbers, rebuild(leaves)):
                given[n] = part
            return func(*given, **kwargs)

        def rows(*tangents):
            output, found, *aux = jvp(changed, tuple(wanted), tangents, has_aux=has_aux)
            kept[:] = [output, *aux]
            return tuple(_leaves(found))

        columns = _in_batches(rows, wanted, None, randomness)
        if not columns:
            # No elements: the results' sizes are enough.
            result = func(*args, **kwargs)
            kept[:] = result if has_aux else [result]
            columns = [leaf.new_zeros((0, *leaf.shape)) for leaf in _leaves(kept[0])]
        _must_be_real(_leaves(kept[0]), "output", "jacfwd")
        columns = iter(columns)

        def of(output):
            parts = _split(next(columns), wanted)
            parts = [part.movedim(0, -1).reshape(*part.shape[1:], *leaf.shape) for part, leaf in zip(parts, wanted)]
            made = rebuild(parts)
            return made[0] if isinstance(argnums, int) else made

        found = _tree(kept[0], of)
        return (found, _tree(kept[1], _first_of_batch)) if has_aux else found

    return derivative


def _first_of_batch(tensor):
    """A tensor that a batch made, of its first element."""
    return tensor._value.select(0, 0) if type(tensor) is Batched and tensor._level not in levels() else tensor


def hessian(func, argnums=0):
    """A function that gives all second derivatives by its arguments."""
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func, *primals):
    """The value at ``primals``, and a function that gives the derivative along tangents. ``func`` is called once."""
    before = _C._set_grad_enabled(True)
    try:
        given = _prepared(primals)
        result = func(*given)
        leaves, outputs = _leaves(given), _leaves(result)
        live = [o for o in outputs if o.requires_grad]
        weights = [_C._torch.ones_like(o.detach()).requires_grad_() for o in live]
        # The gradients are linear in their weights: what they do along tangents is this map turned over.
        gradients = _grad(live, leaves, weights, retain_graph=True, create_graph=True, allow_unused=True) if live else [None] * len(leaves)
    finally:
        _C._set_grad_enabled(before)
    outer = before and any(leaf.grad_fn is not None for leaf in leaves)

    def along(*tangents):
        directions = _leaves(tangents)
        if [tuple(d.shape) for d in directions] != [tuple(leaf.shape) for leaf in leaves]:
            raise RuntimeError(f"linearize: tangents of the primals' sizes are expected, {[tuple(t.shape) for t in leaves]}, got {[tuple(t.shape) for t in directions]}")
        pairs = [(g, t) for g, t in zip(gradients, directions) if g is not None and g.requires_grad]
        recorded = _C.is_grad_enabled() and (outer or any(t.requires_grad for t in directions))
        found = [None] * len(weights)
        if pairs:
            found = _grad([g for g, _ in pairs], weights, [t for _, t in pairs], retain_graph=True, create_graph=recorded, allow_unused=True)
        parts = iter(_C._torch.zeros_like(w) if f is None else f for f, w in zip(found, weights))
        return _tree(result, lambda o: next(parts) if o.requires_grad else _C._torch.zeros_like(o))

    return result if outer else _tree(result, _detached), along


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
    return _tree(value, _leaf)


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

    value = output if outer else _tree(output, _detached)
    return (value, back, aux if outer else _tree(aux, _detached)) if has_aux else (value, back)


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
    for leaf, direction in zip(_leaves(primals), directions):
        if leaf.shape != direction.shape:
            raise RuntimeError(f"jvp(f, primals, tangents): tangent of shape {tuple(direction.shape)} for a primal of shape {tuple(leaf.shape)}")
    level, parts = Tangents(), iter(directions)
    with level:
        result = func(*_tree(primals, lambda primal: level.dual(primal, next(parts))))
    output, aux = result if has_aux else (result, None)
    outputs = _leaves(output)
    if not outputs:
        raise RuntimeError(f"jvp(f, primals, tangents): Expected f to be a function that has non-empty output (got output = {output})")
    found = [level.unpack(o) for o in outputs]
    if strict and any(f is None for f in found):
        raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with strict=True.")
    parts = iter(_C._torch.zeros_like(o) if f is None else f for o, f in zip(outputs, found))
    found = _tree(output, lambda t: next(parts))
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
