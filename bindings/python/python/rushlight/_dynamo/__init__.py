"""``torch._dynamo``: what ``torch.compile`` has recorded, and why it could not."""

import importlib.machinery
import sys

from .._compile import explain  # noqa: F401
from ..compiler import _Config, allow_in_graph, assume_constant_result, disable, forbid_in_graph, is_compiling, reset  # noqa: F401
from . import exc  # noqa: F401
from .eval_frame import OptimizedModule  # noqa: F401

config = _Config("dynamo")
# Statements `import torch._dynamo.config` ask for a module.
config.__spec__ = importlib.machinery.ModuleSpec(f"{__name__}.config", None)
sys.modules[f"{__name__}.config"] = config


def _mark(t, index=None, **kwargs):
    """Does nothing: sizes and addresses may always change between calls."""


mark_dynamic = maybe_mark_dynamic = mark_static = mark_static_address = mark_unbacked = _mark


def optimize(backend="inductor", *, nopython=False, disable=False, dynamic=None, **kwargs):
    """A decorator that compiles functions."""
    from .._compile import compile

    return compile(backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic)


def graph_break(msg=""):
    """Within a function that is recorded: it runs as it is from now on."""
    from .. import _C
    from .._compile import is_recording

    if is_recording():
        _C._compile_break(f"torch._dynamo.graph_break {msg}".rstrip())


def is_dynamo_supported():
    """Whether functions can be compiled: always True."""
    return True


def list_backends(exclude_tags=()):
    """Names of backends."""
    return ["cudagraphs", "inductor"]


def __getattr__(name):
    if name == "utils":
        import importlib

        return importlib.import_module(".utils", __name__)
    from .._functions import _missing

    return _missing(__name__, name)
