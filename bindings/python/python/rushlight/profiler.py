"""``torch.profiler``: how long parts of a program took. Ops themselves are not recorded."""

import time

__all__ = ["ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler"]

_active = []


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
    def table(self, sort_by=None, row_limit=100, **kwargs):
        rows = sorted(self, key=lambda a: -a.cpu_time_total)[:row_limit]
        width = max([len(a.key) for a in rows] + [4])
        lines = [f"{'Name':<{width}}  {'Calls':>8}  {'CPU total':>12}  {'CPU time avg':>12}"]
        lines += [f"{a.key:<{width}}  {a.count:>8}  {a.cpu_time_total / 1e3:>10.3f}ms  {a.cpu_time:>10.3f}us" for a in rows]
        return "\n".join(lines)


class profile:
    """Collects the parts that ``record_function`` names, and steps, while it is active."""

    def __init__(
        self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False, with_stack=False, with_flops=False,
        with_modules=False, experimental_config=None, use_cuda=None, **kwargs,
    ):
        self._schedule, self._ready = schedule, on_trace_ready
        self._parts, self._events, self.step_num = {}, [], 0

    def _add(self, name, spent, start):
        part = self._parts.setdefault(name, _Average(name))
        part.count += 1
        part.cpu_time_total += spent * 1e6
        self._events.append((name, start, spent))

    def start(self):
        self._begun = self._stepped = time.perf_counter()
        _active.append(self)

    def stop(self):
        if self in _active:
            _active.remove(self)
            if self._ready is not None:
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

    def key_averages(self, *args, **kwargs):
        return _Averages(self._parts.values())

    def events(self):
        return list(self._events)

    def export_chrome_trace(self, path):
        """Writes the parts as a trace that browsers show."""
        import json

        events = [{"name": n, "ph": "X", "ts": (s - self._begun) * 1e6, "dur": d * 1e6, "pid": 0, "tid": 0} for n, s, d in self._events]
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Which steps are to be recorded. All are: it costs nothing."""
    return lambda step: ProfilerAction.RECORD


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """Writes a trace into a folder when recording ends."""

    def handler(profiler):
        import os

        os.makedirs(dir_name, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(dir_name, f"{worker_name or os.getpid()}.{int(time.time() * 1000)}.pt.trace.json"))

    return handler
