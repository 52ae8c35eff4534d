"""Runs statements with PyTorch or with Rushlight, and compares the results."""

import math
import re
import warnings

#: Relative and absolute differences that count as equal.
TOLERANCE = {
    "torch.float64": (1e-7, 1e-9),
    "torch.float32": (2e-4, 2e-5),
    "torch.float16": (1e-2, 4e-3),
    "torch.bfloat16": (5e-2, 2e-2),
}
#: Classes that mean the same in both.
CLASSES = {"_LinAlgError": "LinAlgError", "OutOfMemoryError": "RuntimeError"}


def names(torch):
    """The names that statements can use."""

    def weigh(value):
        """A number that depends on each element differently."""
        return (value.double() * torch.linspace(-1.0, 2.0, value.numel(), dtype=torch.float64).reshape(value.shape)).sum()

    return {"torch": torch, "F": torch.nn.functional, "weigh": weigh}


def execute(statement, names):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(statement, names)


def outcome(statement, names):
    """The exception that a statement raises, or None."""
    try:
        execute(statement, names)
    except Exception as error:
        return error
    return None


def class_of(error):
    if error is None:
        return "nothing"
    name = type(error).__name__
    return CLASSES.get(name, name)


def close(a, b, tolerance):
    if isinstance(a, float) and isinstance(b, float) and tolerance:
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or abs(a - b) <= tolerance[1] + tolerance[0] * abs(a) and math.isfinite(b)
    return a == b and type(a) is type(b)


def flat(tensor):
    # The sum with zero gives memory to PyTorch's lazy gradients of zeros.
    try:
        return (tensor.detach() + 0 if tensor.dtype.is_floating_point else tensor).reshape(-1).tolist()
    except RuntimeError as error:
        return [type(error).__name__]


def difference(a, b, torch, ours, derived=False, twice=False, coarse=None, coarsest=None):
    """What differs between PyTorch's value and ours, in a word; None if nothing does. Whether a derivative can be differentiated again where
    its own derivative is zero is not compared, nor (``twice``) whether a gradient of zeros is there. ``coarse`` is a dtype that the value has
    passed through, ``coarsest`` one that its gradient may have: the wider tolerance counts."""
    if isinstance(a, torch.Tensor) != isinstance(b, ours.Tensor):
        return "kind"
    if isinstance(a, torch.Tensor):
        if tuple(a.shape) != tuple(b.shape):
            return "shape"
        if str(a.dtype) != str(b.dtype):
            return "dtype"
        if a.requires_grad != b.requires_grad and not derived:
            return "requires_grad"
        if any(s > 1 and m != n for s, m, n in zip(a.shape, a.stride(), b.stride())) and a.numel():
            return "strides"
        tolerance = wider(str(a.dtype), coarse)
        if not all(close(m, n, tolerance) for m, n in zip(flat(a), flat(b))):
            return "values"
        if a.is_leaf and a.requires_grad:
            given = b.grad if a.grad is None else a.grad if b.grad is None else None
            if given is not None and twice and not any(flat(given)):
                return None
            if given is not None:
                return "grad missing" if b.grad is None else "grad present"
            if a.grad is not None:
                inner = difference(a.grad, b.grad, torch, ours, coarse=coarsest)
                return inner and f"grad {inner}"
        return None
    if isinstance(a, (list, tuple)):
        if not isinstance(b, (list, tuple)) or len(a) != len(b):
            return "length"
        return next((d for d in (difference(m, n, torch, ours, coarse=coarse, coarsest=coarsest) for m, n in zip(a, b)) if d), None)
    if isinstance(a, (bool, int, float, str)) or a is None:
        return None if close(a, b, TOLERANCE["torch.float32"]) else "values"
    return None if str(a) == str(b) else "values"


def wider(dtype, coarse):
    """The tolerance for a value of a dtype that has passed through another."""
    return max((TOLERANCE[d] for d in (dtype, coarse) if d in TOLERANCE), default=None) if dtype in TOLERANCE else None


