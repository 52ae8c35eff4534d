"""``torch.autograd.profiler``: the older interface of the profiler."""

from .. import _C
from .._profiler_events import DeviceType, EventList, FunctionEvent, FunctionEventAvg  # noqa: F401
from ..profiler import ProfilerActivity, kineto_available, record_function  # noqa: F401
from ..profiler import profile as _profile


class profile:
    """Records ops, kernels and memory while it is active."""

    def __init__(
        self, enabled=True, *, use_cuda=False, use_device=None, record_shapes=False, with_flops=False, profile_memory=False, with_stack=False,
        with_modules=False, use_kineto=False, use_cpu=True, experimental_config=None, acc_events=False, custom_trace_id_callback=None,
    ):
        self.enabled = enabled
        activities = {ProfilerActivity.CPU} if not (use_cuda or use_device) else set(ProfilerActivity)
        self._profile = _profile(
            activities=activities, record_shapes=record_shapes, with_flops=with_flops, profile_memory=profile_memory, with_stack=with_stack,
            with_modules=with_modules, experimental_config=experimental_config, acc_events=acc_events,
        )
        self._events = None

    def __enter__(self):
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *exception):
        if self.enabled:
            self._profile.stop()
        return False

    def _checked(self):
        if not self.enabled:
            raise RuntimeError("the profiler is not enabled: profile(enabled=False)")
        return self._profile

    @property
    def function_events(self):
        """The recorded events."""
        if self._events is None and self.enabled and self._profile._trace is not None:
            self._events = self._profile.events()
        return self._events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """Totals by name."""
        return self._checked().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def table(self, sort_by=None, row_limit=100, **options):
        """Totals by name, as text."""
        return self._checked().key_averages().table(sort_by=sort_by, row_limit=row_limit, **options)

    def total_average(self):
        """The total of everything."""
        return self._checked().events().total_average()

    @property
    def self_cpu_time_total(self):
        """Host time in microseconds."""
        return self._checked().events().self_cpu_time_total

    def export_chrome_trace(self, path):
        """Writes a trace."""
        self._checked().export_chrome_trace(path)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes stacks and their times."""
        self._checked().export_stacks(path, metric)

    def __str__(self):
        return self.table() if self.enabled and self._profile._trace is not None else "<unfinished profiler_legacy.profile>"


class emit_nvtx:
    """Ranges for NVIDIA's tools; none are emitted. These tools show the engine's kernels by name."""

    def __init__(self, enabled=True, record_shapes=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


emit_itt = emit_nvtx


def _is_profiler_enabled():
    return _C._profiler_is_on()
