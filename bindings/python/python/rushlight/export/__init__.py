"""``torch.export``: a model as a program of ops with its weights, in one ``.rlm`` file."""

import inspect

from .. import _absent, _trace
from .._C import Tensor, _Program
from ..utils import _pytree
from .dynamic_shapes import Dim, dims

__all__ = ["Dim", "ExportedProgram", "dims", "export", "load", "save"]


def _weights(module):
    """Parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _parameter_names(function, count):
    """Names of a function's first positional parameters."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds][:count]


def _symbols(args, kwargs, names, dynamic_shapes):
    """For each tensor among the arguments a dictionary from its free dimensions to their ``Dim``."""
    if dynamic_shapes is None:
        return [{} for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if isinstance(dynamic_shapes, dict):
        unknown = set(dynamic_shapes) - set(names) - set(kwargs)
        if unknown:
            raise ValueError(f"dynamic_shapes names {sorted(unknown)}, which are not arguments; they are {[*names, *kwargs]}")
        shapes = [dynamic_shapes.get(name) for name in names[: len(args)]] + [dynamic_shapes.get(name) for name in kwargs]
    else:
        shapes = list(dynamic_shapes)
        if len(shapes) != len(args) + len(kwargs):
            raise ValueError(f"dynamic_shapes has {len(shapes)} entries for {len(args) + len(kwargs)} arguments")
    out = []

    def walk(value, shape):
        if isinstance(value, Tensor):
            entries = dict(enumerate(shape)) if isinstance(shape, (list, tuple)) else dict(shape or {})
            free = {}
            for dim, symbol in entries.items():
                dim = dim + value.dim() if dim < 0 else dim
                if not 0 <= dim < value.dim():
                    raise ValueError(f"dynamic_shapes has dimension {dim} of a tensor with {value.dim()}")
                if symbol is None or symbol is Dim.STATIC or isinstance(symbol, int) and not isinstance(symbol, Dim):
                    continue
                free[dim] = Dim(f"s{len(out)}_{dim}") if symbol is Dim.AUTO or symbol is Dim.DYNAMIC else symbol
            out.append(free)
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, (shape or {}).get(key))
        elif isinstance(value, (list, tuple)):
            for at, item in enumerate(value):
                walk(item, shape[at] if shape else None)

    for value, shape in zip([*args, *kwargs.values()], shapes):
        walk(value, shape)
    return out


def _resized(leaves, symbols, base):
    """Tensors like the examples with other sizes in the free dimensions, for a comparison."""
    import rushlight as torch

    sizes, out, at = dict(base), [], 0
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            out.append(leaf)
            continue
        for dim, symbol in symbols[at].items():
            index = torch.arange(sizes[symbol.__name__], device=leaf.device) % leaf.shape[dim]
            leaf = leaf.detach().index_select(dim, index)
        out.append(leaf)
        at += 1
    return out


def _same(found, wanted, what):
    import rushlight as torch

    found, wanted = _pytree.tree_leaves(found), _pytree.tree_leaves(wanted)
    for a, b in zip(found, wanted):
        if isinstance(b, Tensor) and not (a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)):
            raise RuntimeError(f"torch.export: the program and the model differ {what}: the model depends on Python values that a trace does not see")