class Rounding:
    """The coarsest float dtype that each variable has passed through: a double that was a half is as exact as a half."""

    def __init__(self):
        self.of = {}

    def follow(self, statement, values):
        """Takes a statement that was run into account. A change in place may show in each of the tensors it names."""
        named = set(re.findall(r"\b[vg]\d+\b", statement))
        dtypes = [self.of[n] for n in named if n in self.of] + re.findall(r"torch\.\w*float\d+", statement)
        dtypes += [str(t.dtype) for n in named for t in self.tensors(values.get(n))]
        dtypes = [d for d in dtypes if d in TOLERANCE]
        if dtypes:
            coarse = max(dtypes, key=TOLERANCE.get)
            target = re.match(r"\w+", statement).group()
            self.of.update((n, coarse) for n in (named if is_change(statement) else [target]))

    @staticmethod
    def tensors(value):
        return [t for t in (value if isinstance(value, (list, tuple)) else [value]) if hasattr(t, "dtype")]

    def coarsest(self):
        return max(self.of.values(), key=TOLERANCE.get, default=None)


def is_change(statement):
    """Whether a statement changes a tensor in place: ``x.add_(y)``, ``x[0] = y``, ``x += y``."""
    return re.search(r"[a-z0-9]_\(", statement) is not None or re.match(r"\w+\[.*\] \W*= |\w+ [^\w\s]+= ", statement) is not None


class Mismatch:
    """Where two runs of a program part."""

    def __init__(self, at, statement, kind, expected, found):
        self.at, self.statement, self.kind, self.expected, self.found = at, statement, kind, expected, found


def describe(error, value):
    return f"{class_of(error)}: {str(error).splitlines()[0] if str(error) else ''}" if error is not None else short(value)


def short(value):
    text = " ".join(str(value).split())
    extra = f" {value.dtype} {tuple(value.shape)}" if hasattr(value, "dtype") and hasattr(value, "shape") else ""
    return (text if len(text) < 300 else text[:300] + "…") + extra


def compare(statements, torch, ours):
    """Runs a program with both. The first mismatch, or None."""
    theirs, mine, rounding = names(torch), names(ours), Rounding()
    for at, statement in enumerate(statements):
        expected, found = outcome(statement, theirs), outcome(statement, mine)
        if class_of(expected) != class_of(found):
            kind = f"{class_of(found)} for {class_of(expected)}"
            return Mismatch(at, statement, kind, describe(expected, "no exception"), describe(found, "no exception"))
        if expected is not None and is_change(statement):
            # The result of a failed in-place op is unspecified.
            return None
        rounding.follow(statement, theirs)
        # Every variable: a change through a view shows in its base.
        for name in [n for n in theirs if n not in ("torch", "F", "weigh") and not n.startswith("__")]:
            if name not in mine:
                return Mismatch(at, statement, "missing", name, "nothing")
            a, b = theirs[name], mine[name]
            try:
                coarse = rounding.coarsest() if name.startswith("g") else rounding.of.get(name)
                kind = difference(a, b, torch, ours, name.startswith("g"), "g0" in theirs, coarse, rounding.coarsest())
            except RuntimeError:
                # PyTorch raises for some views after changes of their base.
                return None
            if kind:
                if kind.startswith("grad ") and isinstance(a, torch.Tensor):
                    return Mismatch(at, statement, kind, short(a.grad), short(b.grad))
                return Mismatch(at, statement, kind, short(a), short(b))
    return None


def shrink(statements, torch, ours, mismatch):
    """The same mismatch in fewer statements."""
    statements, kind = statements[: mismatch.at + 1], mismatch.kind
    at = len(statements) - 2
    while at >= 0:
        fewer = statements[:at] + statements[at + 1 :]
        found = compare(fewer, torch, ours)
        if found is not None and found.kind == kind and found.at == len(fewer) - 1:
            statements, mismatch = fewer, found
        at -= 1
    return statements, mismatch
