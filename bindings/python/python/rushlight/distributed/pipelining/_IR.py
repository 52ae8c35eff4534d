"""``pipeline``: splits a model into stages by its graph."""

from __future__ import annotations

import enum
import inspect
import time

from ... import _C, fx
from ...autograd import grad_mode
from ...nn import Module, ModuleList, Sequential
from .stage import PipelineStage

__all__ = ["Pipe", "SplitPoint", "pipe_split", "pipeline", "split_by_cost"]


class SplitPoint(enum.Enum):
    """Where a model is split: before or after a submodule."""

    BEGINNING = 1
    END = 2


#: The tracer of the model that ``pipeline`` is splitting.
_tracing = [None]


def _mark():
    """A step of a graph where a stage ends."""


def pipe_split():
    """Ends a stage here; has an effect only within ``pipeline``."""
    if _tracing[0] is not None:
        _tracing[0].create_proxy("call_function", _mark, (), {})


def split_by_cost(module, stages, mb_args=(), mb_kwargs=None, *, layers=None, repeat=3):
    """A ``split_spec`` for ``pipeline`` by the measured time of layers: the slowest stage is as fast as possible.

    ``layers`` names the submodules that a stage may begin with, in order; those of the longest ``ModuleList`` or ``Sequential`` by default. Their forward passes are
    timed on a microbatch, the fastest of ``repeat`` counts. Work before the first layer counts with it, work after the last with the last.
    """
    layers = _layers(module) if layers is None else list(layers)
    if len(layers) < stages or stages < 1:
        raise ValueError(f"split_by_cost: {len(layers)} layers do not split into {stages} stages")
    named, starts, handles = dict(module.named_modules()), [], []
    clock = lambda *_: starts.append(time.perf_counter())
    for name in layers:
        if name not in named:
            raise ValueError(f"split_by_cost: the model has no submodule '{name}'")
        handles.append(named[name].register_forward_pre_hook(clock))
    best = [float("inf")] * len(layers)
    try:
        with grad_mode.no_grad():
            for _ in range(max(repeat, 1)):
                starts.clear()
                began = time.perf_counter()
                module(*mb_args, **(mb_kwargs or {}))
                ended = time.perf_counter()
                if len(starts) != len(layers):
                    raise ValueError(f"split_by_cost: {len(layers)} layers were named, the model's forward called {len(starts)} of them")
                edges = [began, *starts[1:], ended]
                best = [min(a, end - start) for a, start, end in zip(best, edges, edges[1:])]
    finally:
        for handle in handles:
            handle.remove()
    return {layers[i]: SplitPoint.BEGINNING for i in _C._balance(best, stages)[1:]}


def _layers(module):
    lists = [(name, part) for name, part in module.named_modules() if isinstance(part, (ModuleList, Sequential))]
    if not lists:
        raise ValueError("split_by_cost: the model has no ModuleList or Sequential; name its layers")
    name, longest = max(lists, key=lambda pair: len(pair[1]))
    return [f"{name}.{i}" if name else str(i) for i in range(len(longest))]


class _Tracer(fx.Tracer):
    """Traces only what must be: modules that contain a split point."""

    def __init__(self, points):
        super().__init__()
        self._points = points

    def is_leaf_module(self, m, module_qualified_name):
        if not self._points:
            return super().is_leaf_module(m, module_qualified_name)
        return not any(point.startswith(module_qualified_name + ".") for point in self._points)


class _PipeInfo:
    """What a stage needs to know of the whole."""

    def __init__(self, num_stages, has_loss_and_backward=False):
        self.num_stages, self.has_loss_and_backward = num_stages, has_loss_and_backward


