"""Records PyTorch calls as golden cases: inputs with their exact memory layout, outputs and gradients."""

import json
import zlib

import safetensors.torch
import torch
import torch.nn.functional as F

f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
i64, i32, i16, i8, u8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
boolean = torch.bool

# Relative and absolute tolerance by the coarsest float type of a case; integers and bools compare exactly.
# A half type is computed in f32 and rounded once, so two engines differ by one unit in the last place (ULP) at most,
# and where terms cancel by what f32 explains.
ULP = {f16: 2**-10, bf16: 2**-7}
TOLERANCE = {f64: (1e-10, 1e-12), f32: (2e-5, 2e-6), f16: (ULP[f16], 2e-6), bf16: (ULP[bf16], 2e-6)}
# Ops of which PyTorch's kernels or ours round an intermediate result of about 1 to the half type: one unit in the last
# place of 1 comes on top.
ROUNDED_INSIDE = {
    "conv_transpose1d": "ours: the sum, before the bias is added",
    "conv_transpose2d": "ours: the sum, before the bias is added",
    "conv_transpose3d": "ours: the sum, before the bias is added",
    "group_norm": "ours: the normalised value, before it is scaled and shifted",
    "interpolate": "PyTorch's: the bicubic filter's sums along one axis, before the other",
    "log_softmax": "PyTorch's: the logarithm of the sum, before it is subtracted",
    "logit": "PyTorch's: x / (1 - x), before the logarithm",
    "scaled_dot_product_attention": "PyTorch's: the weights, before they multiply the values",
    "tanhshrink": "PyTorch's: tanh(x), before x - tanh(x)",
}
COARSENESS = [f64, f32, f16, bf16]
WIDER = {f32: f64, f16: f32, bf16: f32}

LINALG = {"cross", "det", "slogdet", "inv", "solve", "cholesky", "qr", "svdvals", "eigvalsh", "solve_triangular",
          "vector_norm", "matrix_norm"}

# Float results that PyTorch refuses to differentiate.
NO_DERIVATIVE = {"floor_divide", "heaviside", "histc"}


def svd_without_signs(a, full_matrices=False):
    """Singular vectors are unique up to sign only, so their squares and the reconstruction stand for them."""
    u, s, vh = torch.linalg.svd(a, full_matrices=full_matrices)
    return s, (u * s.unsqueeze(-2)) @ vh, u.square(), vh.square()


def eigh_without_signs(a, UPLO="L"):
    """Eigenvectors are unique up to sign only, so their squares and the reconstruction stand for them."""
    w, v = torch.linalg.eigh(a, UPLO=UPLO)
    return w, (v * w.unsqueeze(-2)) @ v.mT, v.square()


def batch_norm_with_stats(x, mean, var, weight, bias, **kwargs):
    """The running statistics are updated in place; the updated ones are outputs too."""
    y = F.batch_norm(x, mean, var, weight, bias, **kwargs)
    return (y, mean, var) if kwargs.get("training") and mean is not None else y


SPECIAL_FORMS = {
    "unfold": torch.Tensor.unfold,
    "index": lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
    "index_put": lambda x, indices, values, accumulate=False: torch.index_put(x, tuple(indices), values, accumulate),
    "einsum": lambda equation, operands: torch.einsum(equation, *operands),
    "meshgrid": lambda tensors, indexing="ij": torch.meshgrid(*tensors, indexing=indexing),
    "svd": svd_without_signs,
    "eigh": eigh_without_signs,
    "lstsq": lambda a, b: torch.linalg.lstsq(a, b).solution,
    "lu": lambda a: torch.linalg.lu(a)[1:],
    "lu_solve": lambda a, b, **options: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, **options),
    "batch_norm": batch_norm_with_stats,
}


