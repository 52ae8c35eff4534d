"""``torch.profiler``: time and memory of a program.

The engine records every op, every node of a backward pass, the loader, optimizers, collectives and, where there is a device, its kernels. Nothing
is recorded, and ops cost no more, while no profiler is active.
"""

import enum
import os
import sys
import time

from . import _C
from ._profiler_events import DeviceType, EventList, FunctionEvent, FunctionEventAvg  # noqa: F401

__all__ = [
    "DeviceType", "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]


def kineto_available():
    """Whether traces are supported: always."""
    return True


class ProfilerActivity(enum.Enum):
    """Sources of events."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """Action of a schedule's step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities():
    """The sources that are supported here."""
    from . import cuda, xpu

    activities = {ProfilerActivity.CPU}
    if cuda.is_available():
        activities.add(ProfilerActivity.CUDA)
    if xpu.is_available():
        activities.add(ProfilerActivity.XPU)
    return activities


if hasattr(os, "register_at_fork"):
    # A forked child records nothing: its events would be lost.
    os.register_at_fork(after_in_child=lambda: _C._profiler_is_on() and _C._profiler_stop())


def _stack():
    """The frames of the program that called an op, innermost first, without the library's own."""
    own = os.path.dirname(__file__)
    frame, out = sys._getframe(), []
    while frame is not None and len(out) < 64:
        code = frame.f_code
        if not code.co_filename.startswith(own):
            out.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return out


class record_function:
    """A named part of the program: a context, or a decorator."""

    def __init__(self, name, args=None):
        self.name, self.args, self._span = name, args, None

    def __enter__(self):
        if _C._profiler_is_on():
            self._span = _C.ProfilerSpan(self.name)
        return self

    def __exit__(self, *exception):
        if self._span is not None:
            self._span.end()
            self._span = None

    def _call_end_callbacks_on_future(self, future):
        """The span ends when the future is done."""
        span, self._span = self._span, None
        return future.then(lambda done: (span and span.end(), done.value())[1])

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return decorated


def _default_schedule_fn(step):
    """Records every step."""
    return ProfilerAction.RECORD


#: PyTorch defines the classes in a module of this name.
profiler = sys.modules[__name__]


class profile:
    """Records a program while it is active, or the steps that a schedule selects.

    ``with_modules`` concerns TorchScript in PyTorch and adds nothing here. ``experimental_config`` and ``execution_trace_observer`` have no
    counterpart: anything but ``None`` is an error.
    """

    def __init__(
        self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False, with_stack=False, with_flops=False,
        with_modules=False, experimental_config=None, execution_trace_observer=None, acc_events=False, use_cuda=None, custom_trace_id_callback=None,
        post_processing_timeout_s=None,
    ):
        if experimental_config is not None or execution_trace_observer is not None:
            raise NotImplementedError("profile: experimental_config and execution_trace_observer belong to PyTorch's Kineto and are not supported")
        if activities is not None and not set(activities) <= set(ProfilerActivity):
            raise ValueError(f"profile: activities are members of ProfilerActivity, not {activities}")
        self.activities = set(activities) if activities is not None else set(ProfilerActivity)
        if use_cuda is not None:
            self.activities = self.activities | {ProfilerActivity.CUDA} if use_cuda else self.activities - {ProfilerActivity.CUDA}
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.record_shapes, self.profile_memory, self.with_stack, self.with_flops = bool(record_shapes), bool(profile_memory), bool(with_stack), bool(with_flops)
        self.with_modules, self.acc_events, self.on_trace_ready = with_modules, acc_events, on_trace_ready
        self.schedule, self.record_steps = schedule or _default_schedule_fn, schedule is not None
        self.step_num, self.current_action = 0, ProfilerAction.NONE
        self.action_map = None
        self._trace, self._metadata, self._begun = None, {}, 0
        self._trace_id = custom_trace_id_callback

    def start(self):
        """Starts recording."""
        self._step_begun = _C._profiler_clock()
        self._enter(self.schedule(self.step_num))

    def stop(self):
        """Stops recording; the results are then available."""
        action = self.current_action
        if action != ProfilerAction.NONE:
            if self.record_steps and action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
                self._mark_step()
            trace = _C._profiler_stop()
            self.current_action = ProfilerAction.NONE
            if action != ProfilerAction.WARMUP:
                self._keep(trace)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def _mark_step(self):
        now = _C._profiler_clock()
        _C._profiler_add(f"ProfilerStep#{self.step_num}", self._step_begun, now)
        self._step_begun = now

    def step(self):
        """Marks the end of a step."""
        if self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._mark_step()
        self.step_num += 1
        if self.record_steps:
            self._enter(self.schedule(self.step_num))
        self._step_begun = _C._profiler_clock()

    def _enter(self, action):
        before, self.current_action = self.current_action, action
        kept = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        # Recording restarts after the warm-up, and between cycles without one.
        fresh = before == ProfilerAction.RECORD_AND_SAVE or (before == ProfilerAction.WARMUP and action in kept)
        if before != ProfilerAction.NONE and (fresh or action == ProfilerAction.NONE):
            trace = _C._profiler_stop()
            if before == ProfilerAction.RECORD_AND_SAVE:
                self._keep(trace)
        if action != ProfilerAction.NONE and (fresh or before == ProfilerAction.NONE):
            try:
                _C._profiler_start(self.record_shapes, self.profile_memory, self.activities != {ProfilerActivity.CPU}, self.with_stack)
            except RuntimeError:
                self.current_action = ProfilerAction.NONE
                raise

    def _keep(self, trace):
        self._trace = self._trace.joined(trace) if self.acc_events and self._trace is not None else trace
        if trace.dropped:
            import warnings

            warnings.warn(f"the profiler kept the first events only: {trace.dropped} were too many; use a schedule with fewer active steps", stacklevel=2)
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _recorded(self, call):
        if self._trace is None:
            raise AssertionError(f"{call}: the profiler has not recorded anything yet: it must be stopped, or have ended a cycle of its schedule, first")
        return self._trace

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """Totals by name, and optionally by input shapes or innermost frames."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def events(self):
        """The recorded events."""
        return EventList(self._recorded("events"), with_flops=self.with_flops)

    def export_chrome_trace(self, path):
        """Writes a trace that browsers, Perfetto and TensorBoard show; compressed if the name ends in ``.gz``."""
        self._recorded("export_chrome_trace").export_chrome_trace(os.fspath(path))
        if self._metadata:
            self._write_metadata(os.fspath(path))

    def _write_metadata(self, path):
        import gzip
        import json

        opened = gzip.open if path.endswith(".gz") else open
        with opened(path, "rt") as file:
            trace = json.load(file)
        with opened(path, "wt") as file:
            json.dump({**self._metadata, **trace}, file)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes stacks and their times in the format of flame graphs; needs ``with_stack``."""
        return self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path, device=None):
        """Writes the memory timeline: ``.html``, ``.json`` or ``.json.gz``; needs ``profile_memory``."""
        path, device = os.fspath(path), str(device or "cpu")
        if path.endswith(".raw.json.gz"):
            raise NotImplementedError("export_memory_timeline: single allocations are not recorded; .json.gz has the memory in use over time")
        self._recorded("export_memory_timeline").export_memory_timeline(path, not device.startswith("cpu"))

    def add_metadata(self, key, value):
        """Adds a text to the trace."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key, value):
        """Adds a value, given as JSON, to the trace."""
        import json

        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def get_trace_id(self):
        """A name for the trace."""
        return self._trace_id() if self._trace_id is not None else f"{self._recorded('get_trace_id').begin:032X}"

    def set_custom_trace_id_callback(self, callback):
        """The function that names traces."""
        self._trace_id = callback

    def toggle_collection_dynamic(self, enable, activities):
        """Not supported: use a schedule."""
        raise NotImplementedError("toggle_collection_dynamic: use a schedule, or start and stop")


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """A schedule of cycles with waiting, warm-up and active steps, repeated ``repeat`` times, or for ever."""
    if not (wait >= 0 and warmup >= 0 and active > 0 and repeat >= 0 and skip_first >= 0):
        raise AssertionError("Invalid profiler schedule arguments")

    def action(step):
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        cycle = wait + warmup + active
        if skip_first_wait:
            # The first cycle does not wait.
            step += wait
        if repeat > 0 and step // cycle >= repeat:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """Writes a trace into a folder when recording ends."""
    import socket

    def handler(profiler):
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        profiler.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"))

    return handler


class ExecutionTraceObserver:
    """PyTorch's execution trace, which is not supported."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError("ExecutionTraceObserver is a part of PyTorch's Kineto; export_chrome_trace writes what was recorded")
