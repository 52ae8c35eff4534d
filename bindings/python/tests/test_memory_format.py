"""Strides of results: PyTorch's rules of memory formats. The strides were recorded from PyTorch 2.15; ``tests/differential`` compares those of random programs."""

import pytest
import rushlight as torch
import rushlight.nn.functional as F


def images(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to(memory_format=torch.channels_last)


def test_copies_keep_dense_strides():
    t = torch.arange(6.0).reshape(2, 3).t()
    for made in (t.clone(), t + 1, 1 - t, t.exp(), t.double(), t * t, torch.zeros_like(t), torch.empty_like(t), torch.rand_like(t), t > 2, torch.where(t > 2, t, 0.0)):
        assert made.stride() == (1, 3), made
    assert torch.equal(t + 1, t.contiguous() + 1) and torch.equal(t.clone(), t)
    for made in (t.contiguous(), t.clone(memory_format=torch.contiguous_format), torch.ones_like(t, memory_format=torch.contiguous_format)):
        assert made.stride() == (2, 1)
    gaps = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)[1:3]
    assert gaps.clone().stride() == (1, 6, 2) and (gaps * 2).stride() == (1, 6, 2)
    assert torch.ones(3, 1).expand(3, 4).clone().stride() == (4, 1)


def test_first_operand_that_decides_gives_the_order():
    a, t = torch.ones(3, 2), torch.ones(2, 3).t()
    assert (a + t).stride() == (2, 1) and (t + a).stride() == (1, 3) and (torch.ones(2) + t).stride() == (1, 3)


def test_channels_last_goes_through_layers():
    x = images(2, 3, 8, 8).requires_grad_()
    w = torch.randn(4, 3, 3, 3, requires_grad=True)
    y = F.conv2d(x, w, padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(y, F.conv2d(x.contiguous(), w, padding=1), rtol=1e-5, atol=1e-3)
    bn = torch.nn.BatchNorm2d(4)
    z = F.max_pool2d(F.relu(bn(y)), 2)
    assert z.is_contiguous(memory_format=torch.channels_last)
    assert F.adaptive_avg_pool2d(z, 2).stride() == (16, 1, 8, 4) and torch.cat([z, z], 1).is_contiguous(memory_format=torch.channels_last)
    z.square().sum().backward()
    assert x.grad.stride() == x.stride() and w.grad.is_contiguous()
    plain, v = x.detach().contiguous().requires_grad_(), w.detach().clone().requires_grad_()
    F.max_pool2d(F.relu(torch.nn.BatchNorm2d(4)(F.conv2d(plain, v, padding=1))), 2).square().sum().backward()
    assert torch.allclose(plain.grad, x.grad, rtol=1e-3, atol=1e-4) and torch.allclose(v.grad, w.grad, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop"])
def test_optimizers_take_any_order(optimizer):
    def run(weight):
        weight = weight.requires_grad_()
        step = getattr(torch.optim, optimizer)([weight], lr=0.1)
        for _ in range(3):
            step.zero_grad()
            (weight * torch.arange(24.0).reshape(weight.shape)).square().sum().backward()
            step.step()
        return weight.detach()

    values = torch.linspace(-1, 1, 24).reshape(2, 3, 2, 2)
    last = run(values.clone(memory_format=torch.channels_last))
    assert last.is_contiguous(memory_format=torch.channels_last) and torch.allclose(last, run(values.clone()))


def test_changes_of_views_of_permuted_bases_have_gradients():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = x.t() * 2
    y[1].mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [[2, 6, 2], [2, 6, 2]]


def test_moves_and_files_keep_the_order(tmp_path):
    t = torch.arange(6.0).reshape(2, 3).t().clone()
    torch.save(t, tmp_path / "t.pt")
    again = torch.load(tmp_path / "t.pt")
    assert again.stride() == (1, 3) and torch.equal(again, t) and t.to("meta").stride() == (1, 3)