class Pipe(Module):
    """A model split into stages. Called, it runs all of them in order."""

    def __init__(self, stages):
        super().__init__()
        self.num_stages = len(stages)
        for i, stage in enumerate(stages):
            setattr(self, f"submod_{i}", stage)

    def forward(self, *args, **kwargs):
        values = self.submod_0(*args, **kwargs)
        for i in range(1, self.num_stages):
            values = getattr(self, f"submod_{i}")(*(values if isinstance(values, tuple) else (values,)))
        return values

    def get_stage_module(self, stage_idx):
        """The module of a stage. Its parameters have the names of the original model."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return getattr(self, f"submod_{stage_idx}")

    def info(self):
        """What ``build_stage`` needs."""
        return _PipeInfo(self.num_stages)

    def build_stage(self, stage_index, device, group=None):
        """The stage of a rank."""
        return PipelineStage(self.get_stage_module(stage_index), stage_index, self.num_stages, device, group=group)

    def print_readable(self):
        """Prints the code of every stage."""
        for i in range(self.num_stages):
            print(f"submod_{i}:\n{self.get_stage_module(i).code}")


def pipeline(module, mb_args, mb_kwargs=None, split_spec=None, split_policy=None):
    """Splits a model into stages, at the submodules named in ``split_spec`` or where its ``forward`` calls ``pipe_split``.

    The model is traced symbolically: ``forward`` of modules that contain a split point must not depend on values. ``mb_args`` and ``mb_kwargs`` are an
    example of a microbatch; arguments that it lacks keep their defaults.
    """
    if split_policy is not None:
        raise NotImplementedError("pipeline: split_policy is not supported; name the submodules to split at in split_spec, or call pipe_split() in forward")
    split_spec = dict(split_spec or {})
    names = dict(module.named_modules())
    for name, point in split_spec.items():
        if name not in names:
            raise ValueError(f"pipeline: split_spec names '{name}', which the model does not have")
        if not isinstance(point, SplitPoint):
            raise TypeError(f"pipeline: split_spec['{name}'] should be a SplitPoint, got {point!r}")
    parameters = inspect.signature(module.forward).parameters
    given = set(list(parameters)[: len(mb_args)]) | set(mb_kwargs or {})
    unknown = set(mb_kwargs or {}) - set(parameters)
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(f"pipeline: forward has no arguments {sorted(unknown)}")
    defaults = {n: p.default for n, p in parameters.items() if n not in given and p.default is not p.empty}
    tracer = _Tracer(set(split_spec))
    _tracing[0] = tracer
    try:
        graph = tracer.trace(module, concrete_args=defaults or None)
    except Exception as error:
        raise RuntimeError(
            f"pipeline: the model cannot be traced symbolically ({error}). Split it by hand: make a module for each stage and pass it to PipelineStage"
        ) from error
    finally:
        _tracing[0] = None
    stages = _split(module, graph, split_spec)
    return Pipe(stages)


def _number(graph, split_spec):
    """The stage of each node."""
    stage, numbers, calls = 0, {}, set()
    for node in graph.nodes:
        if node.op == "call_function" and node.target is _mark:
            stage += 1
            continue
        point = split_spec.get(node.target) if node.op == "call_module" else None
        if point is not None:
            calls.add(node.target)
        if point is SplitPoint.BEGINNING:
            stage += 1
        numbers[node] = 0 if node.op == "placeholder" else stage
        if point is SplitPoint.END:
            stage += 1
    missing = set(split_spec) - calls
    if missing:
        raise ValueError(f"pipeline: the model's forward does not call {sorted(missing)}, where split_spec splits it")
    return numbers, stage + 1


def _split(module, graph, split_spec):
    numbers, count = _number(graph, split_spec)
    # The last stage that uses a value; attributes are read where they are used.
    last = {}
    for node, stage in numbers.items():
        for used in node.all_input_nodes:
            last[used] = max(last.get(used, 0), stage)
    order = list(numbers)
    stages = []
    for stage in range(count):
        new, copies = fx.Graph(), {}

        def copied(node, new=new, copies=copies):
            if node not in copies:
                if node.op != "get_attr":
                    raise RuntimeError(f"pipeline: '{node.name}' is used before it is computed")
                copies[node] = new.node_copy(node)
            return copies[node]

        if stage:
            for node in order:
                if node.op != "get_attr" and numbers[node] < stage <= last.get(node, -1):
                    copies[node] = new.placeholder(node.name)
        for node in order:
            if node.op == "output" or numbers[node] != stage:
                continue
            copies[node] = new.node_copy(node, copied)
        if stage + 1 < count:
            live = [node for node in order if node.op != "get_attr" and numbers[node] <= stage < last.get(node, -1)]
            new.output(tuple(copied(node) for node in live))
        else:
            end = next(node for node in order if node.op == "output")
            new.output(fx.node.map_arg(end.args[0], copied))
        made = fx.GraphModule(module, new)
        made.train(module.training)
        stages.append(made)
    return stages
