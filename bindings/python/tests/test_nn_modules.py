"""Modules: what does not show in print."""

import copy
import gc
import threading
import weakref

import pytest

import rushlight as torch
from rushlight import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.fc2 = nn.Linear(4, 1)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


def test_calls_are_direct_without_hooks():
    layer = nn.Linear(2, 2)
    # The first call after hooks of all modules have ended notices that.
    layer(torch.ones(1, 2))
    assert not layer._hooked
    handle = layer.register_forward_hook(lambda *_: None)
    assert layer._hooked
    handle.remove()
    layer(torch.ones(1, 2))
    assert not layer._hooked


def test_hooks_of_all_modules_end():
    seen = []
    layer = nn.Linear(2, 2)
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, args: seen.append(module))
    layer(torch.ones(1, 2))
    handle.remove()
    layer(torch.ones(1, 2))
    assert seen == [layer]
    assert not nn.Module._hooked


def test_hooks_are_copied_with_their_module():
    calls = []
    layer = nn.ReLU()
    layer.register_forward_hook(lambda *_: calls.append(1))
    copy.deepcopy(layer)(torch.ones(1))
    assert calls == [1]


def test_a_backward_hook_sees_every_pass():
    net, seen = Net(), []
    net.fc1.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output[0].shape))
    for _ in range(3):
        net(torch.ones(2, 3, requires_grad=True)).sum().backward()
    assert seen == [torch.Size([2, 4])] * 3


def test_modules_are_freed():
    net = Net()
    net.fc1.register_full_backward_hook(lambda *_: None)
    net(torch.ones(2, 3)).sum().backward()
    watched = weakref.ref(net.fc1.weight)
    del net
    gc.collect()
    assert watched() is None


def test_optimizers_follow_a_module_that_moves():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.double()
    before = net.fc1.weight.detach().clone()
    net(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert net.fc1.weight.dtype == torch.float64
    assert not torch.equal(net.fc1.weight, before)


def test_one_module_in_several_threads():
    net, x = Net().eval(), torch.ones(5, 3)
    expected, found = net(x), []

    def work():
        with torch.no_grad():
            found.extend(torch.equal(net(x), expected) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 200


def test_recurrent_dropout_is_for_training():
    lstm, x = nn.LSTM(3, 4, num_layers=2, dropout=0.5), torch.ones(6, 2, 3)
    assert not torch.equal(lstm(x)[0], lstm(x)[0])
    lstm.eval()
    assert torch.equal(lstm(x)[0], lstm(x)[0])


def test_attention_dropout_is_for_training():
    attention, x = nn.MultiheadAttention(4, 2, dropout=0.5), torch.ones(6, 2, 4)
    assert not torch.equal(attention(x, x, x)[0], attention(x, x, x)[0])
    attention.eval()
    assert torch.equal(attention(x, x, x)[0], attention(x, x, x)[0])


def test_distributed_modules_need_a_group():
    with pytest.raises(ValueError, match="init_process_group"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    # In one process statistics of all ranks are its own.
    x = torch.randn(4, 3)
    assert torch.allclose(nn.SyncBatchNorm(3)(x), nn.BatchNorm1d(3)(x))


def test_unknown_names_say_what_is_near():
    with pytest.raises(AttributeError, match="Did you mean: 'Linear'"):
        nn.Linaer


def test_lazy_modules_become_plain_ones():
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    net(torch.ones(2, 1, 5, 5))
    assert [type(m) for m in net] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear]
    other = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    other.load_state_dict(net.state_dict())
    net.eval(), other.eval()
    assert torch.equal(net(torch.ones(1, 1, 5, 5)), other(torch.ones(1, 1, 5, 5)))


def test_weights_learn_what_they_should():
    """The layers together: a small model of each kind fits its data."""
    x, y = torch.randn(32, 5, 4), torch.arange(32) % 3
    for body in (nn.LSTM(4, 16, batch_first=True), nn.GRU(4, 16, batch_first=True), nn.TransformerEncoderLayer(4, 2, 32, 0.0, batch_first=True)):
        head = nn.Linear(16 if isinstance(body, nn.RNNBase) else 4, 3)
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.02)
        for _ in range(60):
            out = body(x)
            out = out[0] if isinstance(out, tuple) else out
            loss = nn.functional.cross_entropy(head(out[:, -1]), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.8, type(body).__name__


def test_linear_cross_entropy_in_portions():
    torch.manual_seed(0)
    x, w, b, weight = (torch.randn(*size, dtype=torch.float64) for size in ((24, 5), (11, 5), (11,), (11,)))
    classes, weight = torch.randint(0, 11, (24,)), weight.abs() + 0.1
    classes[3] = -100
    probabilities = torch.randn(24, 11, dtype=torch.float64).softmax(-1)
    makes = [nn.LinearCrossEntropyOptions(), nn.LinearCrossEntropyOptions(batch_chunk_size=7), nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:2")]
    for target in (classes, probabilities):
        for reduction in ("mean", "sum", "none"):
            for class_weight in (None, weight):
                found = []
                for options in (None, *makes):
                    tensors = [t.clone().requires_grad_() for t in (x, w, b)]
                    loss = nn.functional.linear_cross_entropy(
                        *tensors[:2], target, linear_bias=tensors[2], weight=class_weight, reduction=reduction, label_smoothing=0.1, options=options,
                    )
                    loss.square().sum().backward()
                    found.append([loss.detach(), *(t.grad for t in tensors)])
                for other in found[1:]:
                    for a, c in zip(found[0], other):
                        torch.testing.assert_close(a, c)
    assert nn.LinearCrossEntropyOptions().rows(4096, 64, 1024) == 256
    with pytest.raises(ValueError, match="different chunk sizes"):
        nn.LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method="aspect_ratio").rows(64, 4, 16)
    with pytest.raises(ValueError, match="chunking_method"):
        nn.LinearCrossEntropyOptions(chunking_method="halves")
    with pytest.raises(NotImplementedError, match="accumulates"):
        nn.functional.linear_cross_entropy(x, w, classes, options=nn.LinearCrossEntropyOptions(acc_dtype=torch.float32))
    with pytest.warns(UserWarning, match="at once"):
        nn.functional.linear_cross_entropy(x[0], w, classes[0], options=makes[0])
