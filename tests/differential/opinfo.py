"""PyTorch's operator database (OpInfo, in its wheel), run by PyTorch and by Rushlight in one process.

    python tests/differential/opinfo.py [--dtype float32 ...] [--samples 8] [--only PREFIX] [--part 0/4] [--device cuda] [--least 0.98] [--list]

with a Python that has torch, numpy and scipy; the extension built. Every entry of the database gives sample inputs. Both libraries get the
same values; results and gradients must agree. An op agrees if all of its samples do; those whose results do are counted, too.
``opinfo_left_out.txt`` names ops that are not run, and why; ``--list`` prints them with the entries they match. ``--least`` is the share of ops, in every dtype, below which the command fails.
"""

import argparse
import itertools
import pathlib
import re
import signal
import sys
import types
import unittest
import warnings

HERE = pathlib.Path(__file__).resolve().parent
FRONT = sys.argv[sys.argv.index("--front") + 1] if "--front" in sys.argv[:-1] else HERE.parents[1] / "bindings" / "python" / "python"
sys.path[:0] = [str(FRONT)]

# The database imports a package of PyTorch's test suite, for one class.
try:
    import expecttest  # noqa: F401
except ImportError:
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import rushlight as ours  # noqa: E402

DTYPES = ["float32", "float64", "int64", "bool", "bfloat16", "complex64", "complex128"]
TOLERANCE = {"bfloat16": 3e-2, "float16": 1e-2, "float32": 1e-4, "float64": 1e-8, "complex64": 1e-4, "complex128": 1e-8}
SECONDS = 20


class LeftOut(Exception):
    """A sample with arguments that Rushlight does not have."""


class TooLong(Exception):
    """An op that did not end in time."""


def left_out():
    """(pattern, kind, reason) of the lines of opinfo_left_out.txt."""
    rules = []
    for line in (HERE / "opinfo_left_out.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, kind, reason = re.split(r"  +", line.strip(), maxsplit=2)
            if kind not in ("skip", "random", "ties", "order"):
                raise SystemExit(f"opinfo_left_out.txt: unknown kind '{kind}' for {pattern}")
            rules.append((re.compile(pattern), kind, reason))
    return rules


def entry_name(info):
    return info.name + (f"[{info.variant_test_name}]" if info.variant_test_name else "")


def kinds_of(name, rules):
    return {kind for pattern, kind, _ in rules if pattern.fullmatch(name)}


class Converter:
    """Makes Rushlight's arguments of PyTorch's."""

    def __init__(self, device):
        self.device = device

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.device) or isinstance(value, str) and value == "cpu":
            return ours.device(self.device)
        if isinstance(value, torch.Size):
            return ours.Size(value)
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return getattr(ours, str(value).split(".")[1])
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            items = [self(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        return value

    def tensor(self, value):
        if value.layout != torch.strided or value.is_quantized or value.dtype == torch.complex32:
            raise LeftOut(str(value.layout))
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.dtype in (torch.bfloat16, torch.float16):
            made = ours.tensor(plain.float().numpy()).to(self(plain.dtype))
        else:
            made = ours.tensor(plain.numpy().copy()) if plain.dim() else ours.tensor(plain.item(), dtype=self(plain.dtype))
        return made.to(self.device).requires_grad_(value.requires_grad)


def function_of(info):
    """Rushlight's function of an entry. Functions of the database itself are compiled anew, with our package as ``torch``."""
    op = info.op
    if isinstance(op, types.FunctionType) and (op.__name__ == "<lambda>" or "torch.testing" in (op.__module__ or "")):
        return types.FunctionType(op.__code__, {**op.__globals__, "torch": ours}, op.__name__, op.__defaults__, op.__closure__)
    module, name = getattr(op, "__module__", None) or "", getattr(op, "__name__", "")
    for path in (info.name, f"{module}.{name}".replace("torch.", "", 1), name, f"Tensor.{name}"):
        found = ours
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is not None and callable(found):
            return found
    return None


def _power_sums(library, values):
    """What eigenvalues are in any order: sums of their powers."""
    return library.stack([(values**k).sum(-1) for k in range(1, values.shape[-1] + 1)], -1) if values.shape[-1] else values.sum(-1)


def _of_svd(library, u, s, vh):
    k = s.shape[-1]
    return [s, (u[..., :k] * s.unsqueeze(-2).to(u.dtype)) @ vh[..., :k, :]]


def _of_eigh(library, found, kwargs):
    values, vectors = found
    return [values, (vectors * values.unsqueeze(-2).to(vectors.dtype)) @ vectors.mH, vectors.mH @ vectors]


def _of_eig(library, found, kwargs):
    values, vectors = found
    return [_power_sums(library, values), (vectors * values.unsqueeze(-2)) @ library.linalg.inv(vectors), (vectors * vectors.conj()).sum(-2).real]


def _of_qr(library, found, kwargs):
    q, r = found
    return [r.mH @ r] if q.numel() == 0 else [q @ r, q.mH @ q]


def _of_ldl(library, found, kwargs):
    eye = library.eye(found[0].shape[-1], dtype=found[0].dtype, device=found[0].device).expand(found[0].shape)
    return [library.linalg.ldl_solve(found[0], found[1], eye, hermitian=kwargs.get("hermitian", False)), *found[2:]]


#: What is unique of results that are not: products of factors, sums over eigenvalues.
UNIQUE = {
    "linalg.eigvals": lambda library, found, kwargs: [_power_sums(library, found)], "linalg.eig": _of_eig, "linalg.eigh": _of_eigh, "linalg.qr": _of_qr, "qr": _of_qr,
    "linalg.svd": lambda library, found, kwargs: _of_svd(library, *found), "svd": lambda library, found, kwargs: _of_svd(library, found[0], found[1], found[2].mH),
    "linalg.ldl_factor": _of_ldl, "linalg.ldl_factor_ex": _of_ldl, "lobpcg": lambda library, found, kwargs: [found[0]],
}


def unique(library, name, found, kwargs):
    """What of a function's results both libraries must agree on."""
    return UNIQUE[name](library, found, kwargs) if name in UNIQUE else found


def leaves(value):
    """Tensors and numbers of nested containers, in order."""
    if isinstance(value, (torch.Tensor, ours.Tensor, int, float, complex)):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))


