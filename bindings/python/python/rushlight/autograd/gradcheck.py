"""Derivatives compared with finite differences: ``gradcheck`` and ``gradgradcheck``.

A complex number counts as two real ones: derivatives by its real and its imaginary part. The gradient of a real function of a complex input holds both,
as its own real and imaginary part. The fast mode compares one random projection of the Jacobian instead of every element.
"""

import itertools
import warnings

from .. import _C
from . import _any_sparse, grad

Tensor = _C.Tensor


class GradcheckError(RuntimeError):
    """A derivative that differs from the finite difference."""


def _is_number(value):
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _as_tuple(value):
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _outputs(result):
    return [r for r in _as_tuple(result) if _is_number(r)]


def _parts(tensor):
    """Directions of one element: along the real axis, and the imaginary one of complex numbers."""
    return (1.0, 1j) if tensor.is_complex() else (1.0,)


def _real_dot(a, b):
    """The sum of the products of real and imaginary parts."""
    a, b = a.reshape(-1), b.reshape(-1)
    if a.is_complex() or b.is_complex():
        return (a.conj() * b).real.sum()
    return (a * b).sum()


def _check_same(before, after):
    for a, b in zip(before, after):
        if a.shape != b.shape:
            raise AssertionError(f"Expected `func` to return outputs with the same shape when inputs are perturbed on index, but got:\n {a.shape} and {b.shape}")
        if a.dtype != b.dtype:
            raise AssertionError(f"Expected `func` to return outputs with the same dtype when inputs are perturbed on index, but got:\n {a.dtype} and {b.dtype}")


def _difference(function, inputs, change, eps, outputs):
    """Finite differences of all outputs, for a change of the inputs in place: a function sees it in tensors that it captured, too."""
    ends = []
    for sign in (1, -1):
        change(sign)
        try:
            ends.append([o.detach().clone() for o in _outputs(function(*inputs))])
        finally:
            change(0)
    _check_same(outputs, ends[0])
    _check_same(ends[0], ends[1])
    return [(a - b) / (2 * eps) for a, b in zip(*ends)]


def _by_element(function, inputs, at, eps, outputs):
    """Yields (element, part, finite differences of every output) for one input."""
    values = inputs[at].data
    for number, place in enumerate(itertools.product(*map(range, values.shape))):
        before = values[place].item()
        for part in _parts(values):

            def change(sign, place=place, before=before, part=part):
                values[place] = before + sign * eps * part if sign else before

            yield number, part, _difference(function, inputs, change, eps, outputs)


def _gradients(outputs, inputs, vectors, retain=True):
    found = grad(outputs, inputs, vectors, retain_graph=retain, allow_unused=True)
    return [i.new_zeros(i.shape) if g is None else g for i, g in zip(inputs, found)]


def _checked(found, inputs, check_dtypes):
    """Sizes and dtypes of gradients."""
    for g, i in zip(found, inputs):
        if g.shape != i.shape:
            raise GradcheckError(f"Analytical gradient has incorrect size: {tuple(g.shape)} for an input of size {tuple(i.shape)}")
        if check_dtypes and g.dtype != i.dtype:
            raise GradcheckError(f"Gradient has dtype mismatch: {g.dtype} for an input of dtype {i.dtype}")


def _close(a, n, atol, rtol):
    return abs(a - n) <= atol + rtol * abs(n)


def _mismatch(output, number, part, numerical, analytical, mode=None):
    computed = f"Jacobian computed with {mode}" if mode else "Jacobian"
    text = f"{computed} mismatch for output {output} with respect to input {number},\nnumerical:{numerical}\nanalytical:{analytical}\n"
    if part is not None:
        text = f"While considering the {'imaginary' if part == 1j else 'real'} part of complex outputs only, {text}"
    return GradcheckError(text)


def _repeatable(once, again, tolerance):
    for a, b in zip(once, again):
        if a.numel() and not bool(((a - b).abs() <= tolerance).all()):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values, although analytical "
                f"gradient matches numerical gradient. The tolerance for nondeterminism was {tolerance}."
            )


