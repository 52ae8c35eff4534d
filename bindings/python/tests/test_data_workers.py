"""The loader's worker processes."""

import glob
import os
import random
import signal
import subprocess
import sys
import time

import numpy
import pytest

import rushlight as torch
from rushlight.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info


class Numbers(Dataset):
    """Number ``i``, which worker made it, and something large enough for shared memory."""

    def __init__(self, count, size=10_000):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return {"i": i, "worker": get_worker_info().id, "large": torch.full((self.size,), float(i)), "text": f"no {i}"}


class Act(Dataset):
    """Calls a function for each sample."""

    def __init__(self, function, count=8):
        self.function, self.count = function, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.function(i)


def leftovers():
    return glob.glob(f"/dev/shm/rushlight_{os.getpid()}_*")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_come_in_order_through_shared_memory(method):
    loader = DataLoader(Numbers(20), batch_size=4, num_workers=2, multiprocessing_context=method)
    assert len(loader) == 5
    batches = list(loader)
    assert [b["i"].tolist() for b in batches] == [list(range(k, k + 4)) for k in range(0, 20, 4)]
    assert [set(b["worker"].tolist()) for b in batches] == [{0}, {1}, {0}, {1}, {0}]
    for batch in batches:
        assert batch["large"].shape == (4, 10_000) and batch["large"][:, 7].tolist() == batch["i"].tolist()
    assert batches[0]["text"] == ["no 0", "no 1", "no 2", "no 3"]
    assert not leftovers()
    # The memory outlives the loader, and may be written to.
    del loader
    batches[0]["large"].add_(1)
    assert batches[0]["large"][3, 0].item() == 4


def test_several_epochs_early_ends_and_persistence():
    loader = DataLoader(Numbers(12), batch_size=2, num_workers=2, shuffle=True)
    first = [i for b in loader for i in b["i"].tolist()]
    second = [i for b in loader for i in b["i"].tolist()]
    assert sorted(first) == sorted(second) == list(range(12)) and first != second
    for batch in loader:
        break
    loader = DataLoader(Numbers(12), batch_size=2, num_workers=2, persistent_workers=True, prefetch_factor=1)
    pids = set()
    for epoch in range(3):
        seen = []
        for batch in loader:
            seen += batch["i"].tolist()
            pids |= {p.pid for p in loader._iterator._workers}
            if epoch == 1:
                break
        assert seen == list(range(12 if epoch != 1 else 2))
    assert len(pids) == 2
    del loader, batch
    assert not leftovers()


def seeds(_):
    return torch.initial_seed(), get_worker_info().seed, random.random(), float(numpy.random.rand()), torch.rand(()).item()


def test_seeds():
    def run():
        torch.manual_seed(9)
        return list(DataLoader(Act(seeds, 2), batch_size=None, num_workers=2))

    (a, b), again = run(), run()
    assert a[0] == a[1] and b[0] == a[0] + 1 and a[2] != b[2] and a[3] != b[3] and a[4] != b[4]
    assert again == [a, b]


def test_worker_init_fn_and_info():
    started = []

    def init(worker):
        info = get_worker_info()
        assert info.id == worker and info.num_workers == 2
        info.dataset.function = lambda i: (worker, os.getpid())
        with pytest.raises(RuntimeError, match="Cannot assign attributes to WorkerInfo"):
            info.id = 3
        started.append(worker)

    samples = list(DataLoader(Act(None, 4), batch_size=None, num_workers=2, worker_init_fn=init))
    assert [s[0] for s in samples] == [0, 1, 0, 1] and os.getpid() not in {s[1] for s in samples} and not started
    assert get_worker_info() is None


class Shared(IterableDataset):
    """Each worker yields its own part."""

    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id * 10, info.id * 10 + 3 + info.id))


def test_streams_of_workers():
    loader = DataLoader(Shared(), batch_size=2, num_workers=2)
    assert [b.tolist() for b in loader] == [[0, 1], [10, 11], [2], [12, 13]]
    loader = DataLoader(Shared(), batch_size=None, num_workers=3, persistent_workers=True)
    for _ in range(2):
        assert sorted(loader) == [0, 1, 2, 10, 11, 12, 13, 20, 21, 22, 23, 24]


class Strange(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def fail(kind):
    def act(i):
        if i == 3:
            raise kind("sample three") if kind is not Strange else Strange(1, 2)
        return i

    return act


@pytest.mark.parametrize("kind, raised", [(ValueError, ValueError), (KeyError, KeyError), (Strange, RuntimeError)])
def test_errors_of_workers(kind, raised):
    loader = DataLoader(Act(fail(kind)), batch_size=2, num_workers=2)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(raised) as error:
        next(batches)
    text = str(error.value)
    assert text.startswith(f"Caught {kind.__name__} in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n")
    assert "in act" in text and "\n" in text
    # The worker goes on.
    assert next(batches).tolist() == [4, 5]


def stop(i):
    raise StopIteration


def test_a_sample_cannot_end_the_loop():
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Act(stop), num_workers=1))


def test_errors_of_starting():
    def init(worker):
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        next(iter(DataLoader(Act(int), num_workers=1, worker_init_fn=init)))


def kill_self(i):
    if i == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.full((20_000,), float(i))


def test_a_killed_worker_is_reported():
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly: killed by signal SIGKILL"):
        list(DataLoader(Act(kill_self), batch_size=2, num_workers=2))
    with pytest.raises(RuntimeError, match="exited unexpectedly with status 3"):
        list(DataLoader(Act(lambda i: os._exit(3)), num_workers=2))
    assert not leftovers()


def test_timeout():
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.2 seconds"):
        next(iter(DataLoader(Act(lambda i: time.sleep(0.6) or i), num_workers=1, timeout=0.2)))


def slow_first(i):
    if i == 0:
        time.sleep(0.5)
    return i


def test_order_may_be_left_to_the_workers():
    assert list(DataLoader(Act(slow_first, 6), batch_size=None, num_workers=2)) == list(range(6))
    quick = list(DataLoader(Act(slow_first, 6), batch_size=None, num_workers=2, in_order=False))
    assert sorted(quick) == list(range(6)) and quick[0] != 0


def heavy(i):
    return (torch.randn(200, 200) @ torch.randn(200, 200)).sum().item() * 0 + torch.get_num_threads()


def test_workers_compute_though_the_pool_of_threads_is_not_theirs():
    # The pool runs before the fork.
    (torch.randn(600, 600) @ torch.randn(600, 600)).sum()
    assert [int(x) for x in DataLoader(Act(heavy, 6), batch_size=None, num_workers=2)] == [1] * 6
    (torch.randn(600, 600) @ torch.randn(600, 600)).sum()


def test_tensors_are_batched_in_this_process():
    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=3, num_workers=2, pin_memory=True)
    assert [b[0].tolist() for b in loader] == [[0, 1, 2], [3, 4, 5]]


SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
import rushlight as torch
from rushlight.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        time.sleep(0.05)
        return torch.zeros(20000)
for batch in DataLoader(Slow(), batch_size=2, num_workers=2):
    print("batch", flush=True)
"""


def test_ctrl_c_ends_cleanly():
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
    )
    assert process.stdout.readline() == "batch\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert not glob.glob(f"/dev/shm/rushlight_{process.pid}_*")
