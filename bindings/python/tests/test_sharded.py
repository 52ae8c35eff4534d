"""Distributed tensors, FSDP2 and tensor parallelism over processes of this machine, against one process."""

import pathlib

import pytest

from test_distributed import launch

RANKS = pathlib.Path(__file__).with_name("sharded_ranks.py")


@pytest.mark.parametrize("what", ["fully_sharded", "details", "distributed_ops", "tensor_parallelism", "memory", "wrapped"])
@pytest.mark.parametrize("size", [2, 4])
def test_sharded(what, size):
    launch(size, RANKS, what)
