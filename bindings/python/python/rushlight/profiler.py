"""``torch.profiler``: how long parts of a program took. Ops themselves are not recorded."""

import time
import warnings

__all__ = ["ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler"]

_active = []


def kineto_available():
    """Whether PyTorch's profiler library is there: it is not."""
    return False


class ProfilerActivity:
    """What to watch."""

    CPU, CUDA, XPU = "CPU", "CUDA", "XPU"


class ProfilerAction:
    """What a step of a schedule does."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class record_function:
    """A named part of the program."""

    def __init__(self, name, args=None):
        self.name = name

    def __enter__(self):
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception):
        spent = time.perf_counter() - self._start
        for profiler in _active:
            profiler._add(self.name, spent, self._start)

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with record_function(self.name):
                return function(*args, **kwargs)

        return decorated


class _Average:
    """Calls of one name."""

    def __init__(self, key):
        self.key, self.count, self.cpu_time_total = key, 0, 0.0

    @property
    def cpu_time(self):
        return self.cpu_time_total / max(self.count, 1)

    self_cpu_time_total = property(lambda self: self.cpu_time_total)


class _Averages(list):
    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, max_shapes_column_width=80, header=None, top_level_events_only=False):
        """The rows as text, the greatest first; by the total time unless ``sort_by`` names a number of calls or an average."""
        # Times of an accelerator are not kept apart.
        field = "cpu_time_total" if sort_by is None else sort_by.replace("cuda", "cpu").replace("xpu", "cpu").replace("device", "cpu")
        rows = sorted(self, key=lambda a: -getattr(a, field, a.cpu_time_total))[: row_limit if row_limit >= 0 else None]
        width = max([len(a.key) for a in rows] + [4])
        lines = [f"{'Name':<{width}}  {'Calls':>8}  {'CPU total':>12}  {'CPU time avg':>12}"]
        lines = [header, *lines] if header else lines
        lines += [f"{a.key:<{width}}  {a.count:>8}  {a.cpu_time_total / 1e3:>10.3f}ms  {a.cpu_time:>10.3f}us" for a in rows]
        return "\n".join(lines)


class profile:
    """Collects the parts that ``record_function`` names, and steps, while it is active."""

    def __init__(
        self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False, with_stack=False, with_flops=False,
        with_modules=False, experimental_config=None, execution_trace_observer=None, acc_events=False, use_cuda=None,
    ):
        wanted = dict(record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops, with_modules=with_modules)
        if any(wanted.values()):
            names = ", ".join(name for name, value in wanted.items() if value)
            warnings.warn(f"rushlight: the profiler times parts that record_function names, not ops: {names} cannot be had", stacklevel=2)
        self._schedule, self._ready, self._accumulate = schedule, on_trace_ready, acc_events
        self._parts, self._events, self.step_num = {}, [], 0
        self._action = ProfilerAction.RECORD

    def _add(self, name, spent, start):
        if self._action < ProfilerAction.RECORD:
            return
        part = self._parts.setdefault(name, _Average(name))
        part.count += 1
        part.cpu_time_total += spent * 1e6
        self._events.append((name, start, spent))

    def start(self):
        self._begun = self._stepped = time.perf_counter()
        self._action = ProfilerAction.RECORD if self._schedule is None else self._schedule(self.step_num)
        _active.append(self)

    def stop(self):
        if self in _active:
            _active.remove(self)
            if self._ready is not None and self._action >= ProfilerAction.RECORD:
                self._ready(self)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def step(self):
        """Says that a step of the program is done."""
        now = time.perf_counter()
        self._add("ProfilerStep", now - self._stepped, self._stepped)
        self._stepped = now
        self.step_num += 1
        if self._schedule is None:
            return
        if self._action == ProfilerAction.RECORD_AND_SAVE:
            if self._ready is not None:
                self._ready(self)
            if not self._accumulate:
                self._kept = self._parts, self._events
                self._parts, self._events = {}, []
        self._action = self._schedule(self.step_num)

    #: What the last cycle of a schedule recorded.
    _kept = {}, []

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0):
        """The parts by name: of the cycle under way, or of the last one."""
        if group_by_input_shape or group_by_stack_n:
            raise NotImplementedError("key_averages: parts are known by their names alone")
        return _Averages((self._parts or self._kept[0]).values())

    def events(self):
        return list(self._events or self._kept[1])

    def export_chrome_trace(self, path):
        """Writes the parts as a trace that browsers show."""
        import json

        events = [{"name": n, "ph": "X", "ts": (s - self._begun) * 1e6, "dur": d * 1e6, "pid": 0, "tid": 0} for n, s, d in self.events()]
        if str(path).endswith(".gz"):
            import gzip

            opened = gzip.open(path, "wt")
        else:
            opened = open(path, "w")
        with opened as file:
            json.dump({"traceEvents": events}, file)


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Which steps are recorded: cycles of steps that wait, warm up and are active, as often as ``repeat`` says, or for ever."""

    def action(step):
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

    def handler(profiler):
        import os

        os.makedirs(dir_name, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(dir_name, f"{worker_name or os.getpid()}.{int(time.time() * 1000)}.pt.trace.json{'.gz' if use_gzip else ''}"))

    return handler
