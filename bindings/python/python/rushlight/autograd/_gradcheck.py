"""Derivatives compared with finite differences: ``gradcheck`` and ``gradgradcheck``."""

import itertools

from .. import _C
from . import grad

Tensor = _C.Tensor


class GradcheckError(RuntimeError):
    """A derivative that differs from the finite difference."""


def _outputs(result):
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    return [r for r in results if isinstance(r, Tensor) and r.is_floating_point()]


def _numerical(function, inputs, at, output, eps):
    """Rows of finite differences: one per element of the input, each flat over the output.

    Elements are changed in place, so that a function sees the change in tensors that it captured, and the function runs as it does elsewhere,
    with recording on.
    """
    values = inputs[at].data
    rows = []
    for place in itertools.product(*map(range, values.shape)):
        before = values[place].item()
        ends = []
        try:
            for step in (eps, -eps):
                values[place] = before + step
                ends.append(_outputs(function(*inputs))[output].detach().reshape(-1).clone())
        finally:
            values[place] = before
        rows.append((ends[0] - ends[1]) / (2 * eps))
    return rows


def gradcheck(
    func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True,
    check_grad_dtypes=False, check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False, check_backward_ad=True,
    fast_mode=False, masked=None,
):
    """Whether the derivatives of ``func`` at ``inputs`` (of dtype float64) agree with finite differences."""
    if check_forward_ad or check_batched_grad or check_batched_forward_grad:
        raise NotImplementedError("gradcheck: forward-mode and batched gradients are not supported")
    if not check_backward_ad:
        raise ValueError("gradcheck: expected check_backward_ad=True, as forward-mode gradients are not supported")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [i for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    outputs = _outputs(func(*inputs))
    try:
        for number, output in enumerate(outputs):
            flat = output.reshape(-1)
            numerical = {i: _numerical(func, inputs, i, number, eps) for i in wanted}
            for element in range(flat.numel()):
                found = [None] * len(wanted)
                if flat.requires_grad:
                    found = grad(flat[element], [inputs[i] for i in wanted], retain_graph=True, allow_unused=True)
                for i, gradient in zip(wanted, found):
                    analytical = inputs[i].new_zeros(inputs[i].numel()) if gradient is None else gradient.reshape(-1)
                    for k, row in enumerate(numerical[i]):
                        a, n = analytical[k].item(), row[element].item()
                        if not abs(a - n) <= atol + rtol * abs(n):
                            raise GradcheckError(
                                f"Jacobian mismatch for output {number} with respect to input {i},\n"
                                f"numerical:{n}\nanalytical:{a}\n(element {element} of the output, {k} of the input)"
                            )
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, gen_non_contig_grad_outputs=False, raise_exception=True,
    nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False, check_batched_grad=False, check_fwd_over_rev=False,
    check_rev_over_rev=True, fast_mode=False, masked=False,
):
    """``gradcheck`` of the derivative."""
    from .. import randn

    if check_batched_grad or check_fwd_over_rev:
        raise NotImplementedError("gradgradcheck: forward-mode and batched gradients are not supported")
    if not check_rev_over_rev:
        raise ValueError("gradgradcheck: expected check_rev_over_rev=True, as forward-mode gradients are not supported")

    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = _outputs(func(*inputs))
    if grad_outputs is None:
        grad_outputs = [randn(o.shape, dtype=o.dtype, device=o.device, requires_grad=True) for o in outputs]
        if gen_non_contig_grad_outputs:
            grad_outputs = [g.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_() if g.dim() else g for g in grad_outputs]
    else:
        grad_outputs = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def derivative(*args):
        values, gradients = args[: len(inputs)], args[len(inputs):]
        before = _C._set_grad_enabled(True)
        try:
            values = [v.detach().requires_grad_() if isinstance(v, Tensor) and v.is_floating_point() and not v.requires_grad else v for v in values]
            wanted = [v for v, i in zip(values, inputs) if isinstance(i, Tensor) and i.requires_grad]
            results = [r for r in _outputs(func(*values))]
            found = grad(results, wanted, gradients, create_graph=True, allow_unused=True)
            return tuple(g for g in found if g is not None)
        finally:
            _C._set_grad_enabled(before)

    return gradcheck(derivative, inputs + tuple(grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)