def resolve(op):
    """The PyTorch callable behind an op name of the goldens."""
    if op in SPECIAL_FORMS:
        return SPECIAL_FORMS[op]
    for namespace in (torch.linalg,) if op in LINALG else (F, torch, torch.Tensor):
        if hasattr(namespace, op):
            return getattr(namespace, op)
    raise KeyError(f"PyTorch has no {op}")


def arrange(values, layout):
    """The same values in another memory layout (for the expanded layouts, the first slice repeated)."""
    if layout == "dense":
        return values.contiguous()
    if layout == "transposed":
        return values.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "reversed":
        order = tuple(range(values.dim()))[::-1]
        return values.permute(order).contiguous().permute(order)
    if layout == "channels_last":
        return values.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "strided":
        base = torch.full((*values.shape[:-1], 2 * values.shape[-1] + 1), 77, dtype=values.dtype)
        view = base[..., 1::2]
        view.copy_(values)
        return view
    if layout == "sliced":
        base = torch.full((values.shape[0] + 2, *values.shape[1:]), 77, dtype=values.dtype)
        view = base[1:-1]
        view.copy_(values)
        return view
    if layout == "expanded":
        return values[:1].clone().expand(values.shape)
    if layout == "expanded_last":
        return values[..., :1].clone().expand(values.shape)
    raise ValueError(f"unknown layout {layout}")


def flat_storage(tensor):
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def recast(tensor, dtype):
    """A fresh copy in another dtype with identical strides, overlapping ones included."""
    flat = flat_storage(tensor).to(dtype, copy=True)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def map_tensors(args, change):
    """Applies `change` to every tensor of an argument list, one level of nesting deep."""
    def one(arg):
        if isinstance(arg, torch.Tensor):
            return change(arg)
        if isinstance(arg, (list, tuple)) and any(isinstance(a, torch.Tensor) for a in arg):
            return [change(a) if isinstance(a, torch.Tensor) else a for a in arg]
        return arg
    return [one(arg) for arg in args]


def tensors_of(args):
    found = []
    map_tensors(args, lambda t: (found.append(t), t)[1])
    return found


def differentiable(tensor):
    return tensor.dtype in (f32, f64)


