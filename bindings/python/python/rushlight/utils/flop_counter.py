"""``FlopCounterMode``: counts floating-point operations of products, convolutions and attention, forward and backward."""

import math
from collections import defaultdict

from .. import _C
from .._ops import ops
from ..overrides import TorchFunctionMode

__all__ = ["FlopCounterMode", "register_flop_formula"]

Tensor = _C.Tensor


def _product(a, b):
    """Operations of ``a @ b`` by sizes."""
    if len(a) == 1:
        a = (1, *a)
    if len(b) == 1:
        b = (*b, 1)
    batch = math.prod(max(x, y) for x, y in _aligned(a[:-2], b[:-2]))
    return 2 * batch * a[-2] * a[-1] * b[-1]


def _aligned(a, b):
    rank = max(len(a), len(b))
    return zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b))


def _conv(out, weight, transposed_input=None):
    """Operations of a convolution: each output (input, if transposed) uses the kernel once for each channel."""
    places = out if transposed_input is None else transposed_input
    batch, spatial = places[0], math.prod(places[2:])
    return 2 * batch * spatial * math.prod(weight)


def _attention(q, k, v):
    rows, columns = q[-2], k[-2]
    return 2 * math.prod(q[:-2]) * rows * columns * (q[-1] + v[-1])


class _Call:
    """One counted call: its op, its operations, and those of its backward pass with respect to each input."""

    def __init__(self, op, flops, backward_op=None, inputs=()):
        self.op, self.flops, self.backward_op, self.inputs = op, flops, backward_op or op, inputs


def _mm(name):
    def count(out, a, b, *args, **kwargs):
        return _Call(getattr(ops.aten, name), _product(a.shape, b.shape), inputs=(a, b))

    return count


def _matmul(out, a, b, **kwargs):
    return _Call(ops.aten.mm if a.dim() <= 2 and b.dim() <= 2 or b.dim() <= 2 else ops.aten.bmm, _product(a.shape, b.shape), inputs=(a, b))


def _addmm(out, bias, a, b, **kwargs):
    return _Call(ops.aten.addmm, _product(a.shape, b.shape), ops.aten.mm, (a, b))


def _baddbmm(out, bias, a, b, **kwargs):
    return _Call(ops.aten.baddbmm, _product(a.shape, b.shape), ops.aten.bmm, (a, b))


def _linear(out, input, weight, bias=None):
    flops = 2 * input.numel() * weight.shape[0]
    return _Call(ops.aten.mm if bias is None else ops.aten.addmm, flops, ops.aten.mm, (input, weight))


def _convolution(out, input, weight, *args, **kwargs):
    return _Call(ops.aten.conv2d, _conv(out.shape, weight.shape), ops.aten.conv2d, (input, weight))


def _convolution_transposed(out, input, weight, *args, **kwargs):
    return _Call(ops.aten.conv_transpose2d, _conv(out.shape, weight.shape, input.shape), ops.aten.conv_transpose2d, (input, weight))


def _sdpa(out, query, key, value, *args, **kwargs):
    flops = _attention(query.shape, key.shape, value.shape)
    # The backward pass recomputes the scores and computes four products.
    return _Call(ops.aten.scaled_dot_product_attention, flops, inputs=(query, key, value))


_FORMULAS = {
    "mm": _mm("mm"), "bmm": _mm("bmm"), "mv": _mm("mv"), "dot": _mm("dot"), "matmul": _matmul, "__rmatmul__": lambda out, b, a: _matmul(out, a, b), "addmm": _addmm,
    "baddbmm": _baddbmm, "linear": _linear, "conv1d": _convolution, "conv2d": _convolution, "conv3d": _convolution, "conv_transpose1d": _convolution_transposed,
    "conv_transpose2d": _convolution_transposed, "conv_transpose3d": _convolution_transposed, "scaled_dot_product_attention": _sdpa,
}

flop_registry = {}


def register_flop_formula(targets, get_raw=False):
    """A decorator: registers a function of sizes that returns the operations of an op of ``torch.ops``."""

    def register(formula):
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            flop_registry[target] = formula, get_raw
            _CUSTOM[target.__name__.partition(".")[0]] = target
        return formula

    return register


