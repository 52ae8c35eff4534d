"""Pipelines and distributed checkpoints over processes of this machine, against one process and PyTorch's files."""

import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.distributed import checkpoint as dcp
from rushlight.distributed import pipelining as pp
from rushlight.distributed.checkpoint import state_dict as sd
from test_distributed import free_port, launch

RANKS = pathlib.Path(__file__).with_name("model_parallel_ranks.py")
FIXTURE = pathlib.Path(__file__).parents[3] / "tests/fixtures/io/dcp"


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("what", ["pipeline_by_hand", "pipeline_by_tracing"])
def test_pipelines_equal_one_process(what, size):
    launch(size, RANKS, what)


def test_splitting_says_what_is_wrong():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    x = torch.ones(1, 2)
    with pytest.raises(ValueError, match="'7', which the model does not have"):
        pp.pipeline(model, (x,), split_spec={"7": pp.SplitPoint.END})
    with pytest.raises(NotImplementedError, match="split_spec"):
        pp.pipeline(model, (x,), split_policy=lambda m: m)
    pipe = pp.pipeline(model, (x,), split_spec={"0": pp.SplitPoint.END, "2": pp.SplitPoint.BEGINNING})
    assert pipe.num_stages == 3 and torch.equal(pipe(x), model(x))
    assert [*pipe.get_stage_module(2).state_dict()] == ["2.weight", "2.bias"]

    class Marked(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            x = self.a(x)
            pp.pipe_split()
            return self.b(x)

    pipe = pp.pipeline(Marked(), (x,))
    assert pipe.num_stages == 2 and [*pipe.get_stage_module(1).state_dict()] == ["b.weight", "b.bias"]

    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(RuntimeError, match="Split it by hand"):
        pp.pipeline(Branching(), (x,))
    layers = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])
    spec = pp.split_by_cost(layers, 3, (x,))
    assert len(spec) == 2 and pp.pipeline(layers, (x,), split_spec=spec).num_stages == 3
    with pytest.raises(ValueError, match="6 layers do not split into 7 stages"):
        pp.split_by_cost(layers, 7, (x,))
    assert pp.schedules.get_schedule_class("zbvzerobubble") is pp.ScheduleZBVZeroBubble


def test_microbatches():
    x = torch.arange(12).view(6, 2)
    args, kwargs = pp.microbatch.split_args_kwargs_into_chunks((x, 3), {"m": x.t()}, 3, None, {"m": pp.microbatch.TensorChunkSpec(1)})
    assert [a[0].tolist() for a in args][1] == [[4, 5], [6, 7]] and args[2][1] == 3
    assert kwargs[0]["m"].shape == (2, 2)
    assert torch.equal(pp.microbatch.merge_chunks([a[0] for a in args], None), x)


def test_a_checkpoint_of_pytorch_loads():
    state = {"model": {"rows": torch.zeros(5, 4), "plain": torch.zeros(2, 3, dtype=torch.int64)}, "epoch": 0}
    dcp.load(state, checkpoint_id=FIXTURE)
    assert state["epoch"] == 7 and torch.equal(state["model"]["rows"], (torch.arange(20) % 7).float().view(5, 4))
    metadata = dcp.FileSystemReader(FIXTURE).read_metadata()
    assert len(metadata.state_dict_metadata["model.columns"].chunks) == 2
    assert metadata.planner_data["optimizer.param_groups.0.lr"] == ("optimizer", "param_groups", 0, "lr")


@pytest.mark.parametrize("writers, readers", [(1, 2), (2, 1), (3, 2), (4, 3)])
def test_other_ranks_load_a_checkpoint(tmp_path, writers, readers):
    launch(writers, RANKS, "checkpoint_save", tmp_path / "c", 1)
    files = sorted(p.name for p in (tmp_path / "c").iterdir())
    assert files == [".metadata", *(f"__{r}_0.distcp" for r in range(writers))]
    launch(readers, RANKS, "checkpoint_load", tmp_path / "c")


