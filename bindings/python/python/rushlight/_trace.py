"""Tracing: runs a model on example inputs and writes its ops as a program's text.

A mode sees every op of ``torch``. Ops of the table become lines of the program; functions written in Python are traced through. Sizes of tensors are integers
that know the expression they came from, so that a program runs on other sizes.
"""

import itertools
import warnings

from . import _C
from .overrides import TorchFunctionMode
from .utils import _pytree

Tensor = _C.Tensor


class TracerWarning(Warning):
    """A value of a tensor became a constant of a traced program."""


class _Int(int):
    """A size: an integer with its expression in the program."""

    def __new__(cls, value, text):
        made = int.__new__(cls, value)
        made.text = text
        return made


def _text(value):
    return value.text if type(value) is _Int else int.__repr__(value)


def _add_arithmetic():
    def method(name, sign, swapped):
        plain = getattr(int, name)

        def call(self, other):
            value = plain(self, other)
            if value is NotImplemented or not isinstance(other, int) or type(value) is not int:
                return value
            left, right = (_text(other), self.text) if swapped else (self.text, _text(other))
            return _Int(value, f"({left} {sign} {right})")

        call.__name__ = name
        setattr(_Int, name, call)

    for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "//"), ("mod", "%")):
        method(f"__{name}__", sign, False)
        method(f"__r{name}__", sign, True)
    _Int.__neg__ = lambda self: _Int(-int(self), f"(-{self.text})")
    _Int.__int__ = lambda self: self
    _Int.__index__ = lambda self: int.__index__(self)


_add_arithmetic()

_known = {}


def _names():
    """Names in programs of the table's functions and methods."""
    if not _known:
        for module, space in ((_C._torch, "torch"), (_C._nn, "nn.functional"), (_C._linalg, "linalg"), (_C._special, "special")):
            for name, function in vars(module).items():
                if callable(function):
                    _known[function] = f"{space}.{name}"
        for homes, name, _, _ in _C._rows():
            if "method" in homes:
                _known[getattr(Tensor, name)] = f"Tensor.{name}"
            if "inplace" in homes:
                _known[getattr(Tensor, name + "_")] = f"Tensor.{name}_"
    return _known


#: Operators and the ops they are; ``True`` for swapped operands.
_OPERATORS = {
    "__rsub__": ("torch.rsub", False), "__pow__": ("torch.pow", False), "__rpow__": ("torch.pow", True), "__floordiv__": ("torch.floor_divide", False),
    "__and__": ("torch.bitwise_and", False), "__or__": ("torch.bitwise_or", False), "__xor__": ("torch.bitwise_xor", False), "__rand__": ("torch.bitwise_and", True),
    "__invert__": ("torch.bitwise_not", False), "__rmatmul__": ("torch.matmul", True), "__ror__": ("torch.bitwise_or", True),
}

_READS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "numpy", "__array__", "is_nonzero", "equal", "allclose"}


