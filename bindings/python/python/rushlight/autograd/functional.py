"""Derivatives of functions: Jacobians, Hessians and their products."""

from .. import _C

Tensor = _C.Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(values, name, call):
    """Values as a tuple of tensors, and whether there was one alone. ``name`` says what they are in the error for others."""
    single = not isinstance(values, tuple)
    values = (values,) if single else values
    for at, value in enumerate(values):
        if not isinstance(value, Tensor):
            given = f"the value at index {at} has type {type(value)}" if not single else f"got {type(value)}"
            raise TypeError(f"The {name} given to {call} must be either a Tensor or a tuple of Tensors but {given}.")
    return values, single


def _leaves(inputs, create_graph):
    """Copies of the inputs that require gradients; views of them that keep their history if derivatives are differentiated."""
    if create_graph:
        return tuple(i.view_as(i) if i.requires_grad else i.detach().requires_grad_() for i in inputs)
    return tuple(i.detach().requires_grad_() for i in inputs)


def _vectors(v, others, single, call, what):
    """The given vectors, of the sizes of other tensors; ones for a single element."""
    if v is None:
        if len(others) != 1 or others[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if the {what} a single Tensor with a single element.")
        return (others[0].new_ones(others[0].shape),)
    v, _ = _tuple(v, "v", call)
    if len(v) != len(others):
        if single:
            raise RuntimeError("The given v should contain a single Tensor.")
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(others)} but got {len(v)}.")
    for at, (given, other) in enumerate(zip(v, others)):
        if given.shape != other.shape:
            entry = f"Entry {at} in " if len(v) > 1 else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {other.shape} but got {given.shape}.")
    return v


def _must_require_grad(outputs, strict):
    for at, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(
                f"Output {at} of the user-provided function does not require gradients. The outputs must be computed in a differentiable manner from the input "
                "when running in strict mode."
            )


#: What is independent of an input, by the stage of a calculation.
_INDEPENDENT = {
    "back": "The output of the user-provided function is independent of input {}. This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double backward trick to compute "
    "forward mode gradients. This is not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode.",
    "hessian": "The jacobian of the user-provided function with respect to input {} is independent of the input. This is not allowed in strict mode.",
}


def _grads(outputs, inputs, gradients, create_graph, strict=False, stage="back"):
    """Gradients, with zeros where there is no dependence; an error in strict mode."""
    from . import grad

    live = [(o, g) for o, g in zip(outputs, gradients) if o is not None and o.requires_grad]
    found = [None] * len(inputs)
    if live:
        found = grad([o for o, _ in live], inputs, [g for _, g in live], retain_graph=True, create_graph=create_graph, allow_unused=True)
    for at, gradient in enumerate(found):
        if strict and gradient is None:
            raise RuntimeError(_INDEPENDENT[stage].format(at))
    return tuple(i.new_zeros(i.shape) if g is None else g for g, i in zip(found, inputs))


def _must_depend(values, strict, create_graph, stage):
    """In strict mode, derivatives that are differentiated again must depend on the inputs."""
    for at, value in enumerate(values):
        if strict and create_graph and not value.requires_grad:
            raise RuntimeError(_INDEPENDENT[stage].format(at))


def _finished(values, create_graph):
    return values if create_graph else tuple(v.detach() for v in values)


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """Outputs, and the product of a vector with the Jacobian."""
    inputs, single = _tuple(inputs, "inputs", "vjp")
    with _enabled():
        leaves = _leaves(inputs, create_graph)
        outputs, one = _tuple(func(*leaves), "outputs of the user-provided function", "vjp")
        _must_require_grad(outputs, strict)
        vectors = _vectors(v, outputs, one, "vjp", "user-provided function returns")
        found = _grads(outputs, leaves, vectors, create_graph, strict)
        _must_depend(found, strict, create_graph, "double_back")
    outputs, found = _finished(outputs, create_graph), _finished(found, create_graph)
    return outputs[0] if one else outputs, found[0] if single else found


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """Outputs, and the product of the Jacobian with a vector, by differentiating twice."""
    inputs, single = _tuple(inputs, "inputs", "jvp")
    with _enabled():
        leaves = _leaves(inputs, create_graph)
        vectors = _vectors(v, leaves, single, "jvp", "input to the user-provided function is")
        outputs, one = _tuple(func(*leaves), "outputs of the user-provided function", "jvp")
        _must_require_grad(outputs, strict)
        dummies = tuple(o.new_zeros(o.shape).requires_grad_() for o in outputs)
        rows = _grads(outputs, leaves, dummies, True, strict)
        _must_depend(rows, strict, True, "double_back")
        found = _grads(rows, dummies, vectors, create_graph, strict, "back_trick")
        _must_depend(found, strict, create_graph, "double_back")
    outputs, found = _finished(outputs, create_graph), _finished(found, create_graph)
    return outputs[0] if one else outputs, found[0] if one else found


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """All derivatives of outputs by inputs: one pass for each element of the outputs, with ``vectorize`` one for all of them, in forward mode of the inputs."""
    return _jacobian(func, inputs, create_graph, strict, vectorize, strategy, "jacobian")