def _checked(program, module, args, kwargs, symbols, outputs):
    """Compares the program with the model: on the example, and on other sizes, which are returned by the names of the dimensions."""
    import rushlight as torch

    leaves, spec = _pytree.tree_flatten((args, kwargs))
    with torch.no_grad():
        _same(program.call("forward", tuple(leaf for leaf in leaves if isinstance(leaf, Tensor)), {}), outputs, "on the example inputs")
        base, names, tensors = {}, {}, [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        for tensor, free in zip(tensors, symbols):
            for dim, symbol in free.items():
                if base.setdefault(symbol.__name__, tensor.shape[dim]) != tensor.shape[dim]:
                    raise ValueError(f"dimension '{symbol.__name__}' is {base[symbol.__name__]} in one input and {tensor.shape[dim]} in another")
                names[symbol.__name__] = symbol
        tried = {}
        for name, symbol in names.items():
            for size in (base[name] + 1, base[name] + 2, base[name] * 2, base[name] - 1):
                if not symbol.min <= size <= symbol.max or size < 1 or size == base[name]:
                    continue
                other = _resized(leaves, symbols, {**base, name: size})
                again, kept = _pytree.tree_unflatten(other, spec)
                try:
                    wanted = module(*again, **kept)
                except RuntimeError:
                    continue
                try:
                    found = program.call("forward", tuple(leaf for leaf in other if isinstance(leaf, Tensor)), {})
                except RuntimeError as error:
                    raise RuntimeError(f"torch.export: the program fails with {name} = {size}, where the model runs; keep that dimension static: {error}") from error
                _same(found, wanted, f"with {name} = {size}")
                tried[name] = size
                break
    return tried


class ExportedProgram:
    """A program of ops with its weights. ``module()`` gives a module that runs it."""

    def __init__(self, program, example_inputs=None, symbols=()):
        self._program = program
        self.example_inputs = example_inputs
        self._symbols, self._tried, self._inputs = symbols, {}, []
        self.range_constraints = {s.__name__: (s.min, s.max) for free in symbols for s in free.values()}

    def module(self, check_guards=True):
        """A module that runs the program. Its weights are the program's."""
        from ..jit._program import ProgramModule

        return ProgramModule(self._program)

    @property
    def graph(self):
        """The program as text."""
        return self._program.text()

    @property
    def state_dict(self):
        """The weights by name."""
        return self._program.state()

    def named_parameters(self):
        """The parameters with their names."""
        return ((name, tensor) for name, tensor in self.state_dict.items() if tensor.requires_grad)

    def parameters(self):
        """The parameters."""
        return (tensor for _, tensor in self.named_parameters())

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def __str__(self):
        return f"ExportedProgram:\n{self.graph}"


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(), prefer_deferred_runtime_asserts_over_guards=False):
    """Runs the model on example inputs and records its ops as a program.

    ``dynamic_shapes`` names the sizes that may change (``Dim``). The program is compared with the model on the examples and on other sizes. Branches on values are
    taken as they are for the examples.
    """
    from ..nn import Module

    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise TypeError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature:
        raise NotImplementedError("torch.export: calls of submodules are not kept; preserve_module_call_signature must be empty")
    kwargs = dict(kwargs or {})
    names = _parameter_names(mod.forward, len(args))
    symbols = _symbols(args, kwargs, names, dynamic_shapes)
    labels = [{dim: symbol.__name__ for dim, symbol in free.items()} for free in symbols]
    text, weights, inputs, outputs = _trace.trace(mod, args, kwargs, _weights(mod), names, labels)
    program = _Program.from_text(text, weights)
    made = ExportedProgram(program, (args, kwargs), symbols)
    if not mod.training:
        made._tried = _checked(program, mod, args, kwargs, symbols, outputs)
    made._inputs = inputs
    return made


def save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Writes a ``.rlm`` file: the program as text, the weights as safetensors."""
    from ..jit._program import extra_of

    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    ep._program.save(f, extra_of(extra_files))


def load(f, *, extra_files=None, expected_opset_version=None):
    """Reads a ``.rlm`` file or a ``.pt2`` archive of PyTorch. ``extra_files`` is as in ``torch.jit.load``, with texts."""
    from ..jit._program import opened, read_extra

    program, source = opened(f)
    if extra_files:
        found = read_extra(source, extra_files)
        extra_files.update({name: text.decode() for name, text in found.items() if text is not None})
    return ExportedProgram(program)


_absent.fill(globals(), "torch.export", "programs are traced as they are; use torch.export.export", "export_for_training register_dataclass")
