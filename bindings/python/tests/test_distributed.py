"""``torch.distributed`` over processes of this machine. No test can hang: every process has a watchdog."""

import importlib
import itertools
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

import rushlight as torch
from rushlight import distributed as dist
from rushlight import nn
from rushlight.utils.data.distributed import DistributedSampler

RANKS = pathlib.Path(__file__).with_name("distributed_ranks.py")
LIMIT = 240


#: Each process of the tests has ports of its own, below those that outgoing connections take.
_FIRST_PORT = 12000 + 4000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = itertools.count(os.getpid() % 4000)


def free_port():
    while True:
        port = _FIRST_PORT + next(_ports) % 4000
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def launch(size, *command, variables=None, codes=None):
    """Starts the ranks of a world, waits for them, and returns what each printed."""
    package = str(pathlib.Path(torch.__file__).parents[1])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMI_", "OMPI_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_"))}
    env["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [env.get("PYTHONPATH")])])
    env |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env |= {"RUSHLIGHT_JOB_SECRET": secrets.token_hex(16), "RUSHLIGHT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    env |= variables or {}
    processes = []
    for rank in range(size):
        own = env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        processes.append(subprocess.Popen([sys.executable, *map(str, command)], env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    deadline, outputs = time.monotonic() + LIMIT, []
    try:
        for process in processes:
            outputs.append(process.communicate(timeout=max(0.1, deadline - time.monotonic())))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    told = "\n".join(f"rank {rank} ended with {p.returncode}:\n{out}\n{err}" for rank, (p, (out, err)) in enumerate(zip(processes, outputs)))
    assert [p.returncode for p in processes] == [(codes or {}).get(rank, 0) for rank in range(size)], told
    return [out for out, _ in outputs]


@pytest.mark.parametrize("what, size", [("reductions", 3), ("copies", 3), ("differentiable", 3), ("objects", 3), ("data_parallel", 3), ("horovod", 2)])
def test_ranks(what, size):
    launch(size, RANKS, what)


def test_ways_to_meet(tmp_path):
    launch(2, RANKS, "stores", tmp_path, free_port())


@pytest.mark.parametrize("what, size", [("unused_and_accumulated", 2), ("failed_backward", 2), ("half_precision_hook", 2), ("ring", 3)])
def test_hard_cases(what, size):
    launch(size, RANKS, what)


def test_rank_0_may_end_first():
    start = time.monotonic()
    out = launch(2, RANKS, "exits_early")
    assert "rank 0 has left the job" in out[1]
    assert time.monotonic() - start < 40


def test_mpi_is_available_in_mpi_jobs_only(monkeypatch):
    for name in [n for n in os.environ if n.startswith(("PMI", "OMPI_", "SLURM_", "PALS_", "MV2_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    assert not dist.is_mpi_available()
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert not dist.is_mpi_available()
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_RANK"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert dist.is_mpi_available()


def test_a_store_needs_a_port():
    start = time.monotonic()
    with pytest.raises(ValueError, match="port 0"):
        dist.TCPStore("127.0.0.1", 0, is_master=False)
    assert time.monotonic() - start < 10
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with pytest.raises(RuntimeError, match="failed to listen"):
        dist.TCPStore("127.0.0.1", store.port, is_master=True)


def test_queues_keys_and_barriers_of_stores(tmp_path):
    for store in (dist.HashStore(), dist.FileStore(str(tmp_path / "f"), 1), dist.TCPStore("127.0.0.1", 0, is_master=True), dist.PrefixStore("p", dist.HashStore())):
        store.set_timeout(timedelta(seconds=20))
        store.set("b", "2")
        store.set("a", "1")
        # A TCPStore counts its workers in a key, as in PyTorch.
        assert [key for key in store.list_keys() if key != "_workers"] == ["a", "b"]
        store.queue_push("q", "x")
        store.queue_push("q", b"y")
        assert store.queue_len("q") == 2 and store.check(["q"])
        assert store.queue_pop("q") == b"x" and store.clone().queue_pop("q") == b"y"
        with pytest.raises(dist.QueueEmptyError):
            store.queue_pop("q", block=False)
        assert store.clone().get("a") == b"1"
        threads = [threading.Thread(target=store.clone().barrier, args=("here", 3)) for _ in range(2)]
        for thread in threads:
            thread.start()
        store.barrier("here", 3)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


class DictionaryStore(dist.Store):
    """A store in Python."""

    def __init__(self):
        super().__init__()
        self.values = {}

    def set(self, key, value):
        self.values[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key):
        return self.values[key]

    def compare_set(self, key, expected, desired):
        if self.values.get(key, b"") == expected:
            self.values[key] = desired
        return self.values[key]


def test_a_store_in_python():
    store = DictionaryStore()
    part = dist.PrefixStore("p", store)
    part.set("k", "v")
    assert store.values == {"p/k": b"v"} and part.get("k") == b"v"
    assert part.compare_set("k", "v", "w") == b"w"
    with pytest.raises(NotImplementedError, match="DictionaryStore does not define add"):
        store.add("k", 1)
    with pytest.raises(RuntimeError, match="does not define add"):
        part.add("k", 1)
    assert not store.has_extended_api() and not part.has_extended_api()
    store.add = lambda key, amount: store.set(key, str(int(store.values.get(key, b"0")) + amount)) or int(store.values[key])
    dist._test_python_store(store)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    dist.destroy_process_group()


def test_timeouts_say_so():
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    assert store.num_keys() == 1
    with pytest.raises(RuntimeError, match="Timeout"):
        store.wait(["never"], timedelta(seconds=0.1))
    with pytest.raises(RuntimeError, match="Timed out after .* 1/2 clients joined"):
        dist.TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=timedelta(seconds=0.2))


def test_rendezvous_by_url(tmp_path, monkeypatch):
    store, rank, size = next(dist.rendezvous(f"file://{tmp_path}/r?rank=0&world_size=1"))
    assert isinstance(store, dist.FileStore) and (rank, size) == (0, 1)
    store, rank, size = next(dist.rendezvous(f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1))
    assert isinstance(store, dist.TCPStore) and (rank, size) == (0, 1)
    with pytest.raises(ValueError, match="rank parameter missing"):
        next(dist.rendezvous(f"file://{tmp_path}/r?world_size=1"))
    with pytest.raises(ValueError, match="port number missing"):
        next(dist.rendezvous("tcp://127.0.0.1?rank=0&world_size=1"))
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="RANK expected"):
        next(dist.rendezvous("env://"))
    with pytest.raises(AssertionError, match="node-specific arguments"):
        dist.rendezvous("file://foo?rank=12&world_size=16", 12, 16)
    with pytest.raises(RuntimeError, match="No rendezvous handler for x://"):
        dist.rendezvous("x://y")


def test_debug_levels(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    dist.set_debug_level(dist.DebugLevel.OFF)
    assert dist.get_debug_level() == dist.DebugLevel.OFF
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "much")
    with pytest.raises(RuntimeError, match="OFF, INFO, or DETAIL"):
        dist.set_debug_level_from_env()


def test_a_dead_rank_is_named():
    start = time.monotonic()
    out = launch(3, RANKS, "killed", codes={1: 9})
    assert time.monotonic() - start < 30
    assert "rank 1 died" in out[0] and "rank 1 died" in out[2]
    out = launch(2, RANKS, "raised", codes={1: 1})
    assert "rank 1 died" in out[0]


def test_mismatches_and_latecomers_are_named():
    out = launch(2, RANKS, "mismatched")
    assert all("[4]" in text and "[5]" in text and "rank" in text for text in out), out
    out = launch(3, RANKS, "late")
    assert all("Rank 1 failed to pass" in out[rank] for rank in (0, 2)), out


SPAWNED = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def work(rank, size, queue):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "{port}"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(37, 4), torch.randn(37, 1))
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=5, sampler=sampler)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    queue.put((rank, model.module.weight.detach().tolist()))
    dist.destroy_process_group()


def fail(rank):
    if rank == 1:
        raise ValueError("a reason")
    import time
    time.sleep(60)


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, args=(2, queue), nprocs=2)
    found = sorted(queue.get() for _ in range(2))
    print("same", found[0][1] == found[1][1])
    try:
        mp.spawn(fail, nprocs=2)
    except mp.ProcessRaisedException as error:
        print("raised", error.error_index, "ValueError: a reason" in str(error))
"""


def test_spawned_processes(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED.replace("{port}", str(free_port())))
    (out,) = launch(1, "-m", "rushlight", script)
    assert out.split("\n")[:2] == ["same True", "raised 1 True"]


TEMPLATE = """
import os
import oneccl_bindings_for_pytorch
import intel_extension_for_pytorch as ipex
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group(backend="{backend}")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
model = DDP(torch.nn.Linear(4, 1).to(device), device_ids=[local_rank])
loss = model(torch.ones(2, 4)).sum()
loss.backward()
print(dist.get_backend(), model.module.weight.grad.tolist())
"""


@pytest.mark.parametrize("backend", ["nccl", "ccl"])
def test_programs_written_for_accelerators(tmp_path, backend):
    script = tmp_path / "template.py"
    script.write_text(TEMPLATE.replace("{backend}", backend))
    out = launch(2, "-m", "rushlight", "--device", "cuda", script)
    assert out == [f"{backend} [[2.0, 2.0, 2.0, 2.0]]\n"] * 2


def test_spawn_is_a_function_and_a_module():
    module = importlib.import_module("rushlight.multiprocessing.spawn")
    assert callable(torch.multiprocessing.spawn) and callable(module) and module.ProcessRaisedException is torch.multiprocessing.ProcessRaisedException


def test_one_process_needs_no_launcher():
    assert dist.is_available() and not dist.is_initialized() and dist.group.WORLD is None
    with pytest.raises(ValueError, match="init_process_group"):
        dist.get_rank()
    with pytest.raises(ValueError, match="unknown backend 'smoke'"):
        dist.init_process_group("smoke")
    for _ in range(2):
        dist.init_process_group("gloo", rank=0, world_size=1)
        try:
            x = torch.ones(3)
            dist.all_reduce(x)
            assert x.tolist() == [1.0] * 3 and (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "gloo")
            model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
            model(x).backward()
            assert model.module.weight.grad.tolist() == [[1.0] * 3]
            mesh = dist.init_device_mesh("cpu", (1,))
            assert mesh.get_local_rank() == 0
            assert '"stage":"completed"' in dist.group.WORLD.flight_record().replace(" ", "")
        finally:
            dist.destroy_process_group()


def test_stores(tmp_path):
    for store in (dist.HashStore(), dist.FileStore(str(tmp_path / "f"), 1), dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20))):
        part = dist.PrefixStore("p", store)
        part.set("a", "1")
        assert store.get("p/a") == b"1" and part.check(["a"]) and not part.check(["b"])
        assert store.add("n", 2) == 2 and store.add("n", -1) == 1
        assert store.compare_set("c", "", "x") == b"x" and store.compare_set("c", "y", "z") == b"x"
        store.append("c", b"y")
        store.multi_set(["m", "n2"], ["1", "2"])
        assert store.multi_get(["c", "m", "n2"]) == [b"xy", b"1", b"2"]
        assert store.delete_key("m") and not store.delete_key("m")
        with pytest.raises(dist.DistStoreError, match="missing"):
            store.wait(["missing"], timedelta(seconds=0.05))
    client = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=20))
    assert client.get("c") == b"xy"
    with pytest.raises(TypeError, match="TCPStore"):
        dist.Store()


def test_sampler_shares_all_samples_out():
    data = list(range(11))
    parts = [list(DistributedSampler(data, 3, rank, seed=4)) for rank in range(3)]
    assert [len(p) for p in parts] == [4, 4, 4] and set(sum(parts, [])) == set(data)
    # PyTorch's order of ten samples for seed 0.
    order = [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    sampler = DistributedSampler(range(10), 4, 1)
    assert list(sampler) == (order + order[:2])[1::4]
    sampler.set_epoch(1)
    assert list(sampler) != (order + order[:2])[1::4]
    assert list(DistributedSampler(data, 3, 2, shuffle=False, drop_last=True)) == [2, 5, 8]


def test_data_parallel_over_devices():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    x = torch.randn(5, 3)
    parallel = nn.DataParallel(model, device_ids=["cpu", "cpu"], output_device="cpu")
    out = parallel(x)
    assert torch.allclose(out, model(x), atol=1e-6)
    out.sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    assert all(torch.allclose(a, p.grad, atol=1e-5) for a, p in zip(grads, model.parameters()))
    with pytest.raises(RuntimeError, match="replica 0"):
        parallel(torch.randn(5, 2))
