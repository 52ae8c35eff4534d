"""Events and totals of the profiler: ``torch.autograd.profiler_util``'s classes."""

import enum

from . import _C

__all__ = ["DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]


class DeviceType(enum.Enum):
    """The device of an event."""

    CPU = 0
    CUDA = 1
    XPU = 12


#: Prefixes of the names of collectives.
_BACKENDS = frozenset(("gloo", "nccl", "mpi", "xccl", "ucc"))


class Interval:
    """Begin and end, in microseconds."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def elapsed_us(self):
        """Duration."""
        return self.end - self.start


def _text(us):
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


class _Times:
    """Times as text, and times of one call."""

    cpu_time = property(lambda self: self.cpu_time_total / self.count if self.count else 0.0)
    device_time = property(lambda self: self.device_time_total / self.count if self.count else 0.0)
    cuda_time = device_time
    cuda_time_total = property(lambda self: self.device_time_total)
    self_cuda_time_total = property(lambda self: self.self_device_time_total)
    cuda_memory_usage = property(lambda self: self.device_memory_usage)
    self_cuda_memory_usage = property(lambda self: self.self_device_memory_usage)
    cpu_time_str = property(lambda self: _text(self.cpu_time))
    device_time_str = property(lambda self: _text(self.device_time))
    cpu_time_total_str = property(lambda self: _text(self.cpu_time_total))
    device_time_total_str = property(lambda self: _text(self.device_time_total))
    self_cpu_time_total_str = property(lambda self: _text(self.self_cpu_time_total))
    self_device_time_total_str = property(lambda self: _text(self.self_device_time_total))


class FunctionEvent(_Times):
    """One event."""

    count, is_remote, is_legacy, node_id, sequence_nr, scope = 1, False, False, -1, -1, 0

    def __init__(self, id, name, category, start, end, on_device, thread, device_index, shapes, stack, memory, flops):
        self.id, self.name, self.key, self.trace_name, self.activity_type = id, name, name, name, category
        self.time_range, self.thread, self.fwd_thread = Interval(start, end), thread, None
        self.device_type = DeviceType.CUDA if on_device else DeviceType.CPU
        self.device_index, self.device_resource_id = device_index, thread
        self.input_shapes, self.stack, self.flops = shapes, stack, flops
        self.is_user_annotation = category == "user_annotation"
        # A collective such as gloo:all_reduce runs beside the thread that started it.
        self.is_async = self.is_user_annotation and name.partition(":")[0] in _BACKENDS
        self.cpu_memory_usage, self.device_memory_usage = memory
        self.cpu_children, self.cpu_parent, self.kernels = [], None, []

    cpu_time_total = property(lambda self: self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0.0)
    device_time_total = property(lambda self: self.time_range.elapsed_us() if self.device_type != DeviceType.CPU else 0.0)
    self_device_time_total = device_time_total

    @property
    def self_cpu_time_total(self):
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self):
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_device_memory_usage(self):
        return self.device_memory_usage - sum(child.device_memory_usage for child in self.cpu_children)

    def __repr__(self):
        return f"<FunctionEvent id={self.id} name={self.name} thread={self.thread} cpu_time={self.cpu_time_str} input_shapes={self.input_shapes}>"


class FunctionEventAvg(_Times):
    """All events of one name together."""

    is_async, is_remote, is_legacy, node_id, scope, use_device, overload_name = False, False, False, 0, 0, None, ""

    def __init__(self, row, stack=()):
        self.key, self.input_shapes, self.count, times, memory, self.flops, on_device, self.is_user_annotation = row
        self.cpu_time_total, self.self_cpu_time_total, self.device_time_total, self.self_device_time_total = times
        self.cpu_memory_usage, self.self_cpu_memory_usage, self.device_memory_usage, self.self_device_memory_usage = memory
        self.device_type = DeviceType.CUDA if on_device else DeviceType.CPU
        self.stack, self.cpu_children, self.cpu_parent = list(stack), [], None

    def _row(self):
        times = [self.cpu_time_total, self.self_cpu_time_total, self.device_time_total, self.self_device_time_total]
        memory = [self.cpu_memory_usage, self.self_cpu_memory_usage, self.device_memory_usage, self.self_device_memory_usage]
        on_device = self.device_type != DeviceType.CPU
        return (self.key, self.input_shapes, self.count, times, memory, self.flops, on_device, self.is_user_annotation)

    def add(self, other):
        """Adds another's figures."""
        for name in (
            "count", "flops", "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total", "cpu_memory_usage",
            "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add

    def __repr__(self):
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
            f"self_device_time={self.self_device_time_total_str} device_time={self.device_time_str} input_shapes={self.input_shapes}>"
        )


def _sort_key(sort_by):
    """The engine's name of a column: ``cuda`` and ``xpu`` are the device."""
    if sort_by is None:
        return "cpu_time_total"
    name = sort_by.replace("cuda", "device").replace("xpu", "device")
    if name not in _C._profiler_sort_keys:
        raise AttributeError(f"table: sort_by is one of {', '.join(_C._profiler_sort_keys)}, not '{sort_by}'")
    return name


class EventList(list):
    """Events of a recording, or totals of them."""

    def __init__(self, trace=None, with_flops=False, totals=None, label="Device"):
        self._trace, self._with_flops, self._label = trace, with_flops, label
        if totals is not None:
            super().__init__(totals)
        elif trace is not None:
            self._label = trace.device_label()
            super().__init__(FunctionEvent(i, *row) for i, row in enumerate(trace.events()) if row[1] not in ("cuda_runtime",))
            self._nest()
        else:
            super().__init__()

    def _nest(self):
        open_events = {}
        for event in self:
            if event.device_type != DeviceType.CPU:
                continue
            stack = open_events.setdefault(event.thread, [])
            while stack and stack[-1].time_range.end < event.time_range.end:
                stack.pop()
            if stack:
                event.cpu_parent = stack[-1]
                stack[-1].cpu_children.append(event)
            stack.append(event)

    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0, group_by_overload_name=False):
        """Totals by name, and by shapes of inputs or the innermost frames."""
        if group_by_stack_n:
            return self._by_stack(group_by_input_shapes, group_by_stack_n)
        rows = self._trace.averages(bool(group_by_input_shapes)) if self._trace is not None else []
        totals = [FunctionEventAvg(row) for row in rows]
        return self._totals(totals)

    def _totals(self, totals):
        if not self._with_flops:
            for total in totals:
                total.flops = 0
        return EventList(totals=totals, label=self._label, with_flops=self._with_flops)

    def _by_stack(self, by_shape, depth):
        groups = {}
        for event in self:
            stack = tuple(event.stack[:depth])
            shapes = event.input_shapes if by_shape else []
            name = "ProfilerStep*" if event.name.startswith("ProfilerStep#") else event.name
            on_device = event.device_type != DeviceType.CPU
            times = [event.cpu_time_total, event.self_cpu_time_total, event.device_time_total, event.self_device_time_total]
            memory = [event.cpu_memory_usage, event.self_cpu_memory_usage, event.device_memory_usage, event.self_device_memory_usage]
            row = (name, shapes, 1, times, memory, event.flops, on_device, event.is_user_annotation)
            total = FunctionEventAvg(row, stack)
            key = name, str(shapes), stack
            groups[key] = groups[key].add(total) if key in groups else total
        return self._totals(list(groups.values()))

    def total_average(self):
        """The total of everything."""
        total = FunctionEventAvg(("Total", [], 0, [0.0] * 4, [0] * 4, 0, False, False))
        for event in self:
            total.add(event)
        total.key = "Total"
        return total

    @property
    def self_cpu_time_total(self):
        """Host time in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def table(
        self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, max_shapes_column_width=80, header=None,
        top_level_events_only=False, time_unit=None,
    ):
        """The rows as text, largest first. Times have the unit that fits them; widths follow the contents."""
        totals = self if self and isinstance(self[0], FunctionEventAvg) else self.key_averages()
        rows = [event._row() for event in totals]
        limit = row_limit if row_limit >= 0 else len(rows)
        text = _C._profiler_table(rows, _sort_key(sort_by), limit, self._label)
        stacks = ["\n".join([event.key, *("    " + frame for frame in event.stack)]) for event in totals if getattr(event, "stack", None)]
        if stacks:
            text += "\nwhere from\n" + "\n".join(stacks[:limit]) + "\n"
        return f"{header}\n{text}" if header else text

    def __str__(self):
        return self.table()

    def export_chrome_trace(self, path):
        """Writes a trace."""
        self._trace.export_chrome_trace(str(path))

    def supported_export_stacks_metrics(self):
        """The metrics of stacks."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Writes stacks, outermost first, with their times in microseconds: the input format of flame graphs."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        name = metric.replace("cuda", "device").replace("xpu", "device").replace("privateuse1", "device")
        with open(path, "w") as file:
            for event in self:
                if event.stack:
                    weight = int(getattr(event, name))
                    if weight > 0:
                        frames = [frame.replace(";", "_").replace(" ", "_") for frame in reversed(event.stack)]
                        file.write(f"{';'.join([*frames, event.name])} {weight}\n")
