"""What the jobs share. A job runs alike under Rushlight and under PyTorch and gives numbers that must agree."""

import math

import torch

JOBS = {}


def job(library, name=None):
    """Registers a function as a job of a library. It returns numbers or tensors by name."""

    def register(function):
        JOBS.setdefault(library, {})[name or function.__name__] = function
        return function

    return register


def fill(module, scale=0.05, buffers=True):
    """Gives parameters and buffers the same values in both: a sine of their positions. Buffers that are no statistics (masks) are left out on request."""
    with torch.no_grad():
        for at, (name, tensor) in enumerate(list(module.named_parameters()) + list(module.named_buffers() if buffers else ())):
            tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            if not tensor.is_floating_point() or tensor.numel() == 0:
                continue
            if "running_var" in name or name.endswith(("norm.weight", "LayerNorm.weight", "layernorm.weight")):
                tensor.fill_(1.0)
                continue
            values = torch.arange(tensor.numel(), dtype=torch.float64).mul(0.7310585).add(at * 0.37).sin().mul(scale)
            tensor.copy_(values.reshape(tensor.shape).to(tensor.dtype))
    return module


def numbers(*shape, step=0.37, scale=1.0):
    """A tensor of numbers that look random and are the same in both."""
    return torch.arange(math.prod(shape), dtype=torch.float64).mul(step).sin().mul(scale).reshape(shape).float()


def tokens(*shape, vocabulary=50, step=7):
    """A tensor of token numbers."""
    return (torch.arange(math.prod(shape)) * step + 3).remainder(vocabulary).reshape(shape)


def gradient(module):
    """The sum of the absolute values of all gradients: one number for a whole backward pass."""
    return sum(p.grad.double().abs().sum().item() for p in module.parameters() if p.grad is not None)


def step(module, loss, optimizer=None):
    """A training step. Gives the loss and the gradients' sum."""
    optimizer = optimizer or torch.optim.AdamW(module.parameters(), lr=1e-3)
    optimizer.zero_grad()
    loss.backward()
    found = {"loss": loss.item(), "gradients": gradient(module)}
    optimizer.step()
    return found
