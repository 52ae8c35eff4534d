"""What the ranks of ``test_model_parallel.py`` run: ``python model_parallel_ranks.py FUNCTION ARGUMENTS``."""

import importlib.util
import os
import pathlib
import sys

if importlib.util.find_spec("rushlight") is None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import rushlight as torch
from rushlight import distributed as dist
from rushlight import nn

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
STEPS, ROWS = 3, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Net(nn.Module):
    """A model whose forward uses its input at the end too: it must pass through every stage."""

    def __init__(self, count):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.layers = nn.ModuleList(Block() for _ in range(count))
        self.head = nn.Linear(8, 3)

    def forward(self, x, scale=None):
        h = self.inner(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h + x)


def batches():
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 + step)
        yield torch.randn(ROWS, 8, generator=generator), torch.randn(ROWS, 3, generator=generator)


def loss_fn(output, target):
    return ((output - target) ** 2).mean()


def alone(make):
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, dict(model.named_parameters())


def trained(schedule, stages, losses, expected, rename=lambda stage, name: name):
    optimizer = torch.optim.SGD([p for s in stages for p in s.submod.parameters()], lr=0.1, momentum=0.9)
    for step, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        found = []
        first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        output = schedule.step(*([x] if first else []), target=y if last else None, losses=found)
        optimizer.step()
        if last:
            assert output.shape == (ROWS, 3) and len(found) == schedule._n_microbatches
            mean = torch.stack(found).mean().item()
            assert abs(mean - losses[step]) < 1e-5, (type(schedule).__name__, step, mean, losses[step])
        else:
            assert output is None and not found
    for stage in stages:
        for name, p in stage.submod.named_parameters():
            gap = (p - expected[rename(stage.stage_index, name)]).abs().max().item()
            assert gap < 1e-5, (type(schedule).__name__, stage.stage_index, name, gap)


def pipeline_by_hand():
    from rushlight.distributed import pipelining as pp

    dist.init_process_group("gloo")
    for kind, per_rank, microbatches in [
        (pp.ScheduleGPipe, 1, 4),
        (pp.Schedule1F1B, 1, 8),
        (pp.ScheduleInterleaved1F1B, 2, 8),
        (pp.ScheduleLoopedBFS, 2, 4),
        (pp.ScheduleInterleavedZeroBubble, 2, 8),
        (pp.ScheduleInterleavedZeroBubble, 1, 8),
        (pp.ScheduleZBVZeroBubble, 2, 8),
        (pp.ScheduleDualPipeV, 2, 8),
    ]:
        count = per_rank * SIZE

        def make():
            return nn.Sequential(*[nn.Sequential(Block(), Block()) for _ in range(count - 1)], nn.Sequential(Block(), nn.Linear(8, 3)))

        losses, expected = alone(make)
        torch.manual_seed(0)
        whole = make()
        own = [s for s in range(count) if (min(s, 2 * SIZE - 1 - s) if kind in (pp.ScheduleZBVZeroBubble, pp.ScheduleDualPipeV) else s % SIZE) == RANK]
        stages = [pp.PipelineStage(whole[s], s, count, torch.device("cpu")) for s in own]
        schedule = kind(stages[0] if per_rank == 1 and issubclass(kind, pp.schedules.PipelineScheduleSingle) else stages, microbatches, loss_fn=loss_fn)
        trained(schedule, stages, losses, expected, lambda stage, name: f"{stage}.{name}")
        # Evaluation runs forward passes only.
        x, y = next(batches())
        found = []
        out = schedule.eval(*([x] if 0 in own else []), target=y if count - 1 in own else None, losses=found)
        if count - 1 in own:
            assert not out.requires_grad and len(found) == microbatches
    try:
        schedule.step(torch.ones(3, 8))
    except RuntimeError as error:
        assert RANK != 0 or "does not split" in str(error) or "target" in str(error), error
    dist.destroy_process_group()


