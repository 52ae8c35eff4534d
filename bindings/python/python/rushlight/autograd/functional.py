"""Derivatives of functions: Jacobians, Hessians and their products."""

from .. import _C

Tensor = _C.Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(values):
    return ((values,), True) if isinstance(values, Tensor) else (tuple(values), False)


def _leaves(inputs, create_graph):
    if create_graph:
        return tuple(i if i.requires_grad else i.detach().requires_grad_() for i in inputs)
    return tuple(i.detach().requires_grad_() for i in inputs)


def _grads(outputs, inputs, gradients, create_graph, strict=False):
    from . import grad

    live = [(o, g) for o, g in zip(outputs, gradients) if o.requires_grad]
    if not live:
        if strict:
            raise RuntimeError("The output of the user-provided function is independent of the inputs. This is not allowed in strict mode.")
        return tuple(i.new_zeros(i.shape) for i in inputs)
    found = grad([o for o, _ in live], inputs, [g for _, g in live], retain_graph=True, create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        raise RuntimeError("The output of the user-provided function is independent of an input. This is not allowed in strict mode.")
    return tuple(i.new_zeros(i.shape) if g is None else g for g, i in zip(found, inputs))


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """Outputs, and the product of a vector with the Jacobian."""
    inputs, single = _tuple(inputs)
    with _enabled():
        leaves = _leaves(inputs, create_graph)
        outputs, one = _tuple(func(*leaves))
        vectors = tuple(o.new_ones(o.shape) for o in outputs) if v is None else _tuple(v)[0]
        found = _grads(outputs, leaves, vectors, create_graph, strict)
    if not create_graph:
        outputs, found = tuple(o.detach() for o in outputs), tuple(g.detach() for g in found)
    return outputs[0] if one else outputs, found[0] if single else found


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """Outputs, and the product of the Jacobian with a vector, by differentiating twice."""
    inputs, _ = _tuple(inputs)
    with _enabled():
        leaves = _leaves(inputs, create_graph)
        outputs, one = _tuple(func(*leaves))
        vectors = tuple(i.new_ones(i.shape) for i in leaves) if v is None else _tuple(v)[0]
        dummies = tuple(o.new_zeros(o.shape).requires_grad_() for o in outputs)
        rows = _grads(outputs, leaves, dummies, True, strict)
        found = _grads(rows, dummies, vectors, create_graph)
    if not create_graph:
        outputs, found = tuple(o.detach() for o in outputs), tuple(g.detach() for g in found)
    return outputs[0] if one else outputs, found[0] if one else found


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """All derivatives of outputs by inputs."""
    from .. import stack, zeros_like

    inputs, single = _tuple(inputs)
    with _enabled():
        leaves = _leaves(inputs, create_graph)
        outputs, one = _tuple(func(*leaves))
        table = []
        for output in outputs:
            rows = []
            for k in range(output.numel()):
                unit = zeros_like(output.detach()).reshape(-1)
                unit[k] = 1
                rows.append(_grads((output,), leaves, (unit.reshape(output.shape),), create_graph, strict))
            parts = []
            for i, leaf in enumerate(leaves):
                if rows:
                    parts.append(stack([row[i] for row in rows]).reshape(tuple(output.shape) + tuple(leaf.shape)))
                else:
                    parts.append(leaf.new_zeros(tuple(output.shape) + tuple(leaf.shape)))
            table.append(tuple(p if create_graph else p.detach() for p in parts))
    if one:
        return table[0][0] if single else table[0]
    return tuple(row[0] if single else row for row in table)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """All second derivatives of a scalar function."""
    inputs, single = _tuple(inputs)

    def gradient(*values):
        output = func(*values)
        found = _grads((output,), values, (output.new_ones(output.shape),), True, strict)
        return found[0] if single else found

    return jacobian(gradient, inputs[0] if single else inputs, create_graph, strict)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """Output, and the product of a vector with the Hessian."""
    inputs, single = _tuple(inputs)
    with _enabled():
        leaves = _leaves(inputs, create_graph)
        output = func(*leaves)
        first = _grads((output,), leaves, (output.new_ones(output.shape),), True, strict)
        vectors = tuple(i.new_ones(i.shape) for i in leaves) if v is None else _tuple(v)[0]
        found = _grads(first, leaves, vectors, create_graph)
    if not create_graph:
        output, found = output.detach(), tuple(g.detach() for g in found)
    return output, found[0] if single else found


#: The Hessian is symmetric: both products are equal.
hvp = vhp


def _enabled():
    from .grad_mode import enable_grad

    return enable_grad()
