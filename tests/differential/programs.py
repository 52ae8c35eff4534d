"""Random programs: lists of Python statements over ``torch``, ``F`` and the tensors they have made so far.

A program is made while PyTorch runs it, so that most statements are valid. ``TEMPLATES`` (``templates.py``) lists the
statements; a hole such as ``{T}`` is filled by the method of ``Program`` that ``HOLES`` names. Holes after the first see its tensor, the subject:
``{D}`` is one of its dimensions, ``{B}`` a tensor that broadcasts with it.
"""

import math
import random
import re
import string

from templates import BUILDERS, TEMPLATES

FLOATS = ["float32", "float32", "float32", "float64", "float64", "float16", "bfloat16"]
INTS = ["int64", "int64", "int32", "int16", "int8", "uint8"]
DTYPES = FLOATS + INTS + ["bool"]
#: Numbers beyond a small dtype's range are rare: they end most statements with an exception.
NUMBERS = ["0", "1", "2", "-1", "3", "-2", "0.5", "2.5", "-1.5", "True", "1e-3", "7", "-0.25"]
EXTREME = ["300", "-129", "2**40", "2**60 + 1", "float('inf')", "float('nan')", "-float('inf')", "1e30", "False", "70000"]
MAX_NUMEL = 400
#: Statements to which PyTorch has no answer: it lacks a derivative or a kernel, refuses a gradient of its own, or fails
#: at an assertion of its own. Programs leave these statements out, whether Rushlight supports them or not. A regular
#: expression over "statement | message".
NO_ANSWER = re.compile(
    r"\| .*derivative for .* is not implemented"
    r"|\| Expected a proper Tensor but got None"
    r'|\| "(cdist|searchsorted_out_cpu)" not implemented for'
    r"|logsumexp\(\(\)\) \| output with shape"
    r"|\| setStorage: sizes"
    r"|\| Function \w+ returned an invalid gradient"
    r"|isin\(.* \| view size is not compatible"
    r"|(backward\(\)|autograd\.grad).* \| (The size of tensor a|result type .* can't be cast|cannot reshape tensor of 0)"
)