def plain(value):
    """A number, string, bool, list or null as the JSON of an item."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    return {"value": list(value) if isinstance(value, tuple) else value}


class Family:
    """The cases of one file, with a random source of its own so that families do not disturb each other."""

    def __init__(self, name):
        self.name = name
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        self.cases, self.tensors, self.counts, self.complaints = [], {}, {}, []

    # --- inputs -------------------------------------------------------------------------------------------------

    def uniform(self, *shape, lo=-2.0, hi=2.0, dtype=f32, layout="dense"):
        values = torch.rand(shape, generator=self.generator, dtype=f64) * (hi - lo) + lo
        return arrange(values.to(dtype), layout)

    def distinct(self, *shape, dtype=f32, layout="dense"):
        """Values at least 0.1 apart, for ops whose derivative depends on an order."""
        count = torch.Size(shape).numel()
        ranks = torch.randperm(count, generator=self.generator).to(f64)
        jitter = torch.rand(count, generator=self.generator, dtype=f64) * 0.15
        return arrange(((ranks - count // 2) * 0.25 + 0.05 + jitter).reshape(shape).to(dtype), layout)

    def ints(self, *shape, lo=-5, hi=6, dtype=i64, layout="dense"):
        return arrange(torch.randint(lo, hi, shape, generator=self.generator).to(dtype), layout)

    def bools(self, *shape, layout="dense"):
        return arrange(torch.rand(shape, generator=self.generator) < 0.5, layout)

    # --- recording ----------------------------------------------------------------------------------------------

    def case(self, op, *inputs, grad=True, constant=(), tol=None, audit=True, **kwargs):
        """Runs `op` and records it.

        `grad=False` records the forward only; `constant` names the positions of float inputs that get no gradient;
        `tol` is (rtol, atol) where the defaults do not fit; `audit=False` skips the comparison with a wider type.
        """
        number = self.counts[op] = self.counts.get(op, 0) + 1
        case_id = "/".join([op, str(number), *map(describe, tensors_of(inputs)[:3])])
        try:
            self.record(op, case_id, list(inputs), kwargs, grad, constant, tol, audit)
        except Exception as error:
            self.complaints.append(f"{case_id} {kwargs} failed: {error}")

    def record(self, op, case_id, inputs, kwargs, grad, constant, tol, audit):
        fn, prefix = resolve(op), str(len(self.cases))
        tolerance = tol or default_tolerance(op, tensors_of(inputs))
        half = any(t.dtype in (f16, bf16) for t in tensors_of(inputs))
        grad = grad and not half and op not in NO_DERIVATIVE
        wants = [grad and i not in constant for i in range(len(inputs))]
        outputs, dys, dxs = evaluate(fn, inputs, kwargs, wants, self.draw_dy)
        if tol is None:
            tolerance = max(tolerance, default_tolerance(op, outputs))
        has_grad = any(dy is not None for dy in dys)

        named = iter(range(1 << 20))
        items = [self.item(arg, prefix, named, has_grad and want) for arg, want in zip(inputs, wants)]
        record = {
            "op": op,
            "id": case_id,
            "inputs": items,
            "kwargs": {key: self.keyword(value, prefix, named) for key, value in kwargs.items()},
            "outputs": [self.store(f"{prefix}.o{i}", out) for i, out in enumerate(outputs)],
            "grad": None,
            "rtol": tolerance[0],
            "atol": tolerance[1],
        }
        if has_grad:
            count = iter(range(1 << 20))
            record["grad"] = {
                "dy": [None if dy is None else self.store(f"{prefix}.dy{i}", dy) for i, dy in enumerate(dys)],
                "dx": [self.gradient_names(dx, prefix, count) for dx in dxs],
            }
        self.cases.append(record)
        if audit:
            self.complaints += compare_with_wider(case_id, fn, inputs, kwargs, wants, outputs, dys, dxs, tolerance)

    def draw_dy(self, like):
        sign = torch.randint(0, 2, like.shape, generator=self.generator) * 2.0 - 1.0
        size = torch.rand(like.shape, generator=self.generator, dtype=f64) * 0.9 + 0.1
        return (sign * size).to(like.dtype)

    def item(self, arg, prefix, named, requires_grad):
        if isinstance(arg, torch.Tensor):
            return {
                "tensor": self.store(f"{prefix}.i{next(named)}", flat_storage(arg)),
                "layout": {"size": list(arg.size()), "stride": list(arg.stride()), "offset": arg.storage_offset()},
                "requires_grad": requires_grad and differentiable(arg),
            }
        if isinstance(arg, (list, tuple)) and any(isinstance(a, torch.Tensor) for a in arg):
            return {"tensors": [self.item(a, prefix, named, requires_grad) for a in arg]}
        return plain(arg)

    def keyword(self, value, prefix, named):
        """Plain values stay plain; a tensor or a non-finite number becomes an item, the only objects there."""
        item = self.item(str(value).split(".")[1] if isinstance(value, torch.dtype) else value, prefix, named, False)
        return item.get("value") if "value" in item else item

    def gradient_names(self, dx, prefix, count):
        if isinstance(dx, list):
            return [self.gradient_names(d, prefix, count) for d in dx]
        return None if dx is None else self.store(f"{prefix}.dx{next(count)}", dx)

    def store(self, name, tensor):
        self.tensors[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
        return name

    def to_bytes(self):
        # A single metadata entry: the writer keeps entries in a hash map, and two would come out in any order.
        return safetensors.torch.save(self.tensors, {"cases": json.dumps(self.cases, separators=(",", ":"))})


def describe(tensor):
    """For case ids: dtype, shape, and a star where the memory is not dense row-major."""
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"{str(tensor.dtype).split('.')[1]}[{shape}]{'' if tensor.is_contiguous() else '*'}"


def default_tolerance(op, tensors):
    floats = [COARSENESS.index(t.dtype) for t in tensors if t.dtype in COARSENESS]
    if not floats:
        return (0.0, 0.0)
    dtype = COARSENESS[max(floats)]
    rtol, atol = TOLERANCE[dtype]
    return (rtol, ULP[dtype]) if dtype in ULP and op in ROUNDED_INSIDE else (rtol, atol)


def evaluate(fn, inputs, kwargs, wants, draw_dy):
    """Calls fn on copies; returns outputs, dy per output (None where not differentiable) and dx per input."""
    leaves = []
    def leaf(tensor):
        copy = recast(tensor, tensor.dtype)
        leaves.append(copy)
        return copy
    args = [map_tensors([arg], leaf)[0] for arg in inputs]
    wanted = [t for arg, want in zip(args, wants) if want for t in tensors_of([arg]) if differentiable(t)]
    for tensor in wanted:
        tensor.requires_grad_()
    result = fn(*args, **kwargs)
    outputs = [result] if isinstance(result, torch.Tensor) else list(result)
    dys = [draw_dy(out) if out.requires_grad else None for out in outputs]
    live = [(out, dy) for out, dy in zip(outputs, dys) if dy is not None]
    dxs = [None] * len(inputs)
    if live:
        grads = torch.autograd.grad([o for o, _ in live], wanted, [d for _, d in live], materialize_grads=True)
        of = {id(tensor): grad for tensor, grad in zip(wanted, grads)}
        for i, arg in enumerate(args):
            if isinstance(arg, torch.Tensor):
                dxs[i] = of.get(id(arg))
            elif tensors_of([arg]):
                dxs[i] = [of.get(id(a)) for a in arg]
    return [o.detach() for o in outputs], dys, dxs


def compare_with_wider(case_id, fn, inputs, kwargs, wants, outputs, dys, dxs, tolerance):
    """Repeats the case in the next wider float type, so that no golden demands PyTorch's own rounding errors."""
    dtypes = {t.dtype for t in tensors_of(inputs) if t.dtype.is_floating_point}
    if len(dtypes) != 1 or not dtypes <= WIDER.keys() or any(isinstance(k, torch.dtype) for k in kwargs.values()):
        return []
    narrow = dtypes.pop()
    widen = lambda t: recast(t, WIDER[narrow] if t.dtype == narrow else t.dtype)
    wide_kwargs = dict(zip(kwargs, map_tensors(kwargs.values(), widen)))
    given = iter([None if dy is None else dy.to(WIDER[narrow]) for dy in dys if dy is not None])
    wide_outputs, _, wide_dxs = evaluate(fn, map_tensors(inputs, widen), wide_kwargs, wants, lambda _: next(given))
    complaints = []
    pairs = [("output", a, b) for a, b in zip(outputs, wide_outputs)]
    pairs += [("gradient", a, b) for a, b in zip(tensors_of(dxs), tensors_of(wide_dxs))]
    for what, got, want in pairs:
        if not close(got, want.to(got.dtype), *tolerance):
            complaints.append(f"{case_id} {what} differs from the wider type: {worst(got, want)}")
    return complaints


def close(a, b, rtol, atol):
    """PyTorch's isclose with nan equal to nan; shapes and dtypes must agree exactly."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    return torch.allclose(a.to(f64), b.to(f64), rtol=rtol, atol=atol, equal_nan=True)


def worst(a, b):
    if a.shape != b.shape:
        return f"shapes {list(a.shape)} and {list(b.shape)}"
    gap = (a.to(f64) - b.to(f64)).abs().nan_to_num(float("inf")).flatten()
    at = int(gap.argmax())
    return f"{a.flatten()[at].item()!r} and {b.flatten()[at].item()!r}"