def _slow(function, inputs, wanted, outputs, options):
    leaves = [inputs[i] for i in wanted]
    # The analytical Jacobian: gradients of every real number of the outputs.
    rows = []
    for number, output in enumerate(outputs):
        for element in range(output.numel() if output.requires_grad else 0):
            for part in _parts(output):
                vector = _C._torch.zeros_like(output).contiguous()
                vector.view(-1)[element] = part
                found = _gradients([output], leaves, [vector])
                _checked(found, leaves, options["check_grad_dtypes"])
                rows.append((number, element, part, found))
    numerical = {}
    for slot, at in enumerate(wanted):
        for place, part, differences in _by_element(function, inputs, at, options["eps"], outputs):
            for number, difference in enumerate(differences):
                numerical.setdefault((slot, number), []).append((place, part, difference.reshape(-1).tolist()))
    for number, element, part, found in rows:
        for slot, at in enumerate(wanted):
            flat = found[slot].reshape(-1).tolist()
            for place, direction, difference in numerical.get((slot, number), ()):
                n, a = difference[element], flat[place]
                n = n.imag if part == 1j else n.real
                a = a.imag if direction == 1j else a.real
                if not _close(a, n, options["atol"], options["rtol"]):
                    raise _mismatch(number, at, part if outputs[number].is_complex() else None, n, a)
    for number, output in enumerate(outputs):
        if not output.requires_grad:
            for slot, at in enumerate(wanted):
                for _, _, difference in numerical.get((slot, number), ()):
                    largest = max(map(abs, difference), default=0.0)
                    if largest > options["atol"]:
                        raise _mismatch(number, at, None, largest, 0.0)
    for number, element, part, found in rows[:1] + rows[-1:]:
        vector = _C._torch.zeros_like(outputs[number]).contiguous()
        vector.view(-1)[element] = part
        _repeatable(found, _gradients([outputs[number]], leaves, [vector]), options["nondet_tol"])


def _direction(tensor):
    """A random direction, of positive parts so that differences do not cancel."""
    generator = _C.Generator().manual_seed(tensor.numel())

    def part():
        return _C._torch.rand(tensor.shape, dtype=_C.float64, generator=generator) + 0.1

    made = _C._torch.complex(part(), part()) if tensor.is_complex() else part()
    return (made / max(made.abs().sum().item(), 1e-30)).to(tensor.device, tensor.dtype)


def _fast(function, inputs, wanted, outputs, options):
    leaves = [inputs[i] for i in wanted]
    vectors = [_direction(o) for o in outputs]
    found = {}
    for number, output in enumerate(outputs):
        if output.requires_grad:
            found[number] = _gradients([output], leaves, [vectors[number]])
            _checked(found[number], leaves, options["check_grad_dtypes"])
    for slot, at in enumerate(wanted):
        values = inputs[at].data
        direction, before = _direction(values), values.clone()
        # Steps along a direction are shorter for each element by its share of the sum.
        eps = options["eps"] * max(1, values.numel())

        def change(sign):
            values.copy_(before + sign * eps * direction if sign else before)

        for number, difference in enumerate(_difference(function, inputs, change, eps, outputs)):
            n = _real_dot(vectors[number], difference).item() if difference.numel() else 0.0
            a = _real_dot(found[number][slot], direction).item() if number in found and values.numel() else 0.0
            # Vectors of sum one give the mean of the Jacobian's elements, and the tolerance is that of one element.
            if not _close(a, n, options["atol"], options["rtol"]):
                raise _mismatch(number, at, None, n, a)
    for number, once in found.items():
        _repeatable(once, _gradients([outputs[number]], leaves, [vectors[number]]), options["nondet_tol"])


def _multiplies(outputs, leaves):
    """Gradients are linear: zero in, zero out."""
    for g, i in zip(grad(outputs, leaves, [_C._torch.zeros_like(o) for o in outputs], retain_graph=True, allow_unused=True), leaves):
        if g is None:
            continue
        if g.layout != i.layout:
            raise GradcheckError(f"grad is incorrect layout ({g.layout} is not {i.layout})")
        if g.dtype != i.dtype:
            raise GradcheckError(f"grad is incorrect type ({g.dtype} is not {i.dtype})")
        if g.device != i.device:
            raise GradcheckError(f"grad is incorrect device ({g.device} is not {i.device})")
        if g.shape != i.shape:
            raise GradcheckError(f"grad is incorrect size ({tuple(g.shape)} is not {tuple(i.shape)})")
        if bool((g != 0).any()):
            raise GradcheckError("backward not multiplied by grad_output")