class Tracer(TorchFunctionMode):
    """Records ops as lines."""

    def __init__(self, weights, symbolic):
        self.lines, self.weights, self._symbolic, self._inside = [], {}, symbolic, []
        self._names, self._alive, self._count = {}, [], itertools.count()
        self._owned = {id(tensor): name for name, tensor in weights.items()}
        self._alive.extend(weights.values())

    def input(self, tensor, name):
        self._names[id(tensor)] = name
        self._alive.append(tensor)

    def name(self, tensor):
        """The expression of a tensor: a variable, or a weight."""
        found = self._names.get(id(tensor))
        if found is None:
            weight = self._owned.get(id(tensor))
            if weight is None:
                weight = f"constants.{len(self._owned)}"
                self._owned[id(tensor)] = weight
                self._alive.append(tensor)
            self.weights[weight] = tensor
            found = f'weight("{weight}")'
        return found

    def _fresh(self, tensor=None):
        name = f"v{next(self._count)}"
        if tensor is not None:
            self._names[id(tensor)] = name
            self._alive.append(tensor)
        return name

    def write(self, value):
        """A value as an expression."""
        if isinstance(value, Tensor):
            return self.name(value)
        if value is None or isinstance(value, bool):
            return repr(value)
        if isinstance(value, int):
            return _text(value)
        if isinstance(value, float):
            return repr(float(value))
        if isinstance(value, str):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        if isinstance(value, list):
            return "[" + ", ".join(map(self.write, value)) + "]"
        if isinstance(value, tuple):
            inner = ", ".join(map(self.write, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.write(k)}: {self.write(v)}" for k, v in value.items()) + "}"
        if isinstance(value, _C.dtype):
            return str(value)
        if isinstance(value, _C.device):
            return f'torch.device("{value}")'
        if isinstance(value, _C.memory_format):
            return str(value)
        if type(value).__name__ == "layout":
            return "None"
        raise NotImplementedError(f"an exported program cannot hold a {type(value).__name__}")

    def emit(self, name, args, kwargs, result):
        """Writes a line for a call and names its results."""
        parts = [self.write(arg) for arg in args] + [f"{key}={self.write(value)}" for key, value in kwargs.items()]
        call = f"{name}({', '.join(parts)})"
        if isinstance(result, Tensor):
            self.lines.append(f"{self._fresh(result)} = {call}")
        elif isinstance(result, (tuple, list)) and result and all(isinstance(r, Tensor) for r in result):
            self.lines.append(", ".join(self._fresh(r) for r in result) + f", = {call}")
        elif result is None:
            self.lines.append(f"{self._fresh()} = {call}")
        return result

    def sizes(self, tensor):
        name = self._names.get(id(tensor))
        if name is None or not self._symbolic:
            return tuple(tensor.shape)
        return tuple(_Int(size, f"torch.size({name}, {dim})") for dim, size in enumerate(tensor.shape))

    def _view(self, tensor, index):
        """Writes the views of ``tensor[index]`` up to indices that are tensors. Returns the expression and those indices."""
        index = index if isinstance(index, tuple) else (index,)
        known = sum(i is not None and i is not Ellipsis and not (isinstance(i, Tensor) and i.dtype == _C.bool) for i in index)
        known += sum(i.dim() for i in index if isinstance(i, Tensor) and i.dtype == _C.bool)
        name, dim, tensors, shape = self.name(tensor), 0, [], list(self.sizes(tensor))

        def step(call):
            nonlocal name
            made = self._fresh()
            self.lines.append(f"{made} = {call}")
            name = made

        for item in index:
            if item is Ellipsis:
                skip = len(tensor.shape) - known
                dim += skip
                tensors += [None] * skip
            elif item is None:
                step(f"torch.unsqueeze({name}, {dim})")
                dim += 1
                tensors.append(None)
            elif isinstance(item, slice):
                if item != slice(None):
                    step(f"torch.slice({name}, {dim}, {self.write(item.start)}, {self.write(item.stop)}, {self.write(1 if item.step is None else item.step)})")
                dim += 1
                tensors.append(None)
            elif isinstance(item, bool):
                raise NotImplementedError("an exported program does not index by True or False; use a tensor")
            elif isinstance(item, int):
                step(f"torch.select({name}, {dim}, {self.write(item)})")
            else:
                item = item if isinstance(item, Tensor) else _C._torch.as_tensor(item) if hasattr(_C._torch, "as_tensor") else _tensor(item)
                tensors.append(item)
                dim += item.dim() if item.dtype == _C.bool else 1
        return name, (tensors if any(t is not None for t in tensors) else None)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        owner = getattr(func, "__self__", None)
        if getattr(func, "__name__", "") == "__get__" and owner is not None:
            return self._attribute(owner.__name__, func, args[0])
        name = getattr(func, "__name__", "")
        known = _names().get(func) or getattr(func, "_program_name", None)
        if name in ("size", "dim", "numel", "nelement", "stride", "is_contiguous", "data_ptr", "is_floating_point", "element_size", "__len__", "type", "get_device") and not (
            name == "type" and len(args) > 1
        ):
            return self._question(name, func, args, kwargs)
        if name == "__getitem__":
            view, tensors = self._view(*args)
            result = func(*args)
            listed = "" if tensors is None else ", ".join(self.write(t) for t in tensors)
            self.lines.append(f"{self._fresh(result)} = " + (view if tensors is None else f"torch.index({view}, [{listed}])"))
            return result
        if name == "__setitem__":
            return self._assign(func, *args)
        if name in _OPERATORS:
            op, swapped = _OPERATORS[name]
            return self.emit(op, args[::-1] if swapped else args, {}, func(*args))
        if name in ("__rtruediv__", "__rdiv__"):
            result = func(*args)
            inverse = self._fresh()
            self.lines.append(f"{inverse} = torch.reciprocal({self.write(args[0])})")
            self.lines.append(f"{self._fresh(result)} = torch.mul({inverse}, {self.write(args[1])})")
            return result
        if name in _READS and name != "equal":
            warnings.warn(f"a traced program keeps the result of Tensor.{name} as a constant; it does not depend on its inputs", TracerWarning, stacklevel=3)
            return func(*args, **kwargs)
        if known is not None:
            if any(isinstance(k, _C.Generator) for k in kwargs.values()):
                raise NotImplementedError("an exported program has no generators of its own; use torch.manual_seed")
            if kwargs.get("out") is not None:
                raise NotImplementedError(f"{known}: an exported program does not support out=")
            kwargs = {key: value for key, value in kwargs.items() if value is not None or key not in ("out", "generator")}
            return self.emit(known, args, kwargs, func(*args, **kwargs))
        if isinstance(func, type(len)) or type(func).__name__ in ("method_descriptor", "wrapper_descriptor"):
            result = func(*args, **kwargs)
            if any(isinstance(leaf, Tensor) and id(leaf) not in self._names and id(leaf) not in self._owned for leaf in _pytree.tree_leaves(result)):
                raise NotImplementedError(f"an exported program has no op for {getattr(func, '__qualname__', func)}")
            return result
        inner = getattr(func, "__wrapped__", None)
        if inner is None and func in self._inside:
            raise NotImplementedError(f"an exported program has no op for {getattr(func, '__qualname__', func)}")
        self._inside.append(func)
        try:
            with self:
                return (inner or func)(*args, **kwargs)
        finally:
            self._inside.pop()

    def _attribute(self, name, func, tensor):
        if name == "shape":
            from ._size import Size

            return Size(self.sizes(tensor))
        result = func(tensor)
        if name in ("T", "mT", "H", "mH"):
            op = "torch.transpose" if tensor.dim() > 1 else "torch.alias"
            return self.emit(op, (tensor, -2, -1) if tensor.dim() > 1 else (tensor,), {}, result)
        if name == "data":
            return self.emit("torch.detach", (tensor,), {}, result)
        if isinstance(result, Tensor) and name not in ("grad", "_base"):
            raise NotImplementedError(f"an exported program has no op for Tensor.{name}")
        return result

    def _question(self, name, func, args, kwargs):
        result = func(*args, **kwargs)
        if name == "size":
            sizes = self.sizes(args[0])
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            if dim is not None:
                return sizes[dim]
            from ._size import Size

            return Size(sizes)
        if name in ("numel", "nelement") and self._symbolic and id(args[0]) in self._names:
            return _Int(result, f"torch.numel({self._names[id(args[0])]})")
        return result

    def _assign(self, func, tensor, index, value):
        view, tensors = self._view(tensor, index)
        func(tensor, index, value)
        if tensors is not None:
            value = self.write(value if isinstance(value, Tensor) else _tensor(value, tensor))
            self.lines.append(f"{self._fresh()} = torch.index_put_({view}, [{', '.join(self.write(t) for t in tensors)}], {value})")
        elif isinstance(value, Tensor):
            self.lines.append(f"{self._fresh()} = Tensor.copy_({view}, {self.write(value)})")
        else:
            self.lines.append(f"{self._fresh()} = Tensor.fill_({view}, {self.write(value)})")


