"""``torch.autograd.profiler_util``: events and totals."""

from .._profiler_events import DeviceType, EventList, FunctionEvent, FunctionEventAvg, Interval  # noqa: F401