def pipeline_by_tracing():
    from rushlight.distributed import pipelining as pp

    dist.init_process_group("gloo")
    losses, expected = alone(lambda: Net(2 * SIZE))
    torch.manual_seed(0)
    model = Net(2 * SIZE)
    x, _ = next(batches())
    spec = {f"layers.{2 * i}": pp.SplitPoint.BEGINNING for i in range(1, SIZE)}
    pipe = pp.pipeline(model, mb_args=(x[:4],), split_spec=spec)
    assert pipe.num_stages == SIZE and torch.allclose(pipe(x), model(x))
    stage = pipe.build_stage(RANK, torch.device("cpu"))
    trained(pp.Schedule1F1B(stage, 4, loss_fn=loss_fn), [stage], losses, expected)
    dist.destroy_process_group()


def checkpoint_save(folder, count):
    """Rank parts of tensors by hand: objects that look like DTensors."""
    from rushlight.distributed import checkpoint as dcp

    dist.init_process_group("gloo")
    model, optimizer, state = checkpoint_state()
    if count == "1":
        dcp.save(state, checkpoint_id=folder)
    else:
        for step in range(int(count)):
            state["step"] = step
            state["model"]["filled"].fill_(step)
            future = dcp.async_save(state, checkpoint_id=f"{folder}/{step % 2}")
            future.result()
            print("saved", step, flush=True)
    dist.destroy_process_group()


class Sharded:
    """As much of a DTensor as a checkpoint needs: a tensor sharded along a dimension."""

    def __init__(self, whole, dim):
        self.shape, self.device_mesh, self.placements = whole.shape, self, [self]
        self.dim, self._local = dim, list(whole.chunk(SIZE, dim))
        self._local = (self._local[RANK] if RANK < len(self._local) else whole.narrow(dim, 0, 0)).clone()

    def get_coordinate(self):
        return [RANK]

    def size(self, dim):
        return SIZE

    def is_shard(self):
        return True

    def is_partial(self):
        return False

    def to_local(self):
        return self._local

    def numel(self):
        return self.shape.numel()


def ramp(*shape, dtype=torch.float32):
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count) % 7).to(dtype).reshape(shape)


def checkpoint_state(dim=0):
    torch.manual_seed(1)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    state = {
        "model": {**model.state_dict(), "rows": Sharded(ramp(5, 4), dim), "columns": Sharded(ramp(3, 6, dtype=torch.bfloat16), 1 - dim), "filled": torch.zeros(1000)},
        "optimizer": optimizer.state_dict(),
        "epoch": 7,
        "step": 0,
        "schedule": {"lambdas": [{}], "rates": [0.5]},
    }
    return model, optimizer, state


def checkpoint_load(folder):
    from rushlight.distributed import checkpoint as dcp

    dist.init_process_group("gloo")
    _, _, expected = checkpoint_state(1)
    _, _, state = checkpoint_state(1)
    for value in state["model"].values():
        (value.to_local() if isinstance(value, Sharded) else value).zero_()
    state["optimizer"]["param_groups"][0]["lr"] = 0.0
    state["epoch"] = 0
    dcp.load(state, checkpoint_id=folder)
    for name, value in state["model"].items():
        a, b = (v.to_local() if isinstance(v, Sharded) else v for v in (value, expected["model"][name]))
        assert torch.equal(a, b), name
    assert state["epoch"] == 7 and state["optimizer"]["param_groups"][0]["lr"] == 0.25
    assert torch.equal(state["optimizer"]["state"][0]["exp_avg"], expected["optimizer"]["state"][0]["exp_avg"])
    try:
        dcp.load({"none": torch.ones(1)}, checkpoint_id=folder)
        raise AssertionError
    except dcp.CheckpointException as error:
        assert "Missing key in checkpoint state_dict: none" in str(error)
    dist.destroy_process_group()