_CUSTOM = {}


def _unpack_flash_attention_nested_shapes(*, query, key, value, grad_out=None, cum_seq_q=None, cum_seq_k=None, max_q=None, max_k=None):
    """Sizes of queries, keys, values and gradients of each sequence of a packed batch: batch, heads, length, features. Of other inputs their shapes."""
    if cum_seq_q is None:
        yield query.shape, key.shape, value.shape, None if grad_out is None else grad_out.shape
        return
    lengths = (_C._torch.diff(at).tolist() if at.device.type != "meta" else [longest] * (at.shape[0] - 1) for at, longest in ((cum_seq_q, max_q), (cum_seq_k, max_k)))
    for long_q, long_k in zip(*lengths):
        sizes = [(1, t.shape[1], long, t.shape[2]) for t, long in ((query, long_q), (key, long_k), (value, long_k))]
        yield (*sizes, None if grad_out is None else sizes[0])


def _sizes(value):
    if isinstance(value, Tensor):
        return value.shape
    return type(value)(map(_sizes, value)) if isinstance(value, (list, tuple)) else value


class FlopCounterMode(TorchFunctionMode):
    """Counts while it is active, in total and by module.

    >>> import rushlight as torch
    >>> from rushlight.utils.flop_counter import FlopCounterMode
    >>> layer = torch.nn.Linear(8, 4)
    >>> with FlopCounterMode(display=False) as counter:
    ...     layer(torch.ones(2, 8)).sum().backward()
    >>> counter.get_total_flops()
    256
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        self.depth, self.display = depth, display
        self._custom = dict(custom_mapping or {})
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._inside = ["Global"]
        self._handles = []

    def __enter__(self):
        from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        self.flop_counts.clear()
        self._names, self._roots = {}, 0

        def enter(module, args):
            if len(self._inside) == 1:
                for name, inner in module.named_modules():
                    self._names[id(inner)] = type(module).__name__ + (f".{name}" if name else "")
            self._inside.append(self._names.get(id(module), type(module).__name__))

        def leave(module, args, result):
            self._inside.pop()

        self._handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        for handle in self._handles:
            handle.remove()
        if self.display and exception[0] is None:
            print(self.get_table(self.depth))

    def _add(self, modules, op, flops):
        for module in modules:
            self.flop_counts[module][op] += flops

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        modules = list(dict.fromkeys(self._inside))
        if name in _CUSTOM:
            formula, raw = flop_registry[_CUSTOM[name]]
            given = args if raw else [_sizes(a) for a in args]
            self._add(modules, _CUSTOM[name], formula(*given, **({"out_val": result} if raw else {"out_shape": _sizes(result)})))
        elif name in _FORMULAS:
            call = _FORMULAS[name](result, *args, **kwargs)
            self._add(modules, call.op, call.flops)
            self._watch(result, call, modules)
        return result

    def _watch(self, result, call, modules):
        """The gradient of each input takes as many operations as the value; attention's take two and a half times as many for all three."""
        if not result.requires_grad:
            return
        wanted = sum(t.requires_grad for t in call.inputs)
        attention = call.op is ops.aten.scaled_dot_product_attention
        flops = call.flops * 5 // 2 if attention else call.flops * wanted
        result.register_hook(lambda grad: self._add(modules, call.backward_op, flops))

    def get_total_flops(self):
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """Counts by module and op."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth=None):
        """Counts as text."""
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = [("Module", "FLOP", "% Total")]
        for module, counts in sorted(self.flop_counts.items(), key=lambda item: (item[0] != "Global", item[0])):
            level = module.count(".") + 1 if module != "Global" else 0
            if level > depth:
                continue
            spent = sum(counts.values())
            rows.append((" " * level + module, f"{spent:,}", f"{100 * spent / total:.2f}%"))
            rows += [(" " * level + f" - {op}", f"{n:,}", f"{100 * n / total:.2f}%") for op, n in counts.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)
