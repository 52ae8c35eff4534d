"""``torch.onnx``: models as ONNX files."""

import enum
import io
import os

from .. import _absent
from .._C import Tensor
from ..torch_version import __version__ as producer_version  # noqa: F401
from ..utils import _pytree

_REASON = "torch.onnx.export writes ONNX files; the parts of PyTorch's exporter are not there"

__all__ = ["ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export"]

_state = {"exporting": False}


class OnnxExporterError(RuntimeError):
    """A model that cannot be written as ONNX."""


def is_in_onnx_export():
    """Whether a model is being exported."""
    return _state["exporting"]


class TrainingMode(enum.Enum):
    """The mode that a model is exported in."""

    EVAL, PRESERVE, TRAINING = range(3)


class OperatorExportTypes(enum.Enum):
    """How operators are exported."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


class ONNXProgram:
    """An ONNX model in memory. ``save`` writes it; calling it runs it here."""

    def __init__(self, data, exported_program):
        self._data, self.exported_program, self._program = data, exported_program, None

    def save(self, destination, *, include_initializers=True, keep_initializers_as_inputs=False, external_data=None):
        """Writes the file."""
        if not include_initializers or keep_initializers_as_inputs or external_data:
            raise NotImplementedError("ONNXProgram.save: weights are written into the file, as constants")
        if isinstance(destination, (str, os.PathLike)):
            with open(destination, "wb") as file:
                file.write(self._data)
        else:
            destination.write(self._data)

    @property
    def model_proto(self):
        """The model as an object of the ``onnx`` package."""
        import onnx

        return onnx.load(io.BytesIO(self._data))

    def __call__(self, *args, **kwargs):
        from .._C import _Program

        if self._program is None:
            self._program = _Program.from_bytes(self._data)
        leaves = tuple(leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        found = self._program.call("forward", leaves, {})
        return found if isinstance(found, tuple) else (found,)


def _symbols_of_axes(dynamic_axes, input_names, output_names, args, kwargs, names):
    """``dynamic_axes`` as ``dynamic_shapes``: inputs by name, each a dictionary from dimensions to ``Dim``."""
    from ..export import Dim

    labels = dict(zip(input_names or (), [*names, *kwargs]))
    known, dims, shapes = [*names, *kwargs], {}, {}
    for name, axes in dynamic_axes.items():
        target = labels.get(name, name)
        if target not in known:
            if name in (output_names or ()):
                continue
            raise ValueError(f"dynamic_axes names '{name}', which is neither an input ({known}) nor an output")
        entries = axes.items() if isinstance(axes, dict) else ((axis, f"{target}_dim_{axis}") for axis in axes)
        found = {}
        for axis, label in entries:
            label = "".join(c if c.isalnum() else "_" for c in str(label))
            label = label if label.isidentifier() else f"d_{label}"
            found[axis] = dims.setdefault(label, Dim(label))
        shapes[target] = found
    return {name: shapes.get(name) for name in known}


def _examples(exported):
    """The example's tensors, and others of different sizes in the dynamic dimensions."""
    import rushlight as torch

    from ..export import _resized

    leaves = _pytree.tree_leaves(exported.example_inputs)
    tensors = lambda all: tuple(leaf for leaf in all if isinstance(leaf, Tensor))  # noqa: E731
    names = {symbol.__name__ for free in exported._symbols for symbol in free.values()}
    missing = names - set(exported._tried)
    if missing:
        raise OnnxExporterError(f"torch.onnx.export: the model runs on no other size of the dynamic dimensions {sorted(missing)}; keep them static")
    if not names:
        return [tensors(leaves)]
    base = {symbol.__name__: t.shape[dim] for t, free in zip(tensors(leaves), exported._symbols) for dim, symbol in free.items()}
    together = tensors(_resized(leaves, exported._symbols, {**base, **exported._tried}))
    try:
        with torch.no_grad():
            exported._program.call("forward", together, {})
        return [tensors(leaves), together]
    except RuntimeError:
        one = [tensors(_resized(leaves, exported._symbols, {**base, name: size})) for name, size in exported._tried.items()]
        return [tensors(leaves), *one]


