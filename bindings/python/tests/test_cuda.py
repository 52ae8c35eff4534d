"""On an accelerator, where there is one: what programs do with ``cuda``."""

import io
import pickle

import pytest

import rushlight as torch
from rushlight import nn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")


def test_tensors_move():
    x = torch.arange(6.0).reshape(2, 3)
    there = x.cuda()
    assert there.device == torch.device("cuda", 0) and there.is_cuda and there.type() == "torch.cuda.FloatTensor"
    assert torch.equal(there.cpu(), x) and torch.equal(there.to("xpu").cpu(), x) and there.to(0) is there
    assert "device='cuda:0'" in repr(there)
    assert (there + 1).sum().item() == 21 and there[1, 2].item() == 5 and there.tolist() == x.tolist()
    with pytest.raises(TypeError, match="Use Tensor.cpu"):
        there.numpy()
    with pytest.raises(RuntimeError, match="same device"):
        there + x
    # A number on the CPU goes with anything.
    assert torch.equal((there * torch.tensor(2.0)).cpu(), x * 2)
    assert torch.equal(there.mul_(torch.tensor(2.0)).cpu(), x * 2)
    assert there[[1, 0]].tolist() == (x * 2)[[1, 0]].tolist() and there[torch.tensor([True, False])].shape == (1, 3)
    there[0, torch.tensor([0, 1])] = 7.0
    assert there.tolist() == [[7, 7, 4], [6, 8, 10]]


def test_tensors_are_made_there():
    assert torch.zeros(2, device="cuda").is_cuda and torch.randn(2, device=torch.device("cuda:0")).is_cuda
    assert torch.tensor([1, 2], device="cuda").new_ones(2).is_cuda and torch.cuda.FloatTensor([1, 2]).is_cuda
    with torch.device("cuda"):
        assert torch.rand(3).is_cuda and nn.Linear(2, 2).weight.is_cuda
    for made in (torch.randperm(5, device="cuda"), torch.hann_window(4, device="cuda"), torch.randint(0, 5, (2,), device="cuda")):
        assert made.is_cuda
    x = torch.full((1000,), 0.5, device="cuda")
    for drawn in (torch.bernoulli(x), x.bernoulli(0.5), nn.functional.dropout(x), torch.poisson(x), torch.normal(x, 1.0), x.clone().exponential_()):
        assert drawn.is_cuda and drawn.shape == x.shape
    assert torch.distributions.Normal(x, 1.0).sample().is_cuda


def test_files_and_pickles():
    x = torch.arange(4.0, device="cuda")
    assert pickle.loads(pickle.dumps(x)).is_cuda
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    assert torch.load(file, map_location="cuda")["x"].is_cuda
    for map_location, kind in ((None, "cuda"), ("cpu", "cpu"), ({"cuda:0": "cpu"}, "cpu"), (lambda storage, location: storage, "cpu")):
        file.seek(0)
        assert torch.load(file, map_location=map_location)["x"].device.type == kind
    whole = io.BytesIO()
    torch.save(nn.Linear(2, 2).cuda(), whole)
    for map_location, kind in ((None, "cuda"), ("cpu", "cpu"), (lambda storage, location: storage, "cpu")):
        whole.seek(0)
        found = torch.load(whole, map_location=map_location, weights_only=False)
        assert found.weight.device.type == kind and found.weight.is_leaf and isinstance(found.weight, nn.Parameter)
    layer = nn.Linear(2, 2).cuda()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    layer.load_state_dict(torch.load(file, map_location="cpu"))
    assert layer.weight.is_cuda