def _tensor(value, like=None):
    import rushlight

    return rushlight.tensor(value) if like is None else rushlight.tensor(value, dtype=like.dtype)


def _plain(value):
    """Outputs as tuples, lists and dictionaries, which a program can return."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def trace(function, args, kwargs, weights, names, symbols):
    """Runs ``function`` and returns the program's text, its weights, the names of its inputs and the outputs.

    ``names`` are those of the positional arguments. ``symbols`` gives a dictionary from dimensions to names for each tensor, in order; ``None`` if all sizes may
    change.
    """
    tracer = Tracer(weights, symbols is None or any(symbols))
    parameters, inputs = [], []

    def register(leaf, name):
        if isinstance(leaf, Tensor):
            dims = {} if symbols is None else symbols[len(inputs)]
            shape = ", ".join(str(dims.get(d) or ("_" + name + str(d) if symbols is None else n)) for d, n in enumerate(leaf.shape))
            # Another object, so that one tensor given twice stays two inputs.
            leaf = leaf.detach().requires_grad_(leaf.requires_grad) if leaf.is_leaf else leaf.view_as(leaf)
            tracer.input(leaf, name)
            parameters.append(f"{name}: {str(leaf.dtype)[6:]}[{shape}]")
            inputs.append(name)
        return leaf

    def place(value, name):
        leaves, spec = _pytree.tree_flatten(value)
        if len(leaves) == 1 and leaves[0] is value:
            return register(value, name)
        return _pytree.tree_unflatten([register(leaf, f"{name}_{i}") for i, leaf in enumerate(leaves)], spec)

    labels = [*names, *(f"input_{i}" for i in range(len(names), len(args)))]
    args = tuple(place(value, label) for value, label in zip(args, labels))
    kwargs = {name: place(value, name) for name, value in kwargs.items()}
    with tracer:
        outputs = function(*args, **kwargs)
    lines = tracer.lines + [f"return {tracer.write(_plain(outputs))}"]
    text = f"def forward({', '.join(parameters)}):\n" + "".join(f"  {line}\n" for line in lines)
    return text, tracer.weights, inputs, outputs
