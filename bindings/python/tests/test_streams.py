"""Streams, events, pinned memory and graphs where there may be no accelerator: harmless, or an error that says so."""

import time

import pytest

import rushlight as torch
from rushlight import nn

without = pytest.mark.skipif(torch.cuda.is_available(), reason="an accelerator is there")


def test_the_cpu_has_streams_with_nothing_to_do():
    stream = torch.cpu.Stream()
    assert stream.query() and stream.device == torch.device("cpu") and stream == torch.cpu.current_stream()
    with torch.cpu.stream(stream), torch.Stream("cpu"):
        x = torch.ones(3)
    stream.synchronize()
    x.record_stream(stream)
    start, end = torch.Event("cpu", enable_timing=True), torch.cpu.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    time.sleep(0.002)
    end.record(stream)
    assert start.elapsed_time(end) >= 1 and end.query()
    end.wait()
    end.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(torch.Event("cpu"))


@without
def test_names_of_accelerators_mean_the_cpu():
    side = torch.cuda.Stream(priority=-1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x = torch.ones(2)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.current_stream().wait_event(side.record_event())
    torch.cuda.set_stream(side)
    torch.cuda.synchronize()
    torch.xpu.synchronize()
    torch.accelerator.synchronize()
    with torch.cuda.stream(None):
        pass
    assert not x.is_pinned() and x.pin_memory() is x and not torch.ones(2, pin_memory=True).is_pinned()
    assert not torch.cuda.is_current_stream_capturing()


@without
def test_graphs_say_what_to_do():
    for make in (torch.cuda.CUDAGraph, torch.cuda.graph_pool_handle):
        with pytest.raises(RuntimeError, match="rushlight.capture"):
            make()
    with pytest.raises(RuntimeError, match="rushlight.capture"):
        torch.cuda.make_graphed_callables(nn.Linear(2, 2), (torch.ones(1, 2),))
    for wrong in ("nope", "cuda:x", 1.5):
        with pytest.raises((RuntimeError, TypeError)):
            torch.cuda.Stream(wrong)
    with pytest.raises(RuntimeError):
        torch._C._Stream(0, 0)
    with pytest.raises(RuntimeError, match="records nothing"):
        torch._C._graph_end()
    torch._C._graph_abort()
    torch.accelerator.empty_host_cache()
    with pytest.raises(NotImplementedError, match="interprocess"):
        torch.cuda.Event(interprocess=True)


@without
def test_pinning_loaders_say_that_they_do_not():
    with pytest.warns(UserWarning, match="no accelerator is found"):
        assert len(list(torch.utils.data.DataLoader(torch.ones(2), pin_memory=True))) == 2


def test_captured_steps_run_on_the_cpu():
    torch.manual_seed(0)
    layer = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    calls = []

    @torch.capture
    def step(x, scale, *, also=None):
        """A step."""
        calls.append(scale)
        optimizer.zero_grad()
        loss = (layer(x) * scale).square().mean()
        loss.backward()
        optimizer.step()
        return loss, {"x": x, "also": also}

    assert step.__name__ == "step" and step.__doc__ == "A step."
    losses = []
    for i in range(6):
        x = torch.ones(2, 3, requires_grad=True)
        loss, rest = step(x, 2.0, also=[torch.tensor(i)])
        losses.append(loss.item())
        assert not loss.requires_grad and rest["also"][0].item() == i and not rest["x"].requires_grad
    assert len(calls) == 6 and losses[-1] < losses[0] and step.graphs == 0
    with pytest.raises(TypeError, match="returned a float"):
        torch.capture(lambda x: x.sum().item())(torch.ones(2))
    with pytest.raises(RuntimeError, match="running already"):
        again = torch.capture(lambda x: again(x))
        again(torch.ones(1))
    with pytest.raises(ZeroDivisionError):
        torch.capture(lambda x: 1 / 0)(torch.ones(1))
    with pytest.raises(ValueError, match="warmup"):
        torch.capture(lambda x: x, warmup=0)
    with torch.no_grad():
        assert torch.capture(layer)(torch.ones(1, 3)).shape == (1, 1)