def placed(mesh):
    """Tensors that the ranks hold together: by rows and by columns, unevenly too; and one that every rank has."""
    from rushlight.distributed.tensor import Shard, distribute_tensor

    return {
        "rows": distribute_tensor(ramp(10, 4), mesh, [Shard(0)]), "columns": distribute_tensor(ramp(6, 8), mesh, [Shard(1)]),
        "count": torch.tensor([3], dtype=torch.int64),
    }


def safetensors_save(folder):
    from rushlight.distributed import checkpoint as dcp
    from rushlight.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo")
    writer = dcp.HuggingFaceStorageWriter(folder, fqn_to_index_mapping={"rows": 1, "columns": 2, "count": 1})
    dcp.save(placed(init_device_mesh("cpu", (SIZE,))), storage_writer=writer)
    dist.destroy_process_group()


def safetensors_load(folder):
    from rushlight.distributed import checkpoint as dcp
    from rushlight.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (SIZE,))
    expected, state = placed(mesh), placed(mesh)
    for value in state.values():
        (value.to_local() if hasattr(value, "to_local") else value).zero_()
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(folder))
    for name, value in expected.items():
        a, b = (v.to_local() if hasattr(v, "to_local") else v for v in (state[name], value))
        assert torch.equal(a, b), name
    dist.destroy_process_group()


def deepspeed_config(stage, **more):
    return {
        "train_batch_size": ROWS,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.05, "warmup_num_steps": 3, "warmup_type": "linear", "warmup_min_lr": 0.01}},
        "zero_optimization": {"stage": stage, "overlap_comm": True},
        **more,
    }


def deepspeed_steps(engine, count, start=0):
    micro = engine.train_micro_batch_size_per_gpu()
    for step, (x, y) in enumerate(list(batches()) * 3):
        if step < start or step >= start + count:
            continue
        for i in range(engine.gradient_accumulation_steps()):
            at = (i * SIZE + RANK) * micro
            part, target = x[at : at + micro], y[at : at + micro]
            if next(engine.module.parameters()).dtype != torch.float32:
                part = part.to(next(engine.module.parameters()).dtype)
            engine.backward(loss_fn(engine(part).float(), target))
            engine.step()


def deepspeed_alone(count):
    """The same training by PyTorch's names, in one process."""
    torch.manual_seed(0)
    model = Net(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    for step, (x, y) in enumerate((list(batches()) * 3)[:count]):
        optimizer.param_groups[0]["lr"] = 0.01 + 0.04 * min(max(step - 1, 0) / 3, 1.0)
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return model


def deepspeed_trains(stage, offload="none", folder=None):
    import rushlight._deepspeed as deepspeed

    torch.manual_seed(RANK)
    model = Net(2)
    if RANK == 0:
        torch.manual_seed(0)
        model = Net(2)
    config = deepspeed_config(int(stage))
    if offload != "none":
        deepspeed._files._SMALL = 1
        config["zero_optimization"]["offload_optimizer"] = {"device": offload, "pin_memory": True, "nvme_path": folder}
        if offload == "nvme" and int(stage) == 3:
            config["zero_optimization"]["offload_param"] = {"device": "nvme", "nvme_path": folder}
    engine, optimizer, _, schedule = deepspeed.initialize(model=model, config=config)
    assert engine.train_micro_batch_size_per_gpu() == ROWS // (2 * SIZE) and engine.zero_optimization_stage() == int(stage)
    deepspeed_steps(engine, 5)
    assert engine.global_steps == 5 and engine.micro_steps == 10 and schedule.last_batch_iteration == 4
    for (name, p), q in zip(engine.module.named_parameters(), deepspeed_alone(5).parameters()):
        p = p.full_tensor() if hasattr(p, "full_tensor") else p
        assert (p - q).abs().max().item() < 1e-5, (stage, name, (p - q).abs().max().item())
    if int(stage) in (1, 2) and SIZE > 1:
        held = sum(t.numel() for state in optimizer.state.values() for t in state.values() if t.dim())
        assert held < 2 * 0.75 * sum(p.numel() for p in model.parameters()), held
    if offload == "nvme":
        states = [t for state in optimizer.state.values() for t in state.values() if t.dim()]
        mapped = pathlib.Path("/proc/self/maps").read_text()
        assert states and all(engine._state_files.holds(t) for t in states) and folder in mapped and not os.listdir(folder)
    dist.destroy_process_group()


class Wide(nn.Module):
    """Layers whose constructors make parameters, one of them by hand and two that are tied."""

    def __init__(self, count=16, width=128):
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 0.5))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.tied = nn.Linear(width, width, bias=False)
        self.tied.weight = self.layers[0].weight

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x * self.scale))
        return self.tied(x)