class Program:
    """A program under construction, with the values its variables have in PyTorch."""

    def __init__(self, torch, seed, evaluate):
        self.random = random.Random(seed)
        self.torch = torch
        self.evaluate = evaluate
        self.statements = []
        self.names = evaluate.names(torch)
        self.tensors = {}
        self.subject = None
        #: Whether the last indices for gather and scatter cover a part of their subject.
        self.partial = False
        self.templates = [t for t, weight in TEMPLATES for _ in range(weight)]
        # Half of the programs concentrate on a few templates: combinations that a uniform draw would rarely make.
        if self.random.random() < 0.5:
            self.templates = self.random.sample(self.templates, 12)

    # Statements

    def make(self, length):
        for _ in range(self.random.randint(1, 2)):
            self.new()
        for _ in range(self.random.randint(1, length)):
            if self.random.random() < 0.15:
                self.random.choice(BUILDERS)(self)
            else:
                self.template(self.random.choice(self.templates))
        self.finish()
        return self.statements

    def run(self, statement):
        self.statements.append(statement)
        try:
            self.evaluate.execute(statement, self.names)
        except Exception as error:
            if NO_ANSWER.search(f"{statement} | {error}"):
                self.statements.pop()
            return None
        for name, value in list(self.names.items()):
            if isinstance(value, self.torch.Tensor):
                self.tensors[name] = value
        return True

    def assign(self, expression):
        name = f"v{len(self.statements)}"
        self.run(f"{name} = {expression}")
        value = self.names.get(name)
        return name if isinstance(value, self.torch.Tensor) and value.numel() <= MAX_NUMEL else self.forget(name)

    def forget(self, name):
        self.tensors.pop(name, None)

    def template(self, text):
        self.subject, self.partial = None, False
        filled = re.sub(r"\{(\w+)\}", lambda m: str(getattr(self, HOLES[m.group(1)])()), text)
        if re.match(r"(\w+(\[.*\])?|\w+\.\w+) [-+*/%&|^]*=[^=]", filled):
            self.run(filled)
        else:
            self.assign(filled)

    def finish(self):
        """Gradients of one of the results, half of the time."""
        leaves = [n for n, t in self.tensors.items() if t.requires_grad and t.is_leaf]
        made = [n for n, t in self.tensors.items() if t.requires_grad and not t.is_leaf and t.dtype.is_floating_point]
        if not leaves or not made:
            return
        out = made[-1] if self.random.random() < 0.7 else self.random.choice(made)
        if self.random.random() < 0.3:
            leaf = self.random.choice(leaves)
            self.run(f"g0, = torch.autograd.grad(weigh({out}), [{leaf}], create_graph=True, allow_unused=True)")
            self.run("g0 is not None and g0.requires_grad and weigh(g0).backward()")
        else:
            self.run(f"weigh({out}).backward()")

    # Values

    def dtype(self):
        return "torch." + self.random.choice(DTYPES)

    def shape(self, rank=None):
        rank = self.random.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]) if rank is None else rank
        return [self.random.choice([0, 1, 1, 2, 2, 3, 3, 4, 5]) if self.random.random() < 0.9 else 2 for _ in range(rank)]

    def literal(self, shape, dtype, special=True):
        count = 1
        for size in shape:
            count *= size
        draw = self.random
        if dtype == "bool":
            data = [draw.random() < 0.5 for _ in range(count)]
        elif dtype in INTS:
            low = 0 if dtype == "uint8" else -9
            data = [draw.randint(low, 9) for _ in range(count)]
            if draw.random() < 0.1 and count:
                data[draw.randrange(count)] = {"uint8": 255, "int8": -128, "int16": 32767, "int32": -(2**31)}.get(dtype, 2**62)
        else:
            # Distinct if there are enough values: the order of equal elements is unspecified.
            pool = [v / 8 for v in range(-40, 41)]
            data = draw.sample(pool, count) if count <= len(pool) else [draw.choice(pool) for _ in range(count)]
            if special and draw.random() < 0.08 and count:
                data[draw.randrange(count)] = float(draw.choice(["nan", "inf", "-inf", "-0.0"]))
        text = ", ".join(f"float('{v}')" if isinstance(v, float) and v - v != 0 else repr(v) for v in data)
        sizes = "" if len(shape) == 1 else f".reshape({', '.join(map(str, shape)) if shape else '()'})"
        return f"torch.tensor([{text}], dtype=torch.{dtype}){sizes}"

    def new(self, shape=None, dtype=None, grad=None, special=True, constant=False):
        dtype = dtype or self.random.choice(DTYPES)
        while shape is None or math.prod(shape) > MAX_NUMEL:
            shape = self.shape()
        text = self.literal(shape, dtype, special)
        if dtype in FLOATS and (self.random.random() < 0.5 if grad is None else grad) and not constant:
            text += ".requires_grad_()"
        return self.assign(text)

    def finite(self, shape, dtype, grad=None):
        return self.new(shape, dtype, grad, special=False)

    def pick(self, accept=lambda t: True, dtypes=DTYPES, shape=None):
        """A variable that fits, or a new one."""
        found = [n for n, t in self.tensors.items() if accept(t) and t.numel() <= MAX_NUMEL]
        if found and self.random.random() < 0.85:
            return self.random.choice(found[-4:] if self.random.random() < 0.6 else found)
        return self.new(shape=shape, dtype=self.random.choice(dtypes))

    def is_subject(self, name):
        if self.subject is None:
            self.subject = self.tensors[name]
        return name

    # Holes

    def tensor(self):
        return self.is_subject(self.pick())

    def float_tensor(self):
        return self.is_subject(self.pick(lambda t: t.dtype.is_floating_point, FLOATS))

    def int_tensor(self):
        kinds = INTS + ["bool"]
        return self.is_subject(self.pick(lambda t: not t.dtype.is_floating_point, kinds))

    def vector(self):
        return self.is_subject(self.pick(lambda t: t.dim() == 1, shape=self.shape(1)))

    def matrix(self):
        return self.is_subject(self.pick(lambda t: t.dim() == 2, FLOATS, shape=self.shape(2)))

    def batch(self):
        """Matrices of floats with leading dimensions, perhaps none."""
        return self.is_subject(self.pick(lambda t: t.dim() >= 2 and t.dtype.is_floating_point, FLOATS, self.shape(3)))

    def square(self):
        n = self.random.randint(0, 3)
        ok = lambda t: t.dim() >= 2 and t.shape[-1] == t.shape[-2] and t.dtype.is_floating_point  # noqa: E731
        return self.is_subject(self.pick(ok, ["float32", "float64"], [n, n]))

    def broadcast_shape(self):
        shape = list(self.subject.shape)
        how = self.random.random()
        if how < 0.5 or not shape:
            return shape
        if how < 0.7:
            return [1 if self.random.random() < 0.4 else s for s in shape]
        if how < 0.95:
            return shape[self.random.randint(0, len(shape)):]
        return self.shape()

    def other(self, dtypes=None):
        """A tensor that broadcasts with the subject, mostly of its dtype."""
        shape = self.broadcast_shape()
        same = str(self.subject.dtype)[6:]
        found = [n for n, t in self.tensors.items() if list(t.shape) == shape and dtypes is None]
        if found and self.random.random() < 0.5:
            return self.random.choice(found)
        if dtypes is None:
            dtypes = DTYPES if self.random.random() < 0.4 else [same if same in DTYPES else "float32"]
        return self.new(shape, self.random.choice(dtypes))

    def alike(self):
        """A tensor of the subject's shape and dtype. PyTorch documents the gradient of a scattered source for one of the index's shape only."""
        same = str(self.subject.dtype)[6:]
        return self.new(list(self.subject.shape), same, constant=self.partial)

    def mask(self):
        return self.other(["bool"])

    def number(self):
        return self.random.choice(NUMBERS if self.random.random() < 0.9 else EXTREME)

    def tensor_or_number(self):
        return self.number() if self.random.random() < 0.4 else self.other()

    def integer(self):
        return self.random.choice([0, 1, 1, 2, 2, 3, -1, -2])

    def positive(self):
        return self.random.choice([1, 1, 2, 2, 3])

    def dim(self):
        rank = self.subject.dim()
        if self.random.random() < 0.04:
            return self.random.choice([rank, -rank - 1])
        return self.random.randint(-rank, rank - 1) if rank else self.random.choice([0, -1])

    def dims(self):
        rank = self.subject.dim()
        some = self.random.sample(range(rank), self.random.randint(0, rank)) if rank else []
        some = [d - rank if self.random.random() < 0.3 else d for d in some]
        return "(" + "".join(f"{d}, " for d in some) + ")"

    def dim_or_none(self):
        return "None" if self.random.random() < 0.2 else self.dim()

    def permutation(self):
        order = list(range(self.subject.dim()))
        self.random.shuffle(order)
        return "(" + "".join(f"{d}, " for d in order) + ")"

    def truth(self):
        return self.random.choice(["True", "False"])

    def sizes(self):
        """A shape with as many elements as the subject, perhaps with one size given as -1."""
        count, out = self.subject.numel(), []
        while count > 1 and len(out) < 3:
            factors = [f for f in range(1, count + 1) if count % f == 0]
            out.append(self.random.choice(factors))
            count //= out[-1]
        if self.subject.numel() == 0:
            out = list(self.subject.shape)
            self.random.shuffle(out)
        elif count > 1 or self.random.random() < 0.3:
            out.append(count)
        if out and self.random.random() < 0.3:
            out[self.random.randrange(len(out))] = -1
        return "(" + "".join(f"{d}, " for d in out) + ")"

    def expanded(self):
        shape = [self.random.choice([2, 3, -1]) if s == 1 else self.random.choice([s, -1]) for s in self.subject.shape]
        return "(" + "".join(f"{d}, " for d in [self.random.randint(0, 3) for _ in range(self.random.choice([0, 0, 1]))] + shape) + ")"

    def indices(self, dim=None):
        """A vector of places along a dimension."""
        shape = self.subject.shape
        size = shape[self.random.randrange(len(shape))] if len(shape) else 1
        low = 0
        count = self.random.randint(0, 4) if size else 0
        kind = "int64" if self.random.random() < 0.85 else "int32"
        data = [self.random.randint(low, max(size - 1, 0)) for _ in range(count)]
        return f"torch.tensor({data}, dtype=torch.{kind})"

    def places(self):
        """Indices of the subject's rank, for gather and scatter along dimension 0 or -1."""
        shape = list(self.subject.shape)
        size = [self.random.randint(0, s) if self.random.random() < 0.4 else s for s in shape]
        self.partial = size != shape
        count = 1
        for s in size:
            count *= s
        low = min(shape) if shape else 1
        data = [self.random.randint(0, max(low - 1, 0)) for _ in range(count)]
        return f"torch.tensor({data}, dtype=torch.int64).reshape({tuple(size)})"

    def index(self):
        """An index expression."""
        parts, draw = [], self.random
        for size in self.subject.shape:
            how = draw.random()
            inside = lambda: draw.randint(-size, size - 1) if size else 0  # noqa: E731
            if how < 0.25:
                parts.append(str(inside()) if draw.random() < 0.95 else str(size))
            elif how < 0.5:
                ends = [draw.choice(["", draw.randint(-size - 1, size + 1)]) for _ in range(2)]
                step = draw.choice(["", "", ":2", ":3", ":1"])
                parts.append(f"{ends[0]}:{ends[1]}{step}")
            elif how < 0.58:
                parts.append("None")
            elif how < 0.7:
                parts.append(str([inside() for _ in range(draw.randint(0 if size == 0 else 1, 3))] if size else []))
            elif how < 0.78:
                parts.append(f"torch.tensor({[inside() for _ in range(draw.randint(1, 3))] if size else []}, dtype=torch.int64)")
            elif how < 0.84:
                parts.append(f"torch.tensor({[draw.random() < 0.5 for _ in range(size)]}, dtype=torch.bool)")
            elif how < 0.88:
                parts.append(draw.choice(["True", "False"]))
            elif how < 0.95:
                break
            else:
                parts.append("...")
                break
        return ", ".join(parts) if parts else draw.choice(["...", "None", ":", "()"])

    def variable(self):
        return f"v{len(self.statements)}"


HOLES = {
    "T": "tensor", "TF": "float_tensor", "TI": "int_tensor", "TV": "vector", "TM": "matrix", "TB": "batch", "TS": "square",
    "B": "other", "L": "alike", "M": "mask", "A": "tensor_or_number", "S": "number", "I": "integer", "P": "positive",
    "D": "dim", "DS": "dims", "DN": "dim_or_none", "PM": "permutation", "K": "truth", "DT": "dtype", "SZ": "sizes",
    "EX": "expanded", "IV": "indices", "PL": "places", "IX": "index", "V": "variable",
}  # fmt: skip
assert all(h in HOLES for t, _ in TEMPLATES for _, h, _, _ in string.Formatter().parse(t) if h)
