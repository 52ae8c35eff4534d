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
    assert sum(batch.to("cuda", non_blocking=True).sum().item() for batch in loader) == sum(i * i for i in range(8))
    assert next(iter(DataLoader(TensorDataset(torch.ones(4).cuda()), batch_size=2)))[0].is_cuda