def _undefined(outputs, leaves):
    """Backward passes in which only one of several outputs has a gradient."""
    for output in outputs if len(outputs) > 1 else ():
        try:
            grad(output, leaves, _C._torch.zeros_like(output), retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            raise GradcheckError(f"Expected backward function to handle undefined output grads: {error}") from error


def _batched(outputs, leaves):
    """Gradients of a batch of vectors, against those of each."""
    for output in outputs:
        vectors = [_C._torch.randn_like(output) for _ in range(2)]
        one_by_one = [grad(output, leaves, v, retain_graph=True, allow_unused=True) for v in vectors]
        together = grad(output, leaves, _C._torch.stack(vectors), retain_graph=True, allow_unused=True, is_grads_batched=True)
        for slot, made in enumerate(together):
            for number, single in enumerate(one_by_one):
                if made is not None and not _C._torch.allclose(made[number], single[slot], 1e-5, 1e-5, equal_nan=True):
                    raise GradcheckError(f"gradcheck or gradgradcheck failed while testing batched gradient computation: input {slot}")


def _by_tangents(function, inputs, at, tangent):
    """The tangents of all outputs along one of an input; None for outputs without."""
    from .._tangents import Level

    level = Level()
    with level:
        given = list(inputs)
        given[at] = level.dual(inputs[at], tangent)
        return [level.unpack(o) for o in _outputs(function(*given))]


def _forward(function, inputs, wanted, outputs, fast, options):
    """Tangents of the outputs against finite differences."""

    def compare(number, at, part, difference, found):
        numbers = difference.reshape(-1).tolist()
        tangents = [0.0] * len(numbers) if found is None else found.reshape(-1).tolist()
        for n, a in zip(numbers, tangents):
            if not (_close(n.real, a.real, **tolerances) and _close(n.imag, a.imag, **tolerances)):
                raise _mismatch(number, at, part, n, a, "forward mode")

    tolerances = {"atol": options["atol"], "rtol": options["rtol"]}
    for at in wanted:
        values = inputs[at].detach()
        if fast:
            direction, before = _direction(values), inputs[at].data.clone()
            eps = options["eps"] * max(1, values.numel())

            def change(sign, at=at, before=before, direction=direction, eps=eps):
                inputs[at].data.copy_(before + sign * eps * direction if sign else before)

            rows = [(direction, _difference(function, inputs, change, eps, outputs), None)]
        else:

            def units(at=at, values=values):
                for place, part, differences in _by_element(function, inputs, at, options["eps"], outputs):
                    unit = _C._torch.zeros_like(values).contiguous()
                    unit.view(-1)[place] = part
                    yield unit, differences, part

            rows = units()
        for tangent, differences, part in rows:
            found = _by_tangents(function, inputs, at, tangent)
            for number, difference in enumerate(differences):
                compare(number, at, part if inputs[at].is_complex() else None, difference, found[number])


def _batched_forward(function, inputs, wanted):
    """Tangents of a batch, against those of each."""
    from ..func import vmap

    for at in wanted:
        vectors = _C._torch.stack([_C._torch.randn_like(inputs[at]).detach() for _ in range(2)])
        places = [k for k, t in enumerate(_by_tangents(function, inputs, at, vectors[0])) if t is not None]
        if not places:
            continue
        together = vmap(lambda v, at=at: tuple(_by_tangents(function, inputs, at, v)[k] for k in places), randomness="same")(vectors)
        for row in range(2):
            single = _by_tangents(function, inputs, at, vectors[row])
            for made, k in zip(together, places):
                if not _C._torch.allclose(made[row], single[k], 1e-5, 1e-5, equal_nan=True):
                    raise GradcheckError(f"gradcheck or gradgradcheck failed while testing batched forward gradient computation: input {at}, output {k}")


def _without_sparse(func, inputs):
    """Functions of sparse tensors are differentiated by their values, with ``masked`` or without."""
    if not _any_sparse(inputs):
        return func, inputs
    from ..sparse._derivatives import by_values

    return by_values(func, inputs)


def _check_inputs(inputs):
    wanted = []
    for number, value in enumerate(inputs):
        if not isinstance(value, Tensor) or not value.requires_grad:
            continue
        if value.dtype not in (_C.float64, _C.complex128):
            warnings.warn(
                f"Input #{number} requires gradient and is not a double precision floating point or complex. This check will likely fail if all the inputs are "
                "not of double precision floating point or complex. ",
                stacklevel=3,
            )
        if any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape)):
            raise RuntimeError(
                f"The {number}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to compute the "
                "numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
            )
        wanted.append(number)
    if not wanted:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    return wanted


def _without_derivatives(function, inputs, wanted, outputs, options):
    """Outputs that no derivative is recorded for must be constant."""
    for at in wanted:
        for _, _, differences in _by_element(function, inputs, at, options["eps"], outputs):
            if any(bool((d != 0).any()) for d in differences):
                raise GradcheckError("Numerical gradient for function expected to be zero")


