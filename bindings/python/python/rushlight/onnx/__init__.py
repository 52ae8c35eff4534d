"""``torch.onnx``: export is not supported."""

import enum

from .. import _absent

_REASON = "exporting is not supported; models run as they are, and torch.save keeps their state"


def is_in_onnx_export():
    """Whether a model is being exported: always false."""
    return False


class TrainingMode(enum.Enum):
    """The mode that a model is exported in."""

    EVAL, PRESERVE, TRAINING = range(3)


class OperatorExportTypes(enum.Enum):
    """How operators are exported."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


_absent.fill(globals(), "torch.onnx", _REASON, "ExportOptions ONNXProgram OnnxExporterError dynamo_export export register_custom_op_symbolic unregister_custom_op_symbolic")
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