def array(value):
    if isinstance(value, torch.Tensor):
        value = value.detach().clone() if value._is_zerotensor() else value.detach()
        value = value.resolve_conj().resolve_neg().cpu()
        value = value.to(torch.complex64) if value.dtype == torch.complex32 else value
        return (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()
    if isinstance(value, ours.Tensor):
        value = value.detach().cpu()
        value = value.to(ours.complex64) if value.dtype == ours.complex32 else value
        return (value.float() if value.dtype in (ours.bfloat16, ours.float16) else value).numpy()
    return np.asarray(value)


def dtype_name(value):
    return str(value.dtype).split(".")[1] if hasattr(value, "dtype") else type(value).__name__


def difference(expected, found, what, tolerance, shapes_only):
    """How a value differs, or None."""
    if dtype_name(expected) != dtype_name(found):
        return f"{what}: dtype {dtype_name(found)} for {dtype_name(expected)}"
    a, b = array(expected), array(found)
    if a.shape != b.shape:
        return f"{what}: shape {b.shape} for {a.shape}"
    if shapes_only:
        return None
    if a.dtype.kind in "fc":
        # An argument of a lower precision than the others has gradients of that precision.
        tolerance = max(tolerance, TOLERANCE.get(dtype_name(expected), 0.0))
        # Sums are right to the precision of their largest terms.
        finite = np.abs(a[np.isfinite(a)])
        scale = max(1.0, finite.max()) if finite.size else 1.0
        slack = tolerance * scale if tolerance > 1e-3 else max(tolerance, scale * tolerance / 100)
        if np.allclose(a, b, rtol=tolerance, atol=slack, equal_nan=True):
            return None
        gap = np.abs(a.astype(complex) - b.astype(complex))
        return f"{what}: values differ by up to {np.nanmax(gap) if gap.size else 0:.3g}"
    return None if np.array_equal(a, b) else f"{what}: values differ"


def gradients(library, results, inputs):
    # Squared magnitudes, a real number of real and complex results, with weights: those of normalised results have
    # no gradient else.
    def total_of(r):
        weights = ((library.arange(r.numel(), device=r.device) % 7 + 4) / 8).reshape(r.shape)
        return ((r * r.conj()).real * weights.to(r.real.dtype)).sum()

    total = sum(total_of(r) for r in results)
    return library.autograd.grad(total, inputs, allow_unused=True)


def compare_gradients(sample, args, expected, found, tolerance):
    inputs = [
        (p, q) for p, q in zip(leaves((sample.input, sample.args, sample.kwargs)), leaves(args)) if isinstance(p, torch.Tensor) and p.requires_grad
    ]
    results = [(p, q) for p, q in zip(expected, found) if isinstance(p, torch.Tensor) and p.requires_grad and p.numel()]
    if not inputs or not results:
        return None
    try:
        wanted = gradients(torch, [p for p, _ in results], [p for p, _ in inputs])
    except RuntimeError:
        return None  # PyTorch has no derivative.
    try:
        made = gradients(ours, [q for _, q in results], [q for _, q in inputs])
    except TooLong:
        raise
    except Exception as error:
        return f"backward raises {type(error).__name__}: {str(error)[:120]}"
    for k, (p, q) in enumerate(zip(wanted, made)):
        if p is None or q is None:
            # No gradient and a gradient of zeros mean the same.
            rest = p if q is None else q
            if rest is not None and bool((rest != 0).any()):
                return f"gradient {k} is {'missing' if q is None else 'not zero'}"
            continue
        why = difference(p, q, f"gradient {k}", tolerance, False)
        if why:
            return why
    return None


def run_sample(info, function, sample, convert, kinds, tolerance, with_gradients):
    """How an op differs on one sample, or None, and whether its results agree."""
    try:
        # The places where a tensor is split are read on the host.
        on_host = Converter("cpu") if info.name == "tensor_split" else convert
        args = convert(sample.input), on_host(sample.args), on_host(sample.kwargs)
    except LeftOut:
        return None, True
    try:
        expected = list(leaves(unique(torch, info.name, info.op(sample.input, *sample.args, **sample.kwargs), sample.kwargs)))
    except Exception:
        return None, True  # A sample that PyTorch itself refuses.
    if any(isinstance(v, torch.Tensor) and v.layout != torch.strided for v in expected):
        return None, True
    try:
        found = list(leaves(unique(ours, info.name, function(args[0], *args[1], **args[2]), args[2])))
    except TooLong:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:120]}", False
    if len(expected) != len(found):
        return f"{len(found)} results for {len(expected)}", False
    shapes_only = "random" in kinds
    for k, (p, q) in enumerate(zip(expected, found)):
        indices = "ties" in kinds and k == len(expected) - 1
        why = difference(p, q, f"result {k}", tolerance, shapes_only or indices)
        if why:
            return why, False
    # Of equal elements another one may get the gradient.
    if shapes_only or kinds & {"ties", "order"} or not with_gradients:
        return None, True
    return compare_gradients(sample, args, expected, found, tolerance), True


