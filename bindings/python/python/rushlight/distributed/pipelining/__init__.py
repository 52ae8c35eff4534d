"""``torch.distributed.pipelining``: a model's stages on different ranks, a batch in microbatches.

The core generates, verifies and simulates the schedules (``rushlight_dist::pipeline``); these classes run them over modules.
"""

from ._IR import Pipe, SplitPoint, pipe_split, pipeline, split_by_cost
from .schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    _ScheduleForwardOnly,
)
from .stage import PipelineStage, build_stage

__all__ = [
    "Pipe",
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "SplitPoint",
    "build_stage",
    "pipe_split",
    "pipeline",
    "split_by_cost",
]