def test_a_killed_save_leaves_the_last_committed_checkpoint(tmp_path):
    """One rank or two save to two folders in turn and are killed at any moment: what was reported last is there, whole."""
    package = str(pathlib.Path(torch.__file__).parents[1])
    for attempt in range(int(os.environ.get("RUSHLIGHT_KILLS", 12))):
        folder, size = tmp_path / str(attempt), 1 + attempt % 2
        env = {"PYTHONPATH": package, "PATH": "/usr/bin:/bin", "RUSHLIGHT_NUM_THREADS": "1", "RUSHLIGHT_JOB_SECRET": secrets.token_hex(16)}
        env |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [
            subprocess.Popen(
                [sys.executable, RANKS, "checkpoint_save", folder, "1000"], env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for rank in range(size)
        ]
        for _ in range(2 + attempt % 3):
            assert ranks[0].stdout.readline().startswith("saved"), ranks[0].poll()
        time.sleep(0.003 * (attempt % 12))
        for process in ranks:
            process.send_signal(signal.SIGKILL)
        last = [line for line in ranks[0].stdout.read().splitlines() if line.startswith("saved")]
        for process in ranks:
            process.wait()
            process.stdout.close()
        reported = int(last[-1].split()[1]) if last else 1 + attempt % 3
        steps = []
        for one in (folder / "0", folder / "1"):
            state = {"model": {"filled": torch.zeros(1000), "rows": torch.zeros(5, 4)}, "step": -1}
            dcp.load(state, checkpoint_id=one)
            assert torch.equal(state["model"]["filled"], torch.full((1000,), float(state["step"])))
            assert torch.equal(state["model"]["rows"], (torch.arange(20) % 7).float().view(5, 4))
            steps.append(state["step"])
        assert max(steps) >= reported and max(steps) - min(steps) == 1, (steps, reported)


def test_states_have_names_without_wrappers(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model[0].weight.detach().clone()
    state, optimizer_state = sd.get_state_dict(model, optimizer)
    assert torch.equal(model[0].weight, before) and optimizer.param_groups[0]["lr"] == 0.1
    assert set(state) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert set(optimizer_state["state"]) == set(state) and optimizer_state["param_groups"][0]["params"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).pow(2).sum().backward()
        optimizer.step()
    flat = sd.StateDictOptions(flatten_optimizer_state_dict=True)
    dcp.save({"model": sd.get_model_state_dict(model), "optim": sd.get_optimizer_state_dict(model, optimizer, options=flat)}, checkpoint_id=tmp_path)
    other = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.5)
    loaded = {"model": sd.get_model_state_dict(other), "optim": sd.get_optimizer_state_dict(other, other_optimizer, options=flat)}
    dcp.load(loaded, checkpoint_id=tmp_path)
    sd.set_state_dict(other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optim"], options=flat)
    assert other_optimizer.param_groups[0]["lr"] == 0.1
    for m, o in ((model, optimizer), (other, other_optimizer)):
        o.zero_grad()
        m(torch.ones(4, 3)).pow(2).sum().backward()
        o.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): \['0.bias'"):
        sd.set_model_state_dict(other, {"0.weight": model[0].weight})


def test_objects_with_a_state_and_other_values(tmp_path):
    class Counter:
        def __init__(self, value):
            self.value = value

        def state_dict(self):
            return {"value": self.value, "tensor": torch.full((2,), float(self.value))}

        def load_state_dict(self, state):
            self.value = state["value"]
            assert state["tensor"].tolist() == [self.value] * 2

    dcp.save({"counter": Counter(3), "list": [torch.ones(2), {"a": "b"}]}, storage_writer=dcp.FileSystemWriter(tmp_path))
    state = {"counter": Counter(0), "list": [torch.zeros(2), {"a": ""}]}
    dcp.load(state, storage_reader=dcp.FileSystemReader(tmp_path))
    assert state["counter"].value == 3 and state["list"][1] == {"a": "b"} and state["list"][0].sum() == 2
    # Saved again into the same folder: the old files go once the new ones are valid.
    dcp.save({"counter": Counter(4)}, checkpoint_id=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    counter = Counter(0)
    dcp.load({"counter": counter}, checkpoint_id=tmp_path)
    assert counter.value == 4
    with pytest.raises(dcp.CheckpointException, match="already exists"):
        dcp.save({"a": 1}, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False))
    with pytest.raises(dcp.CheckpointException, match="Size mismatch"):
        dcp.load({"counter": {"tensor": torch.zeros(3)}}, checkpoint_id=tmp_path)
    with pytest.raises(NotImplementedError, match="other storages"):
        dcp.save({"a": 1}, checkpoint_id="s3://bucket/x")


def test_conversions(tmp_path):
    from rushlight.distributed.checkpoint import format_utils

    state = {"model": {"w": torch.arange(6.0).view(2, 3)}, "groups": [{"lr": 0.5}], "name": "x"}
    torch.save(state, tmp_path / "a.pt")
    format_utils.torch_save_to_dcp(tmp_path / "a.pt", tmp_path / "c")
    format_utils.dcp_to_torch_save(tmp_path / "c", tmp_path / "b.pt")
    back = torch.load(tmp_path / "b.pt")
    assert torch.equal(back["model"]["w"], state["model"]["w"]) and back["groups"] == state["groups"] and back["name"] == "x"


@pytest.mark.parametrize("writers, readers", [(1, 3), (4, 2)])
def test_sharded_models_are_hugging_face_files(tmp_path, writers, readers):
    launch(writers, RANKS, "safetensors_save", tmp_path)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    from safetensors.numpy import load_file

    whole = {k: v for name in names[:2] for k, v in load_file(tmp_path / name).items()}
    assert (whole["rows"].reshape(-1) == (torch.arange(40) % 7).numpy()).all() and whole["columns"].shape == (6, 8)
    assert (whole["columns"].reshape(-1) == (torch.arange(48) % 7).numpy()).all() and whole["count"].tolist() == [3]
    launch(readers, RANKS, "safetensors_load", tmp_path)


def test_unconsolidated_safetensors_of_pytorch_load(tmp_path):
    """Files of two ranks as PyTorch's HuggingFaceStorageWriter leaves them: each says where its parts start."""
    import json

    import numpy
    from safetensors.numpy import save_file

    rows = numpy.arange(12, dtype=numpy.float32).reshape(4, 3)
    for rank in range(2):
        info = {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": [2 * rank, 0]}}), "DCP_VERSION": "1.0"}
        save_file({"w": rows[2 * rank : 2 * rank + 2]}, tmp_path / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors", metadata=info)
    state = {"w": torch.zeros(4, 3)}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    assert (state["w"].numpy() == rows).all()
    with pytest.raises(dcp.CheckpointException, match="Missing key"):
        dcp.load({"x": torch.zeros(1)}, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    with pytest.raises(ValueError, match="tensors only"):
        dcp.save({"epoch": 3}, storage_writer=dcp.HuggingFaceStorageWriter(tmp_path))
