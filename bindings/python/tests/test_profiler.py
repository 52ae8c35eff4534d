"""``torch.profiler``: events, totals, tables and files."""

import gzip
import json
import subprocess
import sys

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler


def train(steps, profiler=None):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(steps * 4, 8), torch.randint(4, (steps * 4,)))
    for x, y in torch.utils.data.DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        with record_function("forward"):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if profiler is not None:
            profiler.step()


def test_names_and_counts_are_pytorchs():
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        train(3, profiler)
    rows = {row.key: row for row in profiler.key_averages()}
    wanted = {
        "forward": 3, "aten::linear": 6, "aten::relu": 3, "Optimizer.step#SGD.step": 3, "ProfilerStep*": 3, "torch::autograd::AccumulateGrad": 12,
        "autograd::engine::evaluate_function: ReluBackward0": 3, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 4,
    }
    assert {name: rows[name].count for name in wanted} == wanted
    forward = rows["forward"]
    assert forward.cpu_time_total >= rows["aten::linear"].cpu_time_total > 0 and forward.self_cpu_time_total < forward.cpu_time_total
    shapes = {str(row.input_shapes[:2]) for row in profiler.key_averages(group_by_input_shape=True) if row.key == "aten::linear"}
    assert shapes == {"[[4, 8], [16, 8]]", "[[4, 16], [4, 16]]"}
    events = profiler.events()
    linear = next(event for event in events if event.name == "aten::linear")
    assert linear.cpu_parent.name == "forward" and linear.cpu_children and events.total_average().count == len(events)


def test_tables_have_pytorchs_columns():
    with profile(profile_memory=True, with_flops=True) as profiler:
        train(2)
    table = profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=5)
    for column in ("Name", "Self CPU %", "CPU total", "CPU time avg", "CPU Mem", "# of Calls", "Total MFLOPs", "Self CPU time total:"):
        assert column in table
    flops = {row.key: row.flops for row in profiler.key_averages()}
    assert flops["aten::linear"] == 2 * 2 * (4 * 8 * 16 + 4 * 16 * 4)
    assert "aten::linear" in str(profiler.key_averages()) and "cpu_time" not in table
    with pytest.raises(AttributeError, match="sort_by"):
        profiler.key_averages().table(sort_by="beauty")


def test_schedules():
    cycles = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    assert [cycles(step).value for step in range(10)] == [0, 0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert cycles(2) is ProfilerAction.WARMUP
    seen = []
    with profile(schedule=cycles, on_trace_ready=lambda p: seen.append({row.key: row.count for row in p.key_averages()})) as profiler:
        for _ in range(10):
            with record_function("work"):
                pass
            profiler.step()
    assert seen == [{"work": 2, "ProfilerStep*": 2}] * 2
    with pytest.raises(AssertionError):
        schedule(wait=0, warmup=0, active=0)


def test_traces(tmp_path):
    handler = tensorboard_trace_handler(str(tmp_path / "log"), worker_name="worker", use_gzip=True)
    with profile(record_shapes=True, profile_memory=True, with_stack=True, schedule=schedule(wait=0, warmup=1, active=2, repeat=1), on_trace_ready=handler) as profiler:
        profiler.add_metadata("note", "a test")
        train(4, profiler)
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("worker.") and path.name.endswith(".pt.trace.json.gz")
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    assert trace["schemaVersion"] == 1 and trace["note"] == "a test"
    kinds = {event["cat"] for event in events if event["ph"] == "X"}
    assert {"cpu_op", "user_annotation"} <= kinds
    linear = next(event for event in events if event["name"] == "aten::linear")
    assert linear["args"]["Input Dims"][:2] == [[4, 8], [16, 8]] and __file__ in linear["args"]["Call stack"]
    assert any(event["name"] == "[memory]" and event["args"]["Total Allocated"] > 0 for event in events)
    assert all({"pid", "tid", "ts", "name", "ph"} <= set(event) for event in events)
    profiler.export_stacks(str(tmp_path / "stacks.txt"))
    assert any(line.rsplit(" ", 1)[1].isdigit() and "test_profiler.py" in line for line in (tmp_path / "stacks.txt").read_text().splitlines())
    profiler.export_memory_timeline(str(tmp_path / "memory.json"))
    times, sizes = json.loads((tmp_path / "memory.json").read_text())
    assert len(times) == len(sizes) > 0 and times == sorted(times)
    profiler.export_memory_timeline(str(tmp_path / "memory.html"))
    assert "<svg" in (tmp_path / "memory.html").read_text()
    by_stack = profiler.key_averages(group_by_stack_n=1)
    assert any("test_profiler.py" in row.stack[0] for row in by_stack if row.stack)


def test_summary_of_a_trace(tmp_path):
    with profile(schedule=schedule(wait=0, warmup=1, active=3, repeat=1)) as profiler:
        train(5, profiler)
    profiler.export_chrome_trace(tmp_path / "trace.json")
    done = subprocess.run([sys.executable, "-m", "rushlight", "--trace", str(tmp_path / "trace.json")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("3 steps"), done
    for part in ("data loading", "backward", "optimizer", "what would help"):
        assert part in done.stdout
    done = subprocess.run([sys.executable, "-m", "rushlight", "--trace", __file__], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "not a Chrome trace" in done.stderr


def test_old_names():
    with torch.autograd.profiler.profile(profile_memory=True) as profiler:
        train(1)
    assert "aten::linear" in profiler.table(sort_by="cpu_time_total") and profiler.function_events.key_averages() and profiler.self_cpu_time_total > 0
    with torch.autograd.profiler.profile(enabled=False) as profiler:
        train(1)
    assert profiler.function_events is None
    assert torch.autograd.profiler_util.EventList and not torch.autograd._profiler_enabled()


def test_one_at_a_time():
    with profile():
        with pytest.raises(RuntimeError, match="recording already"):
            profile().start()
    with profile() as after:
        torch.ones(2) + 1
    assert [row.key for row in after.key_averages() if row.key.startswith("aten::")] == ["aten::ones", "aten::add"]
    with pytest.raises(AssertionError, match="not recorded anything"):
        profile().events()
    with pytest.raises(NotImplementedError):
        profile(experimental_config=3)
