"""The ranks that save or load together."""

from __future__ import annotations

import traceback

from .. import _group
from .._objects import all_gather_object, broadcast_object_list
from .api import CheckpointException


class Ranks:
    """A group, or this process alone."""

    def __init__(self, process_group, no_dist, coordinator=0):
        alone = no_dist or not _group.is_initialized()
        self.group = None if alone else _group._resolve(process_group)
        self.rank = 0 if alone else self.group.rank()
        self.size = 1 if alone else self.group.size()
        self.coordinator = coordinator

    def each(self, step, work):
        """Every rank's result of its work. If one fails, all raise an error that names it."""
        failure, result = None, None
        try:
            result = work()
        except Exception as error:
            failure = (error if self.size == 1 else None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
            if self.size == 1:
                raise CheckpointException(step, {self.rank: failure[1]}) from error
        if self.size == 1:
            return [result]
        told = [None] * self.size
        all_gather_object(told, (failure and failure[1], None if failure else result), group=self.group)
        failures = {rank: text for rank, (text, _) in enumerate(told) if text}
        if failures:
            raise CheckpointException(step, failures)
        return [result for _, result in told]

    def one(self, step, work):
        """The coordinator's result of its work, on every rank."""
        if self.size == 1:
            return self.each(step, work)[0]
        told = [None]
        if self.rank == self.coordinator:
            try:
                told = [(None, work())]
            except Exception as error:
                told = [(f"{type(error).__name__}: {error}\n{traceback.format_exc()}", None)]
        broadcast_object_list(told, group=self.group, group_src=self.coordinator)
        text, result = told[0]
        if text:
            raise CheckpointException(step, {self.coordinator: text})
        return result
