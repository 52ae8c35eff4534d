"""Schedules of pipelines. The core makes the lists of actions; these classes run them."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from ... import _C, _absent
from ...autograd import grad_mode
from .. import _group, _p2p
from .microbatch import merge_chunks, split_args_kwargs_into_chunks
from .stage import PipeliningShapeError

__all__ = [
    "PipelineScheduleMulti",
    "PipelineScheduleSingle",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "get_schedule_class",
]


class _Action(NamedTuple):
    """A pass of a microbatch through a stage: ``F``, ``B``, ``I`` or ``W``."""

    stage_index: int
    computation_type: str
    microbatch_index: int

    def __str__(self):
        return f"{self.stage_index}{self.computation_type}{self.microbatch_index}"

    __repr__ = __str__


class _PipelineSchedule:
    #: The core's name of the schedule, and the number of stages a rank that it takes; any if None.
    _name, _stages_per_rank = None, None

    def __init__(self, stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads):
        if n_microbatches <= 0:
            raise ValueError(f"Number of microbatches must be positive, got {n_microbatches}")
        self._stages, self._n_microbatches, self._loss_fn = list(stages), n_microbatches, loss_fn
        self._args_chunk_spec, self._kwargs_chunk_spec, self._output_merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self.scale_grads = scale_grads
        self._has_backward = loss_fn is not None
        first = self._stages[0]
        if any((s.group_rank, s.group_size, s.num_stages) != (first.group_rank, first.group_size, first.num_stages) for s in self._stages):
            raise ValueError("pipeline schedule: the stages of a rank should be of one model and one group")
        self.rank, self.pp_group_size, self._num_stages = first.group_rank, first.group_size, first.num_stages
        self._group = _group._resolve(first.group)
        self._set(self._make())

    def _make(self):
        per_rank, rest = divmod(self._num_stages, self.pp_group_size)
        name = type(self).__name__
        if rest:
            raise ValueError(f"{name}: {self._num_stages} stages do not divide among {self.pp_group_size} ranks")
        if self._stages_per_rank is not None and per_rank != self._stages_per_rank:
            raise ValueError(f"{name} requires exactly {self._stages_per_rank} stages per rank, but got {per_rank}")
        return _C._PipelineSchedule.by_name(self._name, self.pp_group_size, per_rank, self._n_microbatches)

    def _set(self, made):
        self._made = made
        placement = made.placement
        own = [stage for stage, rank in enumerate(placement) if rank == self.rank]
        if sorted(s.stage_index for s in self._stages) != own:
            given = sorted(s.stage_index for s in self._stages)
            raise ValueError(f"{type(self).__name__}: rank {self.rank} should have the stages {own}, got {given}")
        self._placement = placement
        self._by_index = {s.stage_index: s for s in self._stages}
        for stage in self._stages:
            stage.stage_index_to_group_rank = dict(enumerate(placement))

    @property
    def pipeline_order(self):
        """The actions of each rank."""
        return {rank: [_Action(*a) for a in self._made.actions(rank)] for rank in range(self.pp_group_size)}

    def bubble(self):
        """The idle share of the ranks' time where forward, gradients of inputs and of weights take equal time."""
        return self._made.simulate()[0]

    def chart(self):
        """The simulated schedule as text: a row for each rank, dots for bubbles."""
        return self._made.chart()

    def __repr__(self):
        return f"{type(self).__name__}({self._num_stages} stages, {self._n_microbatches} microbatches)\n{self.chart()}"

    # A step.

    def step(self, *args, target=None, losses=None, return_outputs=True, loss_kwargs=None, arg_mbs=None, kwarg_mbs=None, target_mbs=None, **kwargs):
        """Runs one training step over a batch. The rank of the first stage passes the inputs, that of the last the target; it gets the outputs, and
        ``losses`` is filled with a loss for each microbatch. Other ranks call it without arguments."""
        if self._has_backward and not _C.is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() context. "
                "Please call eval() instead."
            )
        return self._step(args, kwargs, target, losses, return_outputs, loss_kwargs, arg_mbs, kwarg_mbs, target_mbs, self._has_backward)

    def eval(self, *args, target=None, losses=None, return_outputs=True, loss_kwargs=None, arg_mbs=None, kwarg_mbs=None, target_mbs=None, **kwargs):
        """Runs the forward passes of a batch only."""
        with grad_mode.no_grad():
            return self._step(args, kwargs, target, losses, return_outputs, loss_kwargs, arg_mbs, kwarg_mbs, target_mbs, False)

    def _step(self, args, kwargs, target, losses, return_outputs, loss_kwargs, arg_mbs, kwarg_mbs, target_mbs, backward):
        n = self._n_microbatches
        if arg_mbs is not None or kwarg_mbs is not None:
            if args or kwargs:
                raise ValueError("pipeline schedule: pass a whole batch or microbatches, not both")
            arg_mbs, kwarg_mbs = arg_mbs or [()] * n, kwarg_mbs or [{}] * n
        elif args or kwargs:
            arg_mbs, kwarg_mbs = split_args_kwargs_into_chunks(args, kwargs, n, self._args_chunk_spec, self._kwargs_chunk_spec)
        else:
            arg_mbs, kwarg_mbs = [()] * n, [{}] * n
        if target is not None:
            if target_mbs is not None:
                raise ValueError("pipeline schedule: pass target or target_mbs, not both")
            target_mbs = list(target.tensor_split(n)) if isinstance(target, _C.Tensor) else target
        for what, found in (("arg_mbs", arg_mbs), ("kwarg_mbs", kwarg_mbs), ("target_mbs", target_mbs)):
            if found is not None and len(found) != n:
                raise ValueError(f"Expecting {n} {what} but got {len(found)}")
        has_last = self._num_stages - 1 in self._by_index
        if has_last and self._loss_fn is not None and target_mbs is None and backward:
            raise RuntimeError("pipeline schedule: the rank of the last stage needs the target to compute the loss")
        for stage in self._stages:
            stage.clear_runtime_states()
            stage.has_backward = backward
        run = _Run(self, arg_mbs, kwarg_mbs, target_mbs, loss_kwargs or {}, backward)
        run.all()
        if backward and self.scale_grads:
            for stage in self._stages:
                stage.scale_grads(n)
        if losses is not None:
            losses.clear()
            losses.extend(run.losses)
        outputs = self._by_index[self._num_stages - 1].output_chunks if has_last else None
        result = merge_chunks(outputs, self._output_merge_spec) if has_last and return_outputs else None
        for stage in self._stages:
            stage.clear_runtime_states()
        return result


