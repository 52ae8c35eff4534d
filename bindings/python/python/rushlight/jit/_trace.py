"""``torch.jit._trace``: tracing, by PyTorch's private module."""

from . import TracerWarning, _get_trace_graph, is_tracing, trace, trace_module  # noqa: F401