def run_entry(info, dtype, convert, kinds, samples):
    """How an op differs, or None, and whether its results agree on every sample."""
    function = function_of(info)
    if function is None:
        return "no such name", False
    differentiable = info.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    tolerance = TOLERANCE.get(str(dtype).split(".")[1], 1e-4)
    of_gradients = None
    signal.alarm(SECONDS)
    try:
        for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=differentiable), samples):
            why, agrees = run_sample(info, function, sample, convert, kinds, tolerance, of_gradients is None)
            if not agrees:
                return why, False
            of_gradients = of_gradients or why
    except TooLong:
        return f"longer than {SECONDS} s", False
    finally:
        signal.alarm(0)
    return of_gradients, True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", nargs="+", default=DTYPES)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--only", default="", help="ops whose name starts so")
    parser.add_argument("--part", default="0/1", help="every N-th op from the K-th on, as K/N")
    parser.add_argument("--front", help="the folder of the package rushlight")
    parser.add_argument("--device", default="cpu", help="the device of Rushlight's tensors; PyTorch stays on the CPU")
    parser.add_argument("--least", type=float, default=0.0)
    parser.add_argument("--list", action="store_true", help="print what is left out")
    options = parser.parse_args()
    rules = left_out()
    if options.list:
        for pattern, kind, reason in rules:
            matched = [entry_name(i) for i in op_db if pattern.fullmatch(entry_name(i))]
            print(f"{kind}: {reason}\n    {', '.join(matched)}")
        return 0

    def stop(*_):
        raise TooLong

    over = []
    signal.signal(signal.SIGALRM, stop)
    # A run that is stopped counts what it has reached.
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    warnings.simplefilter("ignore")
    convert, failed = Converter(options.device), False
    # As on the CPU, which PyTorch computes on.
    ours.backends.cudnn.allow_tf32 = ours.backends.cuda.matmul.allow_tf32 = False
    part, parts = map(int, options.part.split("/"))
    for name in options.dtype:
        dtype = getattr(torch, name)
        wanted = [i for i in op_db if dtype in i.dtypes and entry_name(i).startswith(options.only)][part::parts]
        entries = [i for i in wanted if "skip" not in kinds_of(entry_name(i), rules)]
        agree = results = reached = 0
        for info in entries:
            if over:
                break
            reached += 1
            why, agrees = run_entry(info, dtype, convert, kinds_of(entry_name(info), rules), options.samples)
            results += agrees
            if why is None:
                agree += 1
            else:
                print(f"{name} {entry_name(info)}: {why}", flush=True)
        share = agree / max(reached, 1)
        rest = f", {len(entries) - reached} not reached" if reached < len(entries) else ""
        print(f"{name}: {agree} of {reached} ops agree on every sample ({share:.1%}), the results of {results}; {len(wanted) - len(entries)} left out{rest}", flush=True)
        failed |= share < options.least
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
