"""Planners: how a state dict becomes entries of a checkpoint."""

from ... import _absent

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner", "LoadPlanner", "SavePlanner"]


class SavePlanner:
    """A base class; subclasses other than ``DefaultSavePlanner`` are not supported."""


class LoadPlanner:
    """A base class; subclasses other than ``DefaultLoadPlanner`` are not supported."""


class DefaultSavePlanner(SavePlanner):
    """Flattens nested dictionaries; replicated values are written by one rank, distributed evenly."""

    def __init__(
        self, flatten_state_dict=True, flatten_sharded_tensors=True, dedup_replicated_tensors=None, dedup_save_to_lowest_rank=False, enable_plan_caching=False
    ):
        if not flatten_sharded_tensors:
            raise NotImplementedError("DefaultSavePlanner: flatten_sharded_tensors=False is not supported: there are no ShardedTensors")
        if dedup_replicated_tensors is not None and not dedup_replicated_tensors:
            raise NotImplementedError("DefaultSavePlanner: dedup_replicated_tensors=False is not supported: replicated tensors are written once")
        self.flatten_state_dict, self.dedup_save_to_lowest_rank = flatten_state_dict, dedup_save_to_lowest_rank
        # Plans are cheap to make again.
        self.enable_plan_caching = enable_plan_caching


class DefaultLoadPlanner(LoadPlanner):
    """Flattens nested dictionaries. With ``allow_partial_load`` entries that the checkpoint lacks keep their values."""

    def __init__(self, flatten_state_dict=True, flatten_sharded_tensors=True, allow_partial_load=False):
        if not flatten_sharded_tensors:
            raise NotImplementedError("DefaultLoadPlanner: flatten_sharded_tensors=False is not supported: there are no ShardedTensors")
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load


_absent.fill(globals(), "torch.distributed.checkpoint.planner", "plans are made by the default planners", "LoadPlan SavePlan")