def trained(device, steps=20):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(0.1, inplace=True), nn.Flatten(), nn.Linear(64, 8), nn.GELU())
    head = nn.LSTM(8, 8, batch_first=True)
    x, y = torch.randn(16, 1, 6, 6), torch.randint(0, 8, (16,))
    net, head, x, y = net.to(device), head.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        out, _ = head(net(x).unsqueeze(1))
        loss = nn.functional.cross_entropy(out[:, -1], y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_is_the_same():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        assert torch.allclose(torch.tensor(trained("cuda")), torch.tensor(trained("cpu")), rtol=1e-3, atol=1e-4)
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_mixed_precision():
    net = nn.Linear(16, 16).cuda()
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    x = torch.randn(4, 16, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        out = net(x)
        assert out.dtype == torch.float16
        loss = out.float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.isfinite(net.weight).all()


def test_questions():
    assert torch.cuda.device_count() >= 1 and torch.cuda.current_device() == 0 and torch.accelerator.is_available()
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory > 1 << 30 and properties.name == torch.cuda.get_device_name()
    assert torch.cuda.get_device_capability() >= (7, 0)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before >= 4 << 20 and torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    x.exp_()
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    torch.cuda.empty_cache()
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        assert x.sum().item() == 1 << 20
    with pytest.raises(RuntimeError, match="ordinal"):
        torch.cuda.set_device(torch.cuda.device_count())
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(1 << 48, device="cuda")


def test_workers_feed_it():
    from rushlight.utils.data import DataLoader, TensorDataset

    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return torch.tensor(float(i)) ** 2

    torch.ones(1, device="cuda")
    loader = DataLoader(Squares(), batch_size=4, num_workers=2, pin_memory=True)
    assert all(batch.is_pinned() for batch in loader)
    assert sum(batch.to("cuda", non_blocking=True).sum().item() for batch in loader) == sum(i * i for i in range(8))
    assert next(iter(DataLoader(TensorDataset(torch.ones(4).cuda()), batch_size=2)))[0].is_cuda


def test_streams_run_side_by_side():
    x = torch.ones(512, 512, device="cuda")
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    assert main == torch.cuda.default_stream() and side != main and side.device == x.device and side.cuda_stream
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        y = x
        for _ in range(20):
            y = y @ x / 512
        done = side.record_event()
    assert torch.cuda.current_stream() == main
    x.record_stream(side)
    main.wait_event(done)
    y.record_stream(main)
    end.record()
    assert y.sum().item() == 512 * 512
    assert done.query() and side.query()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(done)
    torch.cuda.set_stream(side)
    assert torch.accelerator.current_stream() == side and (x + 1).sum().item() == 2 * 512 * 512
    torch.cuda.set_stream(main)
    side.synchronize()
    torch.accelerator.synchronize()
    with torch.Stream(device="cuda", priority=-1) as other:
        assert torch.cuda.current_stream() == other
    assert torch.cuda.current_stream() == main


def test_memory_waits_for_the_stream_that_uses_it():
    side = torch.cuda.Stream()
    for value in range(10):
        x = torch.full((1 << 20,), float(value), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            busy = torch.ones(1024, 1024, device="cuda")
            for _ in range(10):
                busy @ busy
            total = x.double().sum()
        x.record_stream(side)
        del x
        other = torch.full((1 << 20,), -1.0, device="cuda")
        with torch.cuda.stream(side):
            assert total.item() == value * (1 << 20)
        del other


def test_threads_have_streams_of_their_own():
    import threading

    side, seen = torch.cuda.Stream(), []
    with torch.cuda.stream(side):
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.cuda.default_stream()]


def test_pinned_memory():
    x = torch.arange(1 << 18)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.pin_memory() is pinned and torch.equal(pinned, x)
    assert torch.ones(3, pin_memory=True).is_pinned() and torch.tensor([1], pin_memory=True).is_pinned()
    there = pinned.to("cuda", non_blocking=True)
    assert torch.equal(there.cpu(), x)
    there.zero_()
    there.copy_(pinned, non_blocking=True)
    assert torch.equal(there.to("cpu", non_blocking=True), x) and torch.equal(pinned.cuda(non_blocking=True).cpu(), x)
    torch.accelerator.empty_host_cache()
    with pytest.raises(RuntimeError, match="pinned"):
        there.pin_memory()
    from rushlight.utils.data import DataLoader, TensorDataset

    for a, b in DataLoader(TensorDataset(torch.ones(8, 4), torch.arange(8)), batch_size=4, pin_memory=True):
        assert a.is_pinned() and b.is_pinned() and a.to("cuda", non_blocking=True).sum().item() == 16


def network():
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 4)).cuda()


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, dampening=0.5),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def run(optimizer_of, captured, dtype=None, steps=12):
    """Losses, parameters and state of some steps, with a schedule outside."""
    torch.manual_seed(3)
    net = network()
    optimizer = optimizer_of(net.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return {"loss": loss, "none": None}

    step = torch.capture(step, enabled=captured)
    losses = []
    for i in range(steps):
        x, y = (torch.arange(8 * 16.0).view(8, 16) * (i + 1)).sin().cuda(), (torch.arange(8).cuda() + i) % 4
        found = step(x, y)
        assert found["none"] is None and not found["loss"].requires_grad
        losses.append(found["loss"])
        schedule.step()
    assert step.graphs == int(captured)
    state = [v for kept in optimizer.state_dict()["state"].values() for v in kept.values() if isinstance(v, torch.Tensor)]
    return [t.cpu() for t in (*losses, *net.state_dict().values(), *state)] + [torch.get_rng_state()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_captured_steps_are_like_others(name):
    for dtype in (None, torch.bfloat16):
        for a, b in zip(run(OPTIMIZERS[name], False, dtype), run(OPTIMIZERS[name], True, dtype)):
            assert torch.equal(a, b)


def test_capture_kinds():
    seen = []

    @torch.capture(warmup=1, device="cuda")
    def scaled(x, factor, *, offset=0.0):
        seen.append(factor)
        return [x * factor + offset, (x.sum(),)]

    for i in range(4):
        for factor in (2, 3):
            x = torch.full((3,), float(i))
            (y, (total,)) = scaled(x, factor, offset=1.0)
            assert y.tolist() == [i * factor + 1.0] * 3 and total.item() == 3 * i
    assert scaled.graphs == 2 and seen == [2, 3, 2, 3]
    assert scaled(torch.ones(5), 2)[0].tolist() == [2.0] * 5
    with pytest.raises(TypeError, match="hashable"):
        scaled(torch.ones(1), {1, 2})
    module = nn.Dropout(0.5)
    dropped = torch.capture(module, warmup=1)
    x = torch.ones(1000, device="cuda")
    for _ in range(3):
        assert 0 < (dropped(x) == 0).sum().item() < 1000
    module.eval()
    assert dropped(x).tolist() == x.tolist()


def test_what_cannot_be_captured_is_named():
    net = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.ones(2, 4, device="cuda")

    def reading():
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        loss.item()

    step = torch.capture(reading, warmup=1, device="cuda")
    step()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(NotImplementedError, match="item: cannot be part of a captured step"):
        step()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    assert all(kept["step"].item() == 1 for kept in optimizer.state.values())
    step.set_enabled(False)
    step()
    assert all(kept["step"].item() == 2 for kept in optimizer.state.values())

    class Odd(Exception):
        pass

    def raising(x):
        if torch.cuda.is_current_stream_capturing():
            raise Odd("here")
        return x

    step = torch.capture(raising, warmup=1)
    step(x)
    with pytest.raises(Odd, match="here"):
        step(x)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    step = torch.capture(schedule.step, warmup=1, device="cuda")
    step()
    with pytest.raises(NotImplementedError, match="captured step"):
        step()
    assert (x + 1).sum().item() == 16


@pytest.mark.parametrize("unscales", [False, True])
def test_a_captured_step_with_a_scaler_is_like_others(unscales):
    def run(captured):
        torch.manual_seed(3)
        net, scaler = nn.Linear(8, 4).cuda(), torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            return loss

        call = torch.capture(step, warmup=1) if captured else step
        inputs = torch.sin(torch.arange(7 * 16.0)).reshape(7, 2, 8).cuda()
        inputs[4, 0, 0] = float("inf")
        scales = []
        for x in inputs:
            call(x)
            scales.append(scaler.get_scale())
        kept = optimizer.state_dict()["state"]
        assert [v["step"].item() for v in kept.values()] == [6.0, 6.0]
        return scales, [t.cpu() for t in (*net.state_dict().values(), *(v["exp_avg"] for v in kept.values()))]

    (scales, tensors), (captured_scales, captured_tensors) = run(False), run(True)
    assert scales == captured_scales == [8.0, 16.0, 16.0, 32.0, 16.0, 16.0, 32.0]
    for a, b in zip(tensors, captured_tensors):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-7)


def test_an_optimizer_of_the_users_is_refused_with_a_captured_scaler():
    class Plain(torch.optim.Optimizer):
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.add_(p.grad, alpha=-0.1)

    net, scaler = nn.Linear(4, 1).cuda(), torch.amp.GradScaler("cuda")
    optimizer = Plain(net.parameters(), {})

    @torch.capture(warmup=1)
    def step(x):
        scaler.scale(net(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    x = torch.ones(2, 4, device="cuda")
    step(x)
    with pytest.raises(NotImplementedError, match="cannot be part of a captured step"):
        step(x)


def test_loaded_optimizers_are_captured_anew():
    def losses(captured):
        torch.manual_seed(1)
        net = nn.Linear(4, 4).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step, found = torch.capture(step, enabled=captured), []
        for i in range(12):
            found.append(step(torch.full((2, 4), i / 3.0, device="cuda")).item())
            if i == 5:
                optimizer.load_state_dict(optimizer.state_dict())
            if i == 8:
                optimizer.param_groups[0]["lr"] = 1e-3
        return found

    assert losses(False) == losses(True)


def test_whole_network_graph():
    """PyTorch's recipe: static tensors, warm-up on a side stream, one graph of a training step."""

    def train(graphed):
        torch.manual_seed(5)
        net, loss_of = network(), nn.MSELoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        static_input, static_target = torch.randn(8, 16, device="cuda"), torch.randn(8, 4, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(net(static_input), static_target)
                loss.backward()
                optimizer.step()
        torch.cuda.current_stream().wait_stream(side)
        if graphed:
            g = torch.cuda.CUDAGraph()
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(g):
                assert torch.cuda.is_current_stream_capturing()
                static_loss = loss_of(net(static_input), static_target)
                static_loss.backward()
                optimizer.step()
        losses = []
        for i in range(6):
            data, target = (torch.arange(128.0).view(8, 16) + i).cos(), torch.full((8, 4), float(i))
            static_input.copy_(data)
            static_target.copy_(target)
            if graphed:
                g.replay()
                losses.append(static_loss.item())
            else:
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(net(static_input), static_target)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            if i == 3:
                optimizer.param_groups[0]["lr"] = 0.01
        return [torch.tensor(losses), *(t.cpu() for t in net.state_dict().values())]

    # Graphs are fused once their kernels are compiled, so sums may be rounded otherwise.
    torch.testing.assert_close(train(False), train(True), rtol=1e-5, atol=1e-6)


def test_graphs():
    x = torch.ones(4, device="cuda")
    g = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding"):
        g.replay()
    with torch.cuda.graph(g):
        y = x * 2
        z = y + 1
    x.fill_(3)
    g.replay()
    assert y.tolist() == [6.0] * 4 and z.tolist() == [7.0] * 4
    with pytest.raises(RuntimeError, match="already owns"):
        g.capture_begin()
    h = torch.cuda.CUDAGraph()
    with torch.cuda.graph(h, pool=g.pool()):
        w = z * z
    h.replay()
    assert w.tolist() == [49.0] * 4
    with pytest.raises(NotImplementedError, match="item"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()
    assert not torch.cuda.is_current_stream_capturing() and x.sum().item() == 12
    with pytest.raises(RuntimeError, match="records nothing"):
        torch.cuda.CUDAGraph().capture_end()
    # With a scaler: scaled in the graph, stepped outside.
    net, scaler = nn.Linear(4, 1).cuda(), torch.amp.GradScaler("cuda", init_scale=4.0, growth_interval=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    net(x).sum().backward()
    optimizer.zero_grad(set_to_none=True)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        scaler.scale(net(x).sum()).backward()
    for scale in (4.0, 8.0, 16.0):
        g.replay()
        assert net.bias.grad.item() == scale == scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()


def test_graphed_callables():
    def train(graphed):
        torch.manual_seed(7)
        first, second = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU()).cuda(), nn.Linear(16, 2).cuda()
        x, h = torch.randn(4, 8, device="cuda"), torch.randn(4, 16, device="cuda", requires_grad=True)
        if graphed:
            first, second = torch.cuda.make_graphed_callables((first, second), ((x,), (h,)))
        torch.manual_seed(8)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        losses = []
        for i in range(5):
            optimizer.zero_grad()
            for part in range(2):
                loss = second(first((torch.arange(32.0).view(4, 8) + i + part).sin().cuda())).square().mean()
                loss.backward()
            optimizer.step()
            losses.append(loss.item())
        first.eval()
        return losses, second(first(x)).tolist()

    assert train(False) == train(True)


def test_memory_is_shared_by_dlpack():
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    assert x.__dlpack_device__() == (2, 0)
    again = torch.from_dlpack(x)
    again += 1
    assert again.is_cuda and x.tolist() == [[1, 2, 3], [4, 5, 6]]
    side = torch.cuda.Stream()
    for stream in (None, -1, 1, 2, side.cuda_stream):
        assert torch.utils.dlpack.from_dlpack(x.t().__dlpack__(stream=stream)).tolist() == x.t().tolist()
    assert torch.from_dlpack(x.__dlpack__(dl_device=(1, 0))).device.type == "cpu"
    assert torch.from_dlpack(x, device="cpu").tolist() == x.tolist()


def test_a_model_on_two_devices():
    """Layers on the CPU and on the accelerator, split by hand: activations go there and back, gradients and updates are those of one device."""

    class Halves(nn.Module):
        def __init__(self, devices):
            super().__init__()
            torch.manual_seed(3)
            self.devices = devices
            self.first, self.second, self.head = nn.Linear(6, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()), nn.Linear(8, 3)
            for part, device in zip((self.first, self.second, self.head), devices):
                part.to(device)

        def forward(self, x):
            x = torch.tanh(self.first(x.to(self.devices[0])))
            x = x + self.second(x.to(self.devices[1])).to(self.devices[0])
            return self.head(x.to(self.devices[2]))

    def train(*devices):
        model = Halves(devices)
        assert [p.device.type for p in (model.first.weight, model.second[1].weight, model.head.weight)] == list(devices)
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.05), []
        data, targets = torch.sin(torch.arange(30.0)).reshape(5, 6), torch.tensor([0, 2, 1, 1, 0])
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data), targets.to(devices[2]))
            loss.backward()
            assert all(p.grad.device == p.device for p in model.parameters())
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().cpu() for p in model.parameters()]

    expected, parameters = train("cpu", "cpu", "cpu")
    for devices in (("cpu", "cuda", "cpu"), ("cuda", "cpu", "cuda")):
        losses, found = train(*devices)
        assert max(abs(a - b) for a, b in zip(losses, expected)) < 1e-5, (devices, losses, expected)
        for a, b in zip(found, parameters):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), (devices, (a - b).abs().max())