class _Run:
    """One step: the microbatches under way and their messages."""

    def __init__(self, schedule, arg_mbs, kwarg_mbs, target_mbs, loss_kwargs, backward):
        self.schedule, self.args, self.kwargs, self.targets = schedule, arg_mbs, kwarg_mbs, target_mbs
        self.loss_kwargs, self.backward = loss_kwargs, backward
        self.losses, self.roots, self.local, self.arrived, self.sends = [], {}, {}, {}, []
        made = schedule._made
        messages = {peer: made.messages(peer, schedule.rank) for peer in range(schedule.pp_group_size) if peer != schedule.rank}
        if not backward:
            messages = {peer: [m for m in all if m[0] < m[1]] for peer, all in messages.items()}
        self.expected = {peer: list(reversed(all)) for peer, all in messages.items()}

    def all(self):
        actions = self.schedule._made.actions(self.schedule.rank)
        lasts = {}
        for i, (stage, phase, _) in enumerate(actions):
            lasts[stage, phase] = i
        for i, (stage, phase, microbatch) in enumerate(actions):
            last = lasts[stage, phase] == i
            if phase == "F":
                self.forward(self.schedule._by_index[stage], microbatch, last)
            elif self.backward and phase in "BI":
                self.grads(self.schedule._by_index[stage], microbatch, phase == "B", last)
            elif self.backward:
                self.schedule._by_index[stage]._backward_weights(microbatch)
        for work in self.sends:
            work.wait()

    def forward(self, stage, microbatch, last):
        index = stage.stage_index
        args = self.args[microbatch] if stage.is_first else self.take(index - 1, index, microbatch)
        outputs = stage._forward(microbatch, tuple(args), self.kwargs[microbatch], last)
        if stage.is_last:
            if self.schedule._loss_fn is not None and self.targets is not None:
                output = stage.output_chunks[-1]
                loss = self.schedule._loss_fn(output, self.targets[microbatch], **self.loss_kwargs)
                self.losses.append(loss.detach() if not self.backward else loss)
                self.roots[microbatch] = loss
            if self.backward:
                stage.output_chunks[-1] = _detached(stage.output_chunks[-1])
        else:
            self.give(index, index + 1, microbatch, outputs)
        if not self.backward:
            stage._held.pop(microbatch, None)

    def grads(self, stage, microbatch, whole, last):
        index = stage.stage_index
        if stage.is_last:
            outputs, gradients = (self.roots.pop(microbatch),), [None]
        else:
            outputs = stage._held[microbatch][1]
            gradients = self.take(index + 1, index, microbatch)
        args = stage._held[microbatch][0]
        found = stage._backward(microbatch, outputs, gradients, whole, last)
        if not stage.is_first:
            inputs = [x for x in args if isinstance(x, _C.Tensor)]
            found = [(_C._torch.zeros_like(x) if g is None else g) if x.requires_grad else None for x, g in zip(inputs, found)]
            self.give(index, index - 1, microbatch, found)

    def give(self, source, to, microbatch, tensors):
        """Hands tensors to another stage: at once on this rank, else by messages. The first activations are preceded by their shapes."""
        peer = self.schedule._placement[to]
        if peer == self.schedule.rank:
            if source < to:
                tensors = [x.detach().requires_grad_(x.requires_grad and self.backward) for x in tensors]
            self.local[source, to, microbatch] = tensors
            return
        stage, pg = self.schedule._by_index[source], self.schedule._group
        tag = 2 * source + (source > to)
        if source < to:
            described = [(tuple(x.shape), x.dtype, x.requires_grad and self.backward) for x in tensors]
            known = stage._sent.get(self.backward)
            if known is None:
                stage._sent[self.backward] = described
                from .._objects import send_object_list

                named = [(shape, str(dtype), flag) for shape, dtype, flag in described]
                send_object_list([named], group=pg, group_dst=peer)
            elif known != described:
                raise PipeliningShapeError(f"stage {source}: microbatch {microbatch} gives {described}, the first one gave {known}; shapes must not change")
        # Through the host: device libraries match messages by their order alone.
        for tensor in tensors:
            if tensor is not None:
                self.sends.append(_p2p.isend(tensor.detach().cpu().contiguous(), group=pg, group_dst=peer, tag=tag))

    def take(self, source, to, microbatch):
        """Tensors from another stage. Messages from a rank are received in the order in which it sends them."""
        key = (source, to, microbatch)
        if key in self.local:
            return self.local.pop(key)
        peer = self.schedule._placement[source]
        while key not in self.arrived:
            self.receive(self.expected[peer].pop(), peer)
        return self.arrived.pop(key)

    def receive(self, message, peer):
        source, to, microbatch = message
        stage, pg = self.schedule._by_index[to], self.schedule._group
        tag = 2 * source + (source > to)
        if source < to:
            described = stage._received.get(self.backward)
            if described is None:
                from .._objects import recv_object_list

                named = [None]
                recv_object_list(named, group=pg, group_src=peer)
                described = [(shape, getattr(_C, dtype.rpartition(".")[2]), flag) for shape, dtype, flag in named[0]]
                stage._received[self.backward] = described
        else:
            described = [(tuple(y.shape), y.dtype, y.requires_grad) for y in stage._held[microbatch][1]]
        tensors = []
        for shape, dtype, flag in described:
            if source > to and not flag:
                tensors.append(None)
                continue
            tensor = _C._torch.empty(shape, dtype=dtype, device="cpu")
            _p2p.recv(tensor, group=pg, group_src=peer, tag=tag)
            tensor = tensor.to(stage.device)
            tensors.append(tensor.requires_grad_(flag) if source < to else tensor)
        self.arrived[message] = tensors


