"""Datasets, samplers, collating, and the loader in one process."""

import collections

import numpy
import pytest

import rushlight as torch
from rushlight.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)


class Squares(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor([i, i * i]), i


class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


def seeded(seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


def test_datasets_of_datasets():
    squares = Squares(5)
    both = squares + Squares(3)
    assert isinstance(both, ConcatDataset) and len(both) == 8 and both[5][1] == 0 and both[-1][1] == 2
    with pytest.raises(ValueError):
        both[-9]
    with pytest.raises(IndexError):
        both[8]
    assert Subset(squares, [3, 1])[1][1] == 1
    assert [s[1] for s in Subset(squares, [3, 1]).__getitems__([0, 1])] == [3, 1]
    assert list(ChainDataset([Stream(2), Stream(1)])) == [0, 1, 0] and list(Stream(2) + Stream(2)) == [0, 1, 0, 1]
    pairs = TensorDataset(torch.arange(3), torch.arange(6).reshape(3, 2))
    assert len(pairs) == 3 and pairs[1][1].tolist() == [2, 3]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        TensorDataset(torch.zeros(2), torch.zeros(3))
    stacked = StackDataset(pairs, Squares(3))
    assert stacked[2][1][1] == 2 and stacked.__getitems__([0, 2])[1][1][1] == 2
    assert StackDataset(a=pairs, b=Squares(3))[1]["b"][1] == 1
    with pytest.raises(ValueError, match="Size mismatch between datasets"):
        StackDataset(pairs, squares)


def test_random_split():
    data = Squares(10)
    first, second = random_split(data, [7, 3], generator=seeded(1))
    assert len(first) == 7 and len(second) == 3 and sorted([*first.indices, *second.indices]) == list(range(10))
    assert random_split(data, [7, 3], generator=seeded(1))[0].indices == first.indices
    assert [len(s) for s in random_split(data, [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match="Sum of input lengths does not equal"):
        random_split(data, [7, 4])


def test_samplers():
    data = range(10)
    assert list(SequentialSampler(data)) == list(data)
    order = list(RandomSampler(data, generator=seeded(3)))
    assert sorted(order) == list(data) and order == list(RandomSampler(data, generator=seeded(3)))
    torch.manual_seed(5)
    first, second = list(RandomSampler(data)), list(RandomSampler(data))
    torch.manual_seed(5)
    assert list(RandomSampler(data)) == first != second
    drawn = list(RandomSampler(data, replacement=True, num_samples=100))
    assert len(drawn) == 100 and set(drawn) <= set(data)
    assert len(list(RandomSampler(data, num_samples=25))) == 25 and len(RandomSampler(data, num_samples=25)) == 25
    assert sorted(SubsetRandomSampler([4, 2, 9])) == [2, 4, 9]
    assert set(WeightedRandomSampler([0.0, 1.0, 1.0], 50)) == {1, 2}
    assert sorted(WeightedRandomSampler([1.0, 1.0, 1.0], 3, replacement=False)) == [0, 1, 2]
    assert list(BatchSampler(SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]] and len(BatchSampler(range(5), 2, True)) == 2
    with pytest.raises(ValueError, match="batch_size should be a positive integer value"):
        BatchSampler(range(5), 0, False)
    with pytest.raises(ValueError, match="num_samples should be a positive integer value"):
        RandomSampler([])
    with pytest.raises(TypeError, match="replacement should be a boolean value"):
        RandomSampler(data, replacement=1)


def test_shares_of_processes():
    shares = [list(DistributedSampler(range(10), 4, rank, shuffle=False)) for rank in range(4)]
    assert shares == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert [len(DistributedSampler(range(10), 4, r, drop_last=True)) for r in range(4)] == [2] * 4
    samplers = [DistributedSampler(range(8), 2, rank, seed=1) for rank in range(2)]
    assert sorted(list(samplers[0]) + list(samplers[1])) == list(range(8))
    before = list(samplers[0])
    samplers[0].set_epoch(1)
    assert list(samplers[0]) != before
    with pytest.raises(ValueError, match="Invalid rank 2"):
        DistributedSampler(range(8), 2, 2)


Point = collections.namedtuple("Point", "x y")


def test_collating():
    numbers = default_collate([1, 2])
    assert numbers.dtype == torch.int64 and numbers.tolist() == [1, 2]
    assert default_collate([1.0, 2.0]).dtype == torch.float64
    assert default_collate([True, False]).dtype == torch.bool
    assert default_collate(["a", "b"]) == ["a", "b"]
    batch = default_collate([(torch.zeros(2), 1), (torch.ones(2), 2)])
    assert isinstance(batch, list) and batch[0].shape == (2, 2) and batch[1].tolist() == [1, 2]
    batch = default_collate([{"a": 1, "b": [1.0, "x"]}, {"a": 2, "b": [2.0, "y"]}])
    assert batch["a"].tolist() == [1, 2] and batch["b"][0].tolist() == [1.0, 2.0] and batch["b"][1] == ("x", "y")
    assert default_collate([Point(1, 2.0), Point(3, 4.0)]).x.tolist() == [1, 3]
    assert default_collate([numpy.ones(2, "f4"), numpy.zeros(2, "f4")]).dtype == torch.float32
    assert default_collate([numpy.float32(1), numpy.float32(2)]).dtype == torch.float32
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        default_collate([[1, 2], [1]])
    with pytest.raises(TypeError, match="default_collate: batch must contain tensors"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="stack"):
        default_collate([torch.zeros(2), torch.zeros(3)])
    converted = default_convert({"a": numpy.ones(2), "b": ("x", 3)})
    assert isinstance(converted["a"], torch.Tensor) and converted["b"] == ["x", 3]


def test_loading():
    loader = DataLoader(Squares(7), batch_size=3)
    batches = list(loader)
    assert len(loader) == 3 and [b[1].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches[1][0].tolist() == [[3, 9], [4, 16], [5, 25]] and isinstance(batches[0], list)
    assert len(list(DataLoader(Squares(7), batch_size=3, drop_last=True))) == 2
    shuffled = [b[1].tolist() for b in DataLoader(Squares(7), batch_size=7, shuffle=True, generator=seeded(2))]
    assert sorted(shuffled[0]) == list(range(7)) and shuffled[0] != list(range(7))
    assert shuffled == [b[1].tolist() for b in DataLoader(Squares(7), batch_size=7, shuffle=True, generator=seeded(2))]
    assert [x[1] for x in DataLoader(Squares(3), batch_size=None)] == [0, 1, 2]
    assert [b[1].tolist() for b in DataLoader(Squares(5), batch_sampler=[[4, 0], [1]])] == [[4, 0], [1]]
    assert [b[1].tolist() for b in DataLoader(Squares(5), batch_size=2, sampler=[4, 3, 2])] == [[4, 3], [2]]
    assert list(DataLoader(Squares(4), batch_size=2, collate_fn=len)) == [2, 2]
    assert [b.tolist() for b in DataLoader([1, 2, 3], batch_size=2)] == [[1, 2], [3]]
    assert get_worker_info() is None


def test_whole_batches_of_tensors_equal_collated_samples():
    data = TensorDataset(torch.randn(10, 3), torch.arange(10))
    part = Subset(data, [9, 2, 5])
    for dataset in (data, part):
        quick = list(DataLoader(dataset, batch_size=4))
        slow = list(DataLoader(dataset, batch_size=4, collate_fn=lambda b: default_collate(b)))
        for a, b in zip(quick, slow):
            assert type(a) is type(b) is list and all(torch.equal(x, y) and x.dtype == y.dtype for x, y in zip(a, b))
    # Batches are copies: changing one leaves the dataset alone.
    next(iter(DataLoader(data, batch_size=4)))[0].zero_()
    assert data.tensors[0].abs().sum() > 0


def test_streams():
    assert [b.tolist() for b in DataLoader(Stream(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(Stream(5), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]
    with pytest.raises(ValueError, match="expected unspecified shuffle option"):
        DataLoader(Stream(3), shuffle=True)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"sampler": [0], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "batch_size=None option disables auto-batching"),
        ({"batch_size": 0}, "batch_size should be a positive integer value, but got batch_size=0"),
        ({"multiprocessing_context": "fork"}, "multiprocessing_context can only be used with multi-process loading"),
        ({"num_workers": 1, "multiprocessing_context": "x"}, "should specify a valid start method"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        DataLoader(Squares(3), **options)


def test_options_stay():
    loader = DataLoader(Squares(3))
    with pytest.raises(ValueError, match="batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 4
    loader.collate_fn = len
    assert list(loader) == [1, 1, 1]


def test_pipes():
    from rushlight.utils.data import DataChunk, IterDataPipe, functional_datapipe, guaranteed_datapipes_determinism, non_deterministic

    class Source(IterDataPipe):
        def __iter__(self):
            return iter(range(4))

    @functional_datapipe("doubled_for_test")
    class Doubled(IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            return (2 * x for x in self.source)

    assert list(Source().doubled_for_test()) == [0, 2, 4, 6] and list(DataChunk([1, 2])) == [1, 2]
    assert [b.tolist() for b in DataLoader(Source().doubled_for_test(), batch_size=3)] == [[0, 2, 4], [6]]
    random_source = non_deterministic(Source)
    with guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-deterministic"):
        random_source()


@pytest.mark.parametrize("sizes", [[4, 3], [2, 5, 1], [1, 7]])
def test_a_job_of_another_size_reads_what_is_left_of_an_epoch(sizes):
    from rushlight.utils.data.distributed import DistributedSampler

    data, seen, state = list(range(50)), [], None
    for last, size in [(size is sizes[-1], size) for size in sizes]:
        states = []
        for rank in range(size):
            sampler = DistributedSampler(data, size, rank, seed=3)
            sampler.set_epoch(2)
            if state:
                sampler.load_state_dict(state)
            share = list(sampler)
            used = share if last else share[:4]
            seen += used
            states.append(sampler.state_dict(len(used)))
        assert all(s == states[0] for s in states)
        state = states[0]
    assert set(seen) == set(data)
    assert len(seen) - len(data) < max(sizes)


def test_more_workers_than_processors_are_warned_of():
    with pytest.warns(UserWarning, match="excessive worker creation"):
        DataLoader(range(4), num_workers=10_000)


def test_iterable_datasets_that_give_more_than_they_say_are_warned_of():
    class Long(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(4))

        def __len__(self):
            return 2

    loader = DataLoader(Long(), batch_size=None)
    assert len(list(loader)) == 4  # No word before anyone has asked.
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="reported to be 2 .* but 3 samples have been fetched"):
        list(loader)


def test_subsets_of_ones_own_have_both_ways_to_samples():
    class Half(torch.utils.data.Subset):
        def __getitem__(self, index):
            return 2 * super().__getitem__(index)

    with pytest.raises(NotImplementedError, match="Half overrides __getitem__ but not __getitems__"):
        Half([1, 2], [0])


def test_exceptions_of_others_are_raised_here():
    from rushlight._utils import ExceptionWrapper

    try:
        {}["absent"]
    except KeyError:
        caught = ExceptionWrapper(where="in a thread")
    with pytest.raises(KeyError, match="Caught KeyError in a thread"):
        caught.reraise()
