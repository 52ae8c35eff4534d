"""Distributed tensors, FSDP2 and tensor parallelism over processes of this machine, against one process."""

import os
import pathlib

import pytest

from test_distributed import launch

RANKS = pathlib.Path(__file__).with_name("sharded_ranks.py")
#: ``scripts/nightly ranks`` has 8.
SIZES = [int(size) for size in os.environ.get("RUSHLIGHT_TEST_RANKS", "2 4").split()]


@pytest.mark.parametrize("what", ["fully_sharded", "details", "distributed_ops", "tensor_parallelism", "overlapped_products", "functional_collectives", "memory", "wrapped", "scaled"])
@pytest.mark.parametrize("size", SIZES)
def test_sharded(what, size):
    launch(size, RANKS, what)


@pytest.mark.parametrize("what", ["all_placements", "placements_of_results", "dropped", "normalised"])
def test_ops_of_distributed_tensors(what):
    # Dimensions shorter than the number of ranks are gathered.
    launch(2 if what == "placements_of_results" else SIZES[0], pathlib.Path(__file__).with_name("tensor_op_ranks.py"), what)


COMPOSED = pathlib.Path(__file__).with_name("composed_ranks.py")


@pytest.mark.parametrize("size", [4, 8])
def test_compositions(size):
    launch(size, COMPOSED, "compositions")


@pytest.mark.parametrize("what", ["sharding_options", "long_and_wide", "unflattened", "replicated", "split_by_tensors", "experts", "updated_in_backward"])
@pytest.mark.parametrize("size", SIZES[-1:])
def test_options(what, size):
    launch(size, COMPOSED, what)


def test_planned_memory_is_what_is_measured():
    """``rushlight plan``, without its margin, beside what the allocator counts: within a tenth for every strategy."""
    launch(2, pathlib.Path(__file__).with_name("planned_ranks.py"), "all")


def test_a_model_split_twice_is_checkpointed(tmp_path):
    launch(4, COMPOSED, "resharded", tmp_path)