def _check(function, inputs, fast, options, undefined, batched, backward=True, forward=False, batched_forward=False):
    wanted = _check_inputs(inputs)
    outputs = _outputs(function(*inputs))
    recorded = [o for o in outputs if o.requires_grad]
    if recorded and forward:
        _forward(function, inputs, wanted, outputs, fast, options)
    if recorded and batched_forward:
        _batched_forward(function, inputs, wanted)
    if recorded and not backward:
        return
    if not recorded:
        _without_derivatives(function, inputs, wanted, outputs, options)
        return
    (_fast if fast else _slow)(function, inputs, wanted, outputs, options)
    leaves = [inputs[i] for i in wanted]
    if batched:
        _batched(recorded, leaves)
    _multiplies(recorded, leaves)
    if undefined:
        _undefined(recorded, leaves)


def gradcheck(
    func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True,
    check_grad_dtypes=False, check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False, check_backward_ad=True,
    fast_mode=False, masked=None,
):
    """Whether the derivatives of ``func`` at ``inputs`` (of dtype float64) agree with finite differences."""
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    func, inputs = _without_sparse(func, _as_tuple(inputs))
    options = dict(eps=eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol, check_grad_dtypes=check_grad_dtypes)
    try:
        _check(func, inputs, fast_mode, options, check_undefined_grad, check_batched_grad, check_backward_ad, check_forward_ad, check_batched_forward_grad)
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
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    inputs = _as_tuple(inputs)
    outputs = [o for o in _outputs(func(*inputs)) if o.requires_grad]
    if grad_outputs is None:
        grad_outputs = [_C._torch.randn(o.shape, dtype=o.dtype, device=o.device) for o in outputs]
        if gen_non_contig_grad_outputs:
            grad_outputs = [g.repeat_interleave(2, -1)[..., ::2] if g.dim() else g for g in grad_outputs]
        grad_outputs = [g.requires_grad_() for g in grad_outputs]
    else:
        grad_outputs = list(_as_tuple(grad_outputs))
    wanted = [i for i, v in enumerate(inputs) if isinstance(v, Tensor) and v.requires_grad]

    def derivative(*args):
        values, vectors = args[: len(inputs)], args[len(inputs):]
        before = _C._set_grad_enabled(True)
        try:
            values = [v.detach().requires_grad_() if i in wanted and not v.requires_grad else v for i, v in enumerate(values)]
            results = [r for r in _outputs(func(*values)) if r.requires_grad]
            found = grad(results, [values[i] for i in wanted], vectors, create_graph=True, allow_unused=True)
            return tuple(g for g in found if g is not None)
        finally:
            _C._set_grad_enabled(before)

    return gradcheck(
        derivative, inputs + tuple(grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev, fast_mode=fast_mode, masked=masked,
    )


def _private(name):
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and it will be removed in a future version of PyTorch.",
        FutureWarning, stacklevel=3,
    )


def get_numerical_jacobian(fn, inputs, target=None, eps=1e-3, grad_out=1.0):
    """Finite differences of the first output of ``fn(inputs)``, one matrix per input (inputs by outputs)."""
    _private("get_numerical_jacobian")
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0.")
    target = inputs if target is None else target
    matrices = []
    for wanted in _as_tuple(target):
        at = next(i for i, v in enumerate(inputs) if v is wanted)
        first = _outputs(fn(inputs))
        rows = [differences[0].reshape(-1) for _, part, differences in _by_element(lambda *a: fn(a), inputs, at, eps, first) if part == 1.0]
        matrices.append(_C._torch.stack(rows))
    return matrices


def get_analytical_jacobian(inputs, output, nondet_tol=0.0, grad_out=1.0):
    """Gradients of an output, one matrix per input (inputs by outputs); whether they are repeatable, of the right sizes and dtypes."""
    _private("get_analytical_jacobian")
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_analytical_jacobian no longer supports values of grad_out != 1.0.")
    leaves = [i for i in inputs if isinstance(i, Tensor) and i.requires_grad]

    def rows():
        for element in range(output.numel()):
            vector = _C._torch.zeros_like(output).contiguous()
            vector.view(-1)[element] = 1
            yield _gradients([output], leaves, [vector])

    once, again = list(rows()), list(rows())
    matrices = tuple(_C._torch.stack([row[slot].reshape(-1) for row in once], 1) for slot in range(len(leaves)))
    same = all(bool(((a - b).abs() <= nondet_tol).all()) for x, y in zip(once, again) for a, b in zip(x, y))
    sizes = all(g.shape == i.shape for row in once for g, i in zip(row, leaves))
    types = all(g.dtype == i.dtype for row in once for g, i in zip(row, leaves))
    return matrices, same, sizes, types
