"""Stages of a pipeline: a module, its place, and the messages to its neighbours."""

from __future__ import annotations

from ... import _C
from .. import _group

__all__ = ["PipelineStage", "build_stage"]


class PipeliningShapeError(RuntimeError):
    """Shapes of microbatches that differ from the first one's."""


def _tuple(output):
    """A module's output as a tuple of tensors."""
    if isinstance(output, list):
        output = tuple(output)
    output = output if isinstance(output, tuple) else (output,)
    for value in output:
        if not isinstance(value, _C.Tensor):
            raise TypeError(f"PipelineStage: a stage's outputs should be tensors, got {type(value).__name__}")
    return output


class _PipelineStageBase:
    """What the schedules use of a stage."""

    def __init__(self, submodule, stage_index, num_stages, device, group=None, dw_builder=None):
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage: dw_builder is not supported; zero-bubble schedules split the backward pass by the graph")
        self.submod, self.stage_index, self.num_stages, self.device = submodule, stage_index, num_stages, device
        self.group = group
        pg = _group._resolve(group)
        self.group_rank, self.group_size = pg.rank(), pg.size()
        if self.group_size > num_stages:
            raise RuntimeError(f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}")
        self.has_backward = True
        #: The rank of each stage; the schedule sets it.
        self.stage_index_to_group_rank = {i: i % self.group_size for i in range(num_stages)}
        #: Shapes, dtypes and flags of what the stage gets and gives, by whether gradients are computed.
        self._received, self._sent = {}, {}
        self.clear_runtime_states()

    @property
    def is_first(self):
        """Whether it is the model's first stage."""
        return self.stage_index == 0

    @property
    def is_last(self):
        """Whether it is the model's last stage."""
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self):
        """Forgets the microbatches of a step."""
        self._held, self._rest, self.output_chunks = {}, {}, []

    def scale_grads(self, grad_scale_factor):
        """Divides the gradients by the number of microbatches."""
        if grad_scale_factor != 1:
            for p in self.submod.parameters():
                if p.grad is not None:
                    p.grad.div_(grad_scale_factor)

    def _is_wrapped(self):
        return hasattr(self.submod, "require_backward_grad_sync")

    def _last(self, last):
        """DistributedDataParallel communicates in the last backward pass only."""
        if self._is_wrapped():
            self.submod.require_backward_grad_sync = last

    def _forward(self, microbatch, args, kwargs, last=True):
        """Runs the module on a microbatch; returns the outputs as a tuple."""
        self._last(last)
        output = self.submod(*args, **kwargs)
        if self.is_last:
            self.output_chunks.append(output)
        outputs = _tuple(output)
        self._held[microbatch] = (args, outputs)
        return outputs

    def _backward(self, microbatch, outputs, gradients, whole, last=True):
        """Runs the backward pass of a microbatch; returns the gradients of its inputs."""
        args, _ = self._held.pop(microbatch)
        inputs = [x for x in args if isinstance(x, _C.Tensor)] if not self.is_first else []
        pairs = [(y, g) for y, g in zip(outputs, gradients) if y.requires_grad]
        self._last(last)
        if not pairs:
            return [None] * len(inputs)
        outputs, gradients = [y for y, _ in pairs], [g for _, g in pairs]
        if whole or self._is_wrapped():
            from ... import autograd

            autograd.backward(outputs, gradients)
            found = [x.grad for x in inputs]
            if not whole:
                self._rest[microbatch] = None
        else:
            found, self._rest[microbatch] = _C._split_backward(outputs, gradients, inputs)
        return found

    def _backward_weights(self, microbatch):
        rest = self._rest.pop(microbatch)
        if rest is not None:
            rest.weights()


class PipelineStage(_PipelineStageBase):
    """A stage split by hand: a module whose inputs are the tensors that the stage before it returns.

    Shapes between stages are found in the first step; ``input_args`` and ``output_args`` are checked against them where they are given.
    """

    def __init__(self, submodule, stage_index, num_stages, device, input_args=None, output_args=None, group=None, dw_builder=None, get_mesh=None):
        if get_mesh is not None:
            raise NotImplementedError("PipelineStage: get_mesh is not supported; give stages plain tensors")
        super().__init__(submodule, stage_index, num_stages, device, group, dw_builder)
        self._expected_inputs = None if input_args is None else [tuple(x.shape) for x in _tuple(input_args)]
        self._expected_outputs = None if output_args is None else [tuple(x.shape) for x in _tuple(output_args)]
        # Parameters without values are given theirs later, by to_empty.
        if not any(p.is_meta for p in self.submod.parameters()):
            self.submod.to(device)

    def _forward(self, microbatch, args, kwargs, last=True):
        if self._expected_inputs is not None:
            self._check("input", self._expected_inputs, [x for x in args if isinstance(x, _C.Tensor)])
        outputs = super()._forward(microbatch, args, kwargs, last)
        if self._expected_outputs is not None:
            self._check("output", self._expected_outputs, outputs)
        return outputs

    def _check(self, what, expected, tensors):
        found = [tuple(x.shape) for x in tensors]
        if found != expected:
            raise PipeliningShapeError(f"stage {self.stage_index}: {what}s of shapes {found}, expected {expected}")


def build_stage(stage_module, stage_index, pipe_info, device, group=None):
    """A stage of a model that ``pipeline`` has split."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)