def _jacobian(func, inputs, create_graph, strict, vectorize, strategy, call):
    from .. import stack, zeros_like

    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError('torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet).')
        if not vectorize:
            raise NotImplementedError('torch.autograd.functional.jacobian: `vectorize=False` and `strategy="forward-mode"` are not supported together (yet).')
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either set `strict=False` or "
            "`vectorize=False`."
        )
    inputs, single = _tuple(inputs, "inputs", call)
    if vectorize:
        return _vectorized(func, inputs, single, create_graph, strategy, call)
    with _enabled():
        leaves = _leaves(inputs, create_graph)
        outputs, one = _tuple(func(*leaves), "outputs of the user-provided function", call)
        _must_require_grad(outputs, strict)
        table = []
        for number, output in enumerate(outputs):
            rows = []
            for k in range(output.numel()):
                unit = zeros_like(output.detach()).reshape(-1)
                unit[k] = 1
                row = _row(output, leaves, unit.reshape(output.shape), create_graph, strict, number)
                _must_depend(row, strict, create_graph, "double_back")
                rows.append(row)
            parts = []
            for i, leaf in enumerate(leaves):
                if rows:
                    parts.append(stack([row[i] for row in rows]).reshape(tuple(output.shape) + tuple(leaf.shape)))
                else:
                    parts.append(leaf.new_zeros(tuple(output.shape) + tuple(leaf.shape)))
            table.append(_finished(tuple(parts), create_graph))
    if one:
        return table[0][0] if single else table[0]
    return tuple(row[0] if single else row for row in table)


def _vectorized(func, inputs, single, create_graph, strategy, call):
    """The Jacobian by a batch of passes."""
    from ..func import jacfwd, jacrev

    alone = []

    def tupled(*args):
        outputs, one = _tuple(func(*args), "outputs of the user-provided function", call)
        alone[:] = [one]
        return outputs

    with _enabled():
        leaves = _leaves(inputs, create_graph) if create_graph or call == "hessian" else tuple(i.detach() for i in inputs)
        table = (jacrev if strategy == "reverse-mode" else jacfwd)(tupled, tuple(range(len(leaves))))(*leaves)
    table = [_finished(row, create_graph) for row in table]
    if alone[0]:
        return table[0][0] if single else table[0]
    return tuple(row[0] if single else row for row in table)


def _row(output, leaves, unit, create_graph, strict, number):
    """Gradients of one element of an output."""
    try:
        return _grads((output,), leaves, (unit,), create_graph, strict)
    except RuntimeError as error:
        if not strict or "is independent of input" not in str(error):
            raise
        raise RuntimeError(str(error).replace("The output of", f"Output {number} of")) from None


def _scalar(output, call):
    """The one number that a function returns, whose second derivatives are wanted."""
    outputs, one = _tuple(output, "outputs of the user-provided function", call)
    if not one:
        raise RuntimeError(f"The function given to {call} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {call} should contain a single element")
    return outputs[0].squeeze()


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """All second derivatives of a scalar function: one pass for each element of the inputs, with ``vectorize`` one for all of them."""
    values, single = _tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def gradient(*args):
        output = _scalar(func(*args), "hessian")
        _must_require_grad((output,), strict)
        found = _grads((output,), args, (output.new_ones(output.shape),), True)
        _must_depend(found, strict, True, "hessian")
        return found[0] if single else found

    return _jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy, "hessian")


def _first_derivatives(func, inputs, v, create_graph, strict, call):
    """Leaves, the output, its gradients, and the checked vectors."""
    values, single = _tuple(inputs, "inputs", call)
    vectors = _vectors(v, values, single, call, "input to the user-provided function is")
    leaves = _leaves(values, create_graph)
    output = _scalar(func(*leaves), call)
    _must_require_grad((output,), strict)
    first = _grads((output,), leaves, (output.new_ones(output.shape),), True, strict)
    _must_depend(first, strict, True, "hessian")
    return leaves, single, output, first, vectors


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """Output, and the product of a vector with the Hessian."""
    with _enabled():
        leaves, single, output, first, vectors = _first_derivatives(func, inputs, v, create_graph, strict, "vhp")
        found = _grads(first, leaves, vectors, create_graph, strict, "double_back")
        _must_depend(found, strict, create_graph, "hessian")
    found = _finished(found, create_graph)
    return output if create_graph else output.detach(), found[0] if single else found


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """Output, and the product of the Hessian with a vector, which is the same: the Hessian is symmetric."""
    with _enabled():
        leaves, single, output, first, vectors = _first_derivatives(func, inputs, v, create_graph, strict, "hvp")
        found = _grads(first, leaves, vectors, create_graph, strict, "double_back")
        _must_depend(found, strict, create_graph, "hessian")
    found = _finished(found, create_graph)
    return output if create_graph else output.detach(), found[0] if single else found


def _enabled():
    from .grad_mode import enable_grad

    return enable_grad()
