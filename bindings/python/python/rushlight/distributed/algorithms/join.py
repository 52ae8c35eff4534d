"""Ranks that run out of inputs before others."""

from __future__ import annotations

import contextlib

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """Actions of a rank without inputs for each iteration of the others, and at the end."""

    def main_hook(self):
        """Shadows one iteration of the other ranks."""

    def post_hook(self, is_last_joiner):
        """Runs once, when no rank has inputs left."""


class Joinable:
    """Classes that support ``Join``: ``DistributedDataParallel``."""

    @property
    def join_process_group(self):
        raise NotImplementedError("a Joinable must define join_process_group")


class Join(contextlib.ExitStack):
    """Training with inputs that are uneven over the ranks: ``with Join([model]): …``."""

    def __init__(self, joinables, enable=True, throw_on_early_termination=False, **kwargs):
        super().__init__()
        joinables = list(joinables)
        if len(joinables) != 1 or not hasattr(joinables[0], "join"):
            raise NotImplementedError("Join: one DistributedDataParallel can join at a time")
        self._arguments = (joinables[0], enable, throw_on_early_termination, kwargs)

    def __enter__(self):
        model, enable, throw, kwargs = self._arguments
        self.enter_context(model.join(enable=enable, throw_on_early_termination=throw, **kwargs))
        return super().__enter__()
