"""Real MPI launchers: the backend ``mpi``, mpi4py in the same process, and programs in the manner of the supercomputers' manuals.

``scripts/launchers`` installs what these tests need. No test can hang: every launcher has a watchdog."""

import os
import pathlib
import subprocess
import sys

import pytest
from test_distributed import free_port

import rushlight as torch

LAUNCHERS = pathlib.Path(__file__).parents[3] / "target" / "launchers"
LIMIT = 120


def mpiexec(which, size, *command, variables=None, code=0):
    """Runs a command as ranks under a launcher and returns what they wrote."""
    launcher = LAUNCHERS / which / "bin" / "mpiexec"
    if not launcher.exists():
        pytest.skip(f"no {launcher}: run scripts/launchers")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    package = str(pathlib.Path(torch.__file__).parents[1])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMI_", "OMPI_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_"))}
    env |= {"PYTHONPATH": package, "RUSHLIGHT_NUM_THREADS": "1", "LD_LIBRARY_PATH": str(LAUNCHERS / which / "lib")}
    env |= {name + end: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT") for end in ("", "_CONFIRM")}
    env |= variables or {}
    options = ["--oversubscribe"] if which == "openmpi" else []
    ranks = [str(launcher), *options, "-n", str(size), *map(str, command)]
    done = subprocess.run(ranks, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout
    return done.stdout


BESIDE = """
import sys
when = sys.argv[1]
if when == "before":
    from mpi4py import MPI
import torch
import torch.distributed as dist
dist.init_process_group("mpi")
assert dist.get_backend() == "mpi" and dist.group.WORLD._group.engine == "mpi"
from mpi4py import MPI
comm, rank, size = MPI.COMM_WORLD, dist.get_rank(), dist.get_world_size()
assert (comm.Get_rank(), comm.Get_size()) == (rank, size)
for dtype in (torch.float32, torch.bfloat16, torch.int64):
    x = torch.full((1003,), rank + 1, dtype=dtype)
    work = dist.all_reduce(x, async_op=True)
    # MPI is the other library's as well, while ours is under way.
    assert comm.allreduce(rank) == size * (size - 1) // 2
    work.wait()
    assert x.tolist() == [size * (size + 1) // 2] * 1003
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": r} for r in range(size)]
# Rank 0 receives from whoever sends; messages of another tag wait.
if rank == 0:
    got, senders = torch.empty(3), []
    for _ in range(size - 1):
        senders.append(dist.recv(got, tag=5))
        assert got.tolist() == [float(senders[-1])] * 3
    assert sorted(senders) == list(range(1, size)), senders
    handles = [dist.irecv(torch.empty(4), tag=9) for _ in range(size - 1)]
    assert all(handle.wait() for handle in handles)
    assert sorted(handle._source_rank() for handle in handles) == list(range(1, size))
else:
    dist.send(torch.full((4,), 9.0), 0, tag=9)
    dist.send(torch.full((3,), float(rank)), 0, tag=5)
group = dist.new_group([0, 1])
if rank < 2:
    y = torch.tensor([float(rank)])
    dist.broadcast(y, 1, group=group)
    assert y.item() == 1.0
if when == "twice":
    dist.destroy_process_group()
    dist.init_process_group("mpi")
    dist.barrier()
print(f"rank {rank} is done", flush=True)
"""


@pytest.mark.parametrize("which", ["mpich", "openmpi"])
@pytest.mark.parametrize("when", ["before", "after", "twice"])
def test_mpi_beside_mpi4py(which, when, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(BESIDE)
    out = mpiexec(which, 3, sys.executable, "-m", "rushlight", program, when)
    assert all(f"rank {rank} is done" in out for rank in range(3)), out


def test_without_a_library_the_error_says_what_was_tried():
    code = "import torch.distributed as d\ntry:\n    d.init_process_group('mpi')\nexcept (RuntimeError, NotImplementedError) as e:\n    print(e)"
    env = os.environ | {"PYTHONPATH": str(pathlib.Path(torch.__file__).parents[1]), "RUSHLIGHT_MPI_LIBRARY": "/nowhere/libmpi.so"}
    done = subprocess.run([sys.executable, "-m", "rushlight", "-c", code], env=env, capture_output=True, text=True, timeout=LIMIT)
    assert "/nowhere/libmpi.so" in done.stdout and "tcp" in done.stdout, done


# In Aurora's manner: rank and size by mpi4py, renamed for PyTorch; an address with a suffix of the fabric; ccl and xpu;
# a scaled learning rate.
AURORA = """
import os, socket
from mpi4py import MPI
import torch
import intel_extension_for_pytorch as ipex
import oneccl_bindings_for_pytorch
from torch.nn.parallel import DistributedDataParallel

world = MPI.COMM_WORLD
size, rank, local = world.Get_size(), world.Get_rank(), int(os.environ["PALS_LOCAL_RANKID"])
head = world.bcast(socket.gethostname(), root=0)
os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=head + ".hsn.cm.example.gov", MASTER_PORT=os.environ["TEST_PORT"])
torch.distributed.init_process_group(backend="ccl", init_method="env://", rank=rank, world_size=size)
torch.xpu.set_device(local)
device = torch.device("xpu")
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
sampler = torch.utils.data.distributed.DistributedSampler(data, shuffle=True, num_replicas=size, rank=rank, seed=0)
loader = torch.utils.data.DataLoader(data, sampler=sampler, batch_size=8)
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * size)
model, optimizer = ipex.optimize(model, optimizer=optimizer)
model = DistributedDataParallel(model)
losses = []
for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
weights = world.allgather(model.module.weight.detach().cpu().tolist())
assert all(w == weights[0] for w in weights) and losses[-1] < losses[0] * 1.5
torch.distributed.destroy_process_group()
print(f"rank {rank} is done", flush=True)
"""


def test_a_program_in_auroras_manner(tmp_path):
    program, hosts = tmp_path / "ddp.py", tmp_path / "hosts"
    program.write_text(AURORA)
    hosts.write_text("localhost\n")
    # What PALS sets, by way of Hydra.
    pals = 'PALS_RANKID=$PMI_RANK PALS_LOCAL_RANKID=$MPI_LOCALRANKID PALS_LOCAL_SIZE=2 PALS_NODEID=0 exec "$@"'
    variables = {"PBS_NODEFILE": str(hosts), "PBS_JOBID": "1.aurora", "PALS_APID": "2", "TEST_PORT": str(free_port())}
    out = mpiexec("mpich", 2, "sh", "-c", pals, "sh", sys.executable, "-m", "rushlight", program, variables=variables)
    assert "rank 0 is done" in out and "rank 1 is done" in out, out


# Tensors of an Intel device through the system's MPI; the ranks share the device where there is one.
XPU_BY_MPI = """
import torch, torch.distributed as dist

dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.arange(6.0, device="xpu") * (rank + 1)
dist.all_reduce(x)
assert x.device.type == "xpu" and x.tolist() == [3.0 * i for i in range(6)], x
parts = [torch.zeros(3, device="xpu") for _ in range(size)]
dist.all_gather(parts, torch.full((3,), float(rank), device="xpu"))
assert [part[0].item() for part in parts] == [0.0, 1.0], parts
low = torch.full((2,), float(rank), device="xpu", dtype=torch.bfloat16)
dist.broadcast(low, 1)
assert low.tolist() == [1.0, 1.0], low
out = torch.zeros(2, device="xpu")
dist.reduce_scatter_tensor(out, torch.arange(4.0, device="xpu"))
assert out.tolist() == [4.0 * rank, 4.0 * rank + 2], out
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).to("xpu"))
model(torch.full((3, 4), rank + 1.0, device="xpu")).sum().backward()
assert model.module.weight.grad[0, 0].item() == 4.5, model.module.weight.grad
dist.destroy_process_group()
print(f"rank {rank} is done", flush=True)
"""


@pytest.mark.skipif(torch._C._accelerator_type() != "xpu", reason="no accelerator of Intel's")
@pytest.mark.parametrize("which", ["mpich", "openmpi"])
def test_xpu_tensors_go_through_mpi(tmp_path, which):
    program = tmp_path / "by_mpi.py"
    program.write_text(XPU_BY_MPI)
    out = mpiexec(which, 2, sys.executable, "-m", "rushlight", program)
    assert "rank 0 is done" in out and "rank 1 is done" in out, out


# Rank 1 fails where rank 0 waits for it: mpi4py's ranks would wait for each other.
FAILING = """
from mpi4py import MPI
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise RuntimeError("rank 1 has no device")
dist.all_reduce(torch.ones(2))
"""


def test_a_rank_that_fails_ends_all(tmp_path):
    program = tmp_path / "failing.py"
    program.write_text(FAILING)
    out = mpiexec("mpich", 2, sys.executable, "-m", "rushlight", program, code=1)
    assert "rank 1 has no device" in out and "all ranks are ended" in out, out


# In Frontier's manner: the count of GPUs divides the rank, the interface is the fabric's, snapshots resume.
FRONTIER = """
import os, sys
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

address, port, path = sys.argv[1:]
rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
device = rank % torch.cuda.device_count()
os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(device), MASTER_ADDR=address, MASTER_PORT=port, NCCL_SOCKET_IFNAME="hsn0")
dist.init_process_group(backend="nccl", init_method="env://", rank=rank, world_size=size)
torch.cuda.set_device(device)
torch.manual_seed(1)
data = TensorDataset(torch.rand(64, 20), torch.rand(64, 1))
loader = DataLoader(data, batch_size=16, pin_memory=True, shuffle=False, sampler=DistributedSampler(data))
model = torch.nn.Linear(20, 1).to(device)
first = 0
if os.path.exists(path):
    saved = torch.load(path, map_location=f"cuda:{device}")
    model.load_state_dict(saved["model"])
    first = saved["epochs"]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model = DDP(model, device_ids=[device])
for epoch in range(first, first + 2):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
if rank == 0:
    torch.save({"model": model.module.state_dict(), "epochs": first + 2}, path)
dist.barrier()
print(f"rank {rank} has run epochs {first} to {first + 1}", flush=True)
dist.destroy_process_group()
"""


def test_a_program_in_frontiers_manner(tmp_path):
    program, snapshot = tmp_path / "multinode.py", tmp_path / "snapshot.pt"
    program.write_text(FRONTIER)
    for first in (0, 2):
        command = (sys.executable, "-m", "rushlight", "--device", "cuda", "-W", "ignore", "-u", program, "127.0.0.1", free_port(), snapshot)
        out = mpiexec("mpich", 2, *command)
        assert all(f"rank {rank} has run epochs {first} to {first + 1}" in out for rank in range(2)), out


# In the manner of the H100 cluster's templates: everything by torchrun's variables.
TEMPLATE = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
model = DDP(torch.nn.Linear(10, 1).to(device), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 10, device=device)).square().mean().backward()
    optimizer.step()
weights = [torch.zeros_like(model.module.weight) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(w, weights[0]) for w in weights)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} is done", flush=True)
dist.destroy_process_group()
"""


def test_a_program_in_the_manner_of_torchruns_templates(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(TEMPLATE)
    env = os.environ | {"PYTHONPATH": str(pathlib.Path(torch.__file__).parents[1]), "RUSHLIGHT_NUM_THREADS": "1"}
    options = ("--standalone", "--nnodes=1", "--nproc-per-node=2")
    command = [sys.executable, "-m", "rushlight", "-m", "torch.distributed.run", *options, str(program)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    assert done.returncode == 0 and all(f"rank {r} of 2 is done" in done.stdout for r in range(2)), done.stdout