def deepspeed_built():
    """``zero.Init``: a model that no rank ever holds whole, with rank 0's values; then training, and whole parameters for a while."""
    import gc

    import rushlight._deepspeed as deepspeed

    deepspeed.init_distributed()
    config = deepspeed_config(3)
    torch.manual_seed(3)
    expected = Wide()
    total = 4 * sum(p.numel() for p in expected.parameters())
    expected = {name: p.detach().clone() for name, p in expected.named_parameters()}
    gc.collect()
    torch.cpu.reset_peak_memory_stats()
    before = torch.cpu.memory_allocated()
    torch.manual_seed(3 + RANK)
    with deepspeed.zero.Init(config_dict_or_path=config):
        net = Wide()

        class Late(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(5, 2))

        late = Late()
    peak = torch.cpu.max_memory_allocated() - before
    assert total / SIZE <= peak <= total / SIZE + 0.3 * total, (peak, total)
    assert not hasattr(Wide().scale, "placements") and late.weight.to_local().shape[0] <= -(-5 // SIZE)
    assert net.tied.weight is net.layers[0].weight and list(dict(net.named_parameters())) == list(expected)
    assert "build" not in Wide.__init__.__code__.co_name and "__init_subclass__" not in nn.Module.__dict__
    for name, p in net.named_parameters():
        assert torch.equal(p.full_tensor().detach(), expected[name]), name
    # A change by one rank reaches all; others are dropped.
    weight = net.layers[1].weight
    with deepspeed.zero.GatheredParameters([weight, net.scale], modifier_rank=SIZE - 1):
        assert type(weight) is nn.Parameter and weight.shape == (128, 128) and net.layers[1].weight is weight
        if RANK == SIZE - 1:
            nn.init.constant_(weight, 0.25)
            net.scale.data[3] = 7.0
        elif RANK == 0:
            weight.data.zero_()
    assert weight.full_tensor().unique().tolist() == [0.25] and net.scale.full_tensor()[3].item() == 7.0
    with deepspeed.zero.GatheredParameters(weight):
        weight.data.zero_()
    assert weight.full_tensor().unique().tolist() == [0.25] and weight.placements[0].is_shard(0)
    # Training of a model that was built so.
    torch.manual_seed(RANK)
    with deepspeed.zero.Init(config_dict_or_path=config):
        if RANK == 0:
            torch.manual_seed(0)
        model = Net(2)
    first = model.layers[0].first.weight
    engine, *_ = deepspeed.initialize(model=model, config=config)
    assert model.layers[0].first.weight is first
    deepspeed_steps(engine, 3)
    with deepspeed.zero.GatheredParameters(engine.module.parameters()), torch.no_grad():
        x, _ = next(batches())
        inside = engine(x)
        state = {name: p.detach().clone() for name, p in model.named_parameters()}
        try:
            with torch.enable_grad():
                engine(x)
            raise AssertionError("a forward pass with gradients")
        except RuntimeError as error:
            assert "no_grad" in str(error)
    with torch.no_grad():
        assert torch.equal(engine(x), inside)
    for name, p in model.named_parameters():
        assert torch.equal(p.full_tensor(), state[name]), name
    with deepspeed.zero.GatheredParameters(model.head.bias, modifier_rank=0):
        if RANK == 0:
            model.head.bias.data += 1.0
    with torch.no_grad():
        assert (engine(x) - inside - 1.0).abs().max().item() < 1e-6
    with deepspeed.zero.GatheredParameters(model.head.bias, modifier_rank=0):
        model.head.bias.data -= 1.0
    deepspeed_steps(engine, 3, start=3)
    for (name, p), q in zip(engine.module.named_parameters(), deepspeed_alone(6).parameters()):
        gap = (p.full_tensor() - q).abs().max().item()
        assert gap < 1e-5, (name, gap)
    try:
        deepspeed.initialize(model=net, config=deepspeed_config(1))
        raise AssertionError("a sharded model in stage 1")
    except ValueError as error:
        assert "stage" in str(error)
    dist.destroy_process_group()


def deepspeed_planned(path):
    """Training by what ``rushlight plan --write`` wrote, with an optimizer of the program's own."""
    import json

    import rushlight._deepspeed as deepspeed

    torch.manual_seed(0)
    model = Net(2)
    # Without a configuration it is the file of `rushlight run --plan`.
    config = None if os.environ.get("RUSHLIGHT_PLAN") else path
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    plan = json.loads(pathlib.Path(path).read_text())
    assert engine.train_batch_size() == ROWS == 16 and engine.zero_optimization_stage() == plan["zero_optimization"]["stage"]
    deepspeed_steps(engine, 2)
    assert engine.global_steps == 2
    torch.manual_seed(0)
    alone = Net(2)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for x, y in list(batches())[:2]:
        optimizer.zero_grad()
        loss_fn(alone(x), y).backward()
        optimizer.step()
    for p, q in zip(engine.module.parameters(), alone.parameters()):
        p = p.full_tensor() if hasattr(p, "full_tensor") else p
        assert (p - q).abs().max().item() < 1e-5
    dist.destroy_process_group()


def deepspeed_saves(folder, stage):
    import rushlight._deepspeed as deepspeed

    torch.manual_seed(0)
    engine, *_ = deepspeed.initialize(model=Net(2), config=deepspeed_config(int(stage)))
    assert engine.load_checkpoint(folder) == (None, {})
    deepspeed_steps(engine, 3)
    engine.save_checkpoint(folder, client_state={"note": "here", "numbers": [1, 2]})
    dist.destroy_process_group()


def deepspeed_continues(folder, stage):
    import rushlight._deepspeed as deepspeed

    torch.manual_seed(5)
    engine, *_ = deepspeed.initialize(model=Net(2), config=deepspeed_config(int(stage)))
    path, client = engine.load_checkpoint(folder)
    assert path.endswith("global_step3") and client == {"note": "here", "numbers": [1, 2]} and engine.global_steps == 3
    deepspeed_steps(engine, 3, start=3)
    for (name, p), q in zip(engine.module.named_parameters(), deepspeed_alone(6).parameters()):
        p = p.full_tensor() if hasattr(p, "full_tensor") else p
        assert (p - q).abs().max().item() < 1e-5, (stage, name, (p - q).abs().max().item())
    dist.destroy_process_group()


def deepspeed_half(kind, stage):
    import rushlight._deepspeed as deepspeed

    torch.manual_seed(0)
    section = {"enabled": True} | ({"initial_scale_power": 20, "hysteresis": 1} if kind == "fp16" else {})
    engine, *_ = deepspeed.initialize(model=Net(2), config=deepspeed_config(int(stage), **{kind: section}))
    assert next(engine.module.parameters()).dtype == (torch.float16 if kind == "fp16" else torch.bfloat16)
    deepspeed_steps(engine, 8)
    if kind == "fp16":
        # The first scale overflows; steps are left out until it does not.
        assert 0 < engine.skipped_steps < 8 and engine.cur_scale < 2.0**20, (engine.skipped_steps, engine.cur_scale)
    total = torch.stack([p.float().sum() for p in engine.module.parameters()])
    assert torch.isfinite(total).all()
    others = [torch.zeros_like(total) for _ in range(SIZE)]
    dist.all_gather(others, total)
    assert all(torch.equal(total, other) for other in others)
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
