"""``ZeroRedundancyOptimizer``: ZeRO-1. Each rank updates some of the parameters, keeps the states of those only, and sends the others the results."""

from .. import _collectives as dist
from .. import _group, _objects
from ...optim import Optimizer
from ...optim.optimizer import _call

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of ``optimizer_class`` whose states are divided among the ranks; beside ``DistributedDataParallel``."""

    def __init__(self, params, optimizer_class, process_group=None, parameters_as_bucket_view=False, overlap_with_ddp=False, **defaults):
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported; use fully_shard, whose communication overlaps")
        self._ready = False
        super().__init__(params, defaults)
        self.process_group = process_group
        self._class, self._defaults = optimizer_class, defaults
        self._rank, self._size = _group.get_rank(process_group), _group.get_world_size(process_group)
        self._owners = {}
        loads = [0] * self._size
        everything = [p for group in self.param_groups for p in group["params"]]
        # The largest first, each to the rank with the least.
        for p in sorted(everything, key=lambda p: -p.numel()):
            rank = loads.index(min(loads))
            self._owners[id(p)] = rank
            loads[rank] += p.numel()
        own = [{**group, "params": [p for p in group["params"] if self._owners[id(p)] == self._rank]} for group in self.param_groups]
        self._filled = [i for i, group in enumerate(own) if group["params"]]
        self.optim = optimizer_class([own[i] for i in self._filled], **defaults) if self._filled else None
        if self.optim is not None:
            self.defaults = self.optim.defaults
            for i, group in zip(self._filled, self.optim.param_groups):
                for key, value in group.items():
                    self.param_groups[i].setdefault(key, value)
            self.state = self.optim.state
        self._all_states = None
        self._ready = True

    def add_param_group(self, param_group):
        """Adds parameters before the first step is made."""
        if self._ready:
            raise NotImplementedError("ZeroRedundancyOptimizer: parameters cannot be added later; make it with all of them")
        super().add_param_group(param_group)

    def step(self, closure=None, **kwargs):
        """Updates this rank's parameters, then exchanges them."""
        loss = None if closure is None else _call(closure)
        if self.optim is not None:
            for i, group in zip(self._filled, self.optim.param_groups):
                group.update({k: v for k, v in self.param_groups[i].items() if k != "params"})
            self.optim.step(**kwargs)
        works = []
        for group in self.param_groups:
            for p in group["params"]:
                works.append(dist.broadcast(p.detach(), group=self.process_group, group_src=self._owners[id(p)], async_op=True))
        for work in works:
            work.wait()
        return loss

    def consolidate_state_dict(self, to=0):
        """Collects all ranks' states on rank ``to``, for ``state_dict``. Every rank must call it."""
        number = {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        own = {} if self.optim is None else {number[id(p)]: values for p, values in self.optim.state.items()}
        everyone = [None] * self._size
        _objects.all_gather_object(everyone, {n: {k: v.cpu() if hasattr(v, "cpu") else v for k, v in s.items()} for n, s in own.items()}, group=self.process_group)
        self._all_states = {n: s for part in everyone for n, s in part.items()} if self._rank == to else None

    def state_dict(self):
        """All states, on the rank that ``consolidate_state_dict`` named."""
        if self._all_states is None:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to={self._rank})` on all ranks beforehand if you "
                "meant to save the global state."
            )
        groups = super().state_dict()["param_groups"]
        return {"state": dict(sorted(self._all_states.items())), "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Loads the states of this rank's parameters from all of them."""
        everything = [p for group in self.param_groups for p in group["params"]]
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group.update({k: v for k, v in saved.items() if k != "params"})
        if self.optim is None:
            return
        number = {id(p): i for i, p in enumerate(everything)}
        mine = [p for group in self.optim.param_groups for p in group["params"]]
        state = {i: state_dict["state"][number[id(p)]] for i, p in enumerate(mine) if number[id(p)] in state_dict["state"]}
        groups = self.optim.state_dict()["param_groups"]
        for i, group in zip(self._filled, groups):
            group.update({k: v for k, v in self.param_groups[i].items() if k != "params"})
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        self.state = self.optim.state
