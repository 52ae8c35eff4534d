"""``torch.xpu`` on a device of the engine for Intel's GPUs: a GPU, or an OpenCL device of the CPU that stands for one (``scripts/opencl``)."""

import os
import subprocess
import sys

import pytest

import rushlight as torch
from rushlight import nn

pytestmark = pytest.mark.skipif(torch._C._accelerator_type() != "xpu", reason="no accelerator of Intel's")

# The check of Aurora's manual, and a training step of its program in small.
AURORA = """
import torch
import intel_extension_for_pytorch as ipex

print(f"GPU availability: {torch.xpu.is_available()}")
print(f"Number of tiles = {torch.xpu.device_count()}")
tile = torch.xpu.current_device()
print(f"Current tile = {tile}")
print(f"Current device ID = {torch.xpu.device(tile)}")
print(f"Device properties = {torch.xpu.get_device_properties()}")

device = torch.device("xpu")
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.rand((16, 1, 32)), torch.rand((16, 5, 32)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Transformer(d_model=32, nhead=4, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=64, batch_first=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss()
model.train()
model = model.to(device)
criterion = criterion.to(device)
model, optimizer = ipex.optimize(model, optimizer=optimizer)
losses = []
for epoch in range(4):
    for source, targets in loader:
        source = source.to(device)
        targets = targets.to(device)
        optimizer.zero_grad()
        output = model(source, targets)
        loss = criterion(output, targets)
        loss.backward()
        optimizer.step()
        assert output.device.type == "xpu" and output.is_xpu
        losses.append(loss.item())
assert losses[-1] < losses[0], losses
"""


def test_auroras_program(tmp_path):
    program = tmp_path / "aurora.py"
    program.write_text(AURORA)
    package = os.path.dirname(os.path.dirname(torch.__file__))
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", str(program)], env=os.environ | {"PYTHONPATH": package}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "GPU availability: True" and int(lines[1].split()[-1]) >= 1 and lines[2] == "Current tile = 0"
    assert "_XpuDeviceProperties(name='" in lines[4] and "driver_version='" in lines[4] and "max_compute_units=" in lines[4]


def test_tensors_live_there():
    x = torch.arange(6.0, device="xpu")
    assert x.device == torch.device("xpu", 0) and x.is_xpu and not x.is_cuda and "device='xpu:0'" in repr(x)
    assert torch.equal(x.cpu(), torch.arange(6.0)) and x.to("cuda") is x and torch.ones(2).xpu().is_xpu
    with torch.device("xpu"):
        assert nn.Linear(2, 2).weight.is_xpu
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(6)
    with pytest.raises(IndexError):
        x[torch.tensor([7], device="xpu")].cpu()


def test_streams_events_and_memory():
    torch.xpu.reset_peak_memory_stats()
    before = torch.xpu.memory_allocated()
    x = torch.ones(1 << 20, device="xpu")
    assert torch.xpu.memory_allocated() - before >= 4 << 20 and torch.xpu.max_memory_allocated() >= 4 << 20
    assert torch.xpu.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == torch.xpu.memory_allocated()
    free, total = torch.xpu.mem_get_info()
    assert 0 < free <= total == torch.xpu.get_device_properties().total_memory
    start, end = torch.xpu.Event(enable_timing=True), torch.xpu.Event(enable_timing=True)
    side = torch.xpu.Stream()
    start.record()
    side.wait_stream(torch.xpu.current_stream())
    with torch.xpu.stream(side):
        y = x + 1
    torch.xpu.current_stream().wait_stream(side)
    end.record()
    torch.xpu.synchronize()
    assert start.elapsed_time(end) >= 0 and y.sum().item() == 2 << 20
    del x, y
    torch.xpu.empty_cache()
    with pytest.raises(AttributeError, match="rushlight.capture"):
        torch.xpu.XPUGraph()


def test_mixed_precision():
    layer = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 4)).to("xpu")
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)
    layer, optimizer = torch.xpu.optimize(layer, optimizer=optimizer, dtype=torch.bfloat16)
    x, y = torch.randn(32, 64, device="xpu"), torch.randint(0, 4, (32,), device="xpu")
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        with torch.xpu.amp.autocast(enabled=True, dtype=torch.bfloat16):
            out = layer(x)
            loss = nn.functional.cross_entropy(out, y)
        assert out.dtype == torch.bfloat16
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


TILES = """
import torch

tiles = [torch.full((4,), float(i), device=f"xpu:{i}") @ torch.ones(4, device=f"xpu:{i}") for i in range(torch.xpu.device_count())]
assert [tile.item() for tile in tiles] == [4.0 * i for i in range(len(tiles))] and tiles[0].to(tiles[-1].device).item() == 0.0
print(len(tiles))
"""


@pytest.mark.skipif("RUSHLIGHT_XPU_PLATFORM" not in os.environ, reason="no accelerator that is a CPU")
@pytest.mark.parametrize("hierarchy", ["FLAT", "COMBINED", "COMPOSITE", ""])
def test_tiles_are_devices_as_the_hierarchy_says(hierarchy):
    # Each compute unit of the CPU stands for a tile.
    env = {k: v for k, v in os.environ.items() if k not in ("POCL_DEVICES", "ZE_AFFINITY_MASK")}
    env |= {"RUSHLIGHT_XPU_TILES": "1", "ZE_FLAT_DEVICE_HIERARCHY": hierarchy, "PYTHONPATH": os.path.dirname(os.path.dirname(torch.__file__))}
    command = [sys.executable, "-m", "rushlight", "-c", TILES]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    units = torch.xpu.get_device_properties().max_compute_units
    assert int(done.stdout) == (1 if hierarchy == "COMPOSITE" else units), done.stdout
    if units > 1:
        one = subprocess.run(command, env=env | {"ZE_AFFINITY_MASK": "0"}, capture_output=True, text=True, timeout=300)
        assert one.stdout == "1\n", one.stderr