def _detached(output):
    if isinstance(output, _C.Tensor):
        return output.detach()
    return type(output)(_detached(x) for x in output) if isinstance(output, (tuple, list)) else output


class PipelineScheduleSingle(_PipelineSchedule):
    """A schedule of one stage a rank."""

    _stages_per_rank = 1

    def __init__(self, stage, n_microbatches, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None, scale_grads=True):
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._stage = stage


class PipelineScheduleMulti(_PipelineSchedule):
    """A schedule of several stages a rank."""

    def __init__(
        self, stages, n_microbatches, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None, use_full_backward=None,
        scale_grads=True, backward_requires_autograd=True,
    ):
        if use_full_backward is not None:
            warnings.warn("Deprecation warning: 'use_full_backward' is no longer supported. Simply stop passing it, and everything should still work fine.", stacklevel=2)
        if not backward_requires_autograd:
            raise NotImplementedError(f"{type(self).__name__}: backward_requires_autograd=False is not supported")
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)


class ScheduleGPipe(PipelineScheduleSingle):
    """All forward passes, then all backward passes."""

    _name = "GPipe"


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """Forward passes only."""

    _name = "GPipe"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self._loss_fn is not None:
            raise RuntimeError("Forward-only schedule does not support loss computation")


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward pass in turn: activations are held for as few microbatches as possible."""

    _name = "1F1B"


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B with several stages a rank: a smaller bubble, more messages."""

    _name = "Interleaved1F1B"


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """GPipe with several stages a rank."""

    _name = "LoopedBFS"


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """Interleaved 1F1B; the gradients of weights are computed in the bubbles."""

    _name = "InterleavedZeroBubble"


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Two stages a rank in the shape of a V: almost no bubble."""

    _name, _stages_per_rank = "ZBVZeroBubble", 2


class ScheduleDualPipeV(PipelineScheduleMulti):
    """Two stages a rank in the shape of a V: a forward pass through one is paired with a backward pass through the other. Needs as many microbatches as stages."""

    _name, _stages_per_rank = "DualPipeV", 2


def get_schedule_class(schedule_name):
    """The class of a schedule by its name, with or without ``Schedule``, in any case of letters."""
    classes = {
        "1F1B": Schedule1F1B,
        "Interleaved1F1B": ScheduleInterleaved1F1B,
        "GPipe": ScheduleGPipe,
        "LoopedBFS": ScheduleLoopedBFS,
        "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
        "PipelineScheduleSingle": PipelineScheduleSingle,
        "PipelineScheduleMulti": PipelineScheduleMulti,
        "ZBVZeroBubble": ScheduleZBVZeroBubble,
        "DualPipeV": ScheduleDualPipeV,
    }
    lower = {name.lower(): one for name, one in classes.items()}
    plain = schedule_name.lower().removeprefix("schedule")
    if plain not in lower:
        raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(classes)}")
    return lower[plain]


# PyTorch's runtime: functions of one's own for actions, and lists of actions from files.
_absent.fill(globals(), "torch.distributed.pipelining.schedules", "schedules come from the compiled part; choose one by get_schedule_class", """
OVERLAP_F_B _PipelineContext _PipelineScheduleRuntime _wait_batch_p2p
""")
