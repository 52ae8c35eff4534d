"""``torch.fx``: programs as graphs. Tracing runs a module on proxies and records each step."""

from . import _pytree, _symbolic_trace, immutable_collections  # noqa: F401
from ._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy, TraceError
from . import subgraph_rewriter
from .subgraph_rewriter import replace_pattern

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "PH", "Proxy", "ProxyableClassMeta", "TraceError", "Tracer", "Transformer", "has_side_effect", "map_arg",
    "replace_pattern", "subgraph_rewriter", "symbolic_trace", "wrap",
]

_MODULES = frozenset("experimental passes".split())


def __getattr__(name):
    if name in _MODULES:
        import importlib

        return importlib.import_module("." + name, __name__)
    from .._functions import _missing

    return _missing(__name__, name)