def export(
    model, args=(), f=None, *, kwargs=None, export_params=True, verbose=None, training=TrainingMode.EVAL, input_names=None, output_names=None, opset_version=None,
    dynamo=True, external_data=False, dynamic_shapes=None, dynamic_axes=None, keep_initializers_as_inputs=False, custom_translation_table=None, report=False,
    optimize=True, verify=False, profile=False, dump_exported_program=False, artifacts_dir=".", fallback=False, do_constant_folding=True, custom_opsets=None,
    operator_export_type=OperatorExportTypes.ONNX, export_modules_as_functions=False, autograd_inlining=True,
):
    """Writes a model as ONNX: runs it on example inputs and translates its ops. Returns an ``ONNXProgram``.

    ``dynamic_shapes`` (or ``dynamic_axes``) names the sizes that may change. An op without an ONNX form is an error that names it. ``verify`` runs the ONNX model
    here and compares. Constants are always folded; ``dynamo`` makes no difference.
    """
    from ..export import ExportedProgram, _parameter_names
    from ..export import export as trace

    refused = {
        "export_params=False": not export_params, "external_data": external_data and _is_large(model), "keep_initializers_as_inputs": keep_initializers_as_inputs,
        "custom_translation_table": custom_translation_table, "custom_opsets": custom_opsets, "export_modules_as_functions": export_modules_as_functions,
        "report": report, "profile": profile, "dump_exported_program": dump_exported_program, "training=TrainingMode.TRAINING": training is TrainingMode.TRAINING,
        "operator_export_type": operator_export_type is not OperatorExportTypes.ONNX,
    }
    for name, given in refused.items():
        if given:
            raise NotImplementedError(f"torch.onnx.export: {name} is not supported")
    opset = 18 if opset_version is None else opset_version
    if not 18 <= opset <= 23:
        raise ValueError(f"torch.onnx.export: opset_version {opset} is not supported; use 18 to 23")
    args = args if isinstance(args, tuple) else (args,)
    kwargs = dict(kwargs or {})
    if args and isinstance(args[-1], dict) and not kwargs and not dynamo:
        args, kwargs = args[:-1], args[-1]
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None or dynamic_axes is not None:
            raise ValueError("torch.onnx.export: an exported program has its dynamic sizes already")
        exported = model
    else:
        names = _parameter_names(model.forward, len(args))
        if dynamic_axes:
            if dynamic_shapes is not None:
                raise ValueError("torch.onnx.export takes dynamic_axes or dynamic_shapes, not both")
            dynamic_shapes = _symbols_of_axes(dynamic_axes, input_names, output_names, args, kwargs, names)
        was, _state["exporting"] = model.training, True
        try:
            if training is TrainingMode.EVAL:
                model.eval()
            exported = trace(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        finally:
            model.train(was)
            _state["exporting"] = False
    if exported.example_inputs is None:
        examples, inputs = [], []
    else:
        examples, inputs = _examples(exported), exported._inputs
    given = [*(input_names or ())]
    if len(given) > len(inputs) and inputs:
        raise ValueError(f"torch.onnx.export: {len(given)} input names for {len(inputs)} inputs")
    try:
        data = exported._program.onnx(examples, opset, given + inputs[len(given):], [*(output_names or ())])
    except RuntimeError as error:
        raise OnnxExporterError(str(error)) from error
    program = ONNXProgram(data, exported)
    if verify and examples:
        from ..export import _same

        import rushlight as torch

        with torch.no_grad():
            for example in examples:
                _same(program(*example), exported._program.call("forward", example, {}), "as ONNX")
    if f is not None:
        program.save(f)
    if verbose:
        print(exported.graph)
    return program


def _is_large(model):
    """Whether the weights need files beside the model."""
    weights = model.state_dict() if callable(getattr(model, "state_dict", None)) else getattr(model, "state_dict", {})
    return sum(t.numel() * t.element_size() for t in weights.values() if isinstance(t, Tensor)) >= 2**31


_absent.fill(globals(), "torch.onnx", _REASON, "ExportOptions dynamo_export register_custom_op_symbolic unregister_custom_op_symbolic")
_absent.add_modules(
    __name__, _REASON,
    {
        "symbolic_helper": "parse_args _get_tensor_sizes _maybe_get_const", "symbolic_opset9": "dropout masked_fill softmax", "symbolic_opset12": "dropout",
        "symbolic_opset11": "", "utils": "", "_internal": "",
    },
)


def __getattr__(name):
    import importlib

    if f"onnx.{name}" in _absent.MODULES:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"rushlight has no 'torch.onnx.{name}': {_REASON}")
