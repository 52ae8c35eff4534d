"""Real PyTorch and Rushlight in one process: memory, files, whole models, optimizer states, both ways. Run by scripts/parity."""

import pathlib
import sys
import tempfile
from collections import OrderedDict

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import numpy as np
import torch

import rushlight


def outputs_agree(ours, theirs):
    a = ours(rushlight.ones(3)).detach().numpy()
    return np.allclose(a, theirs(torch.ones(3)).detach().numpy())


FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
UNSIGNED = ("uint16", "uint32", "uint64")


def convert_float8():
    """Every code of each format and 2^24 numbers spread over all of float32, bit by bit."""
    bits = np.arange(0, 2**32, 256, dtype=np.uint64).astype(np.uint32) | np.arange(2**24, dtype=np.uint32) * 193 % 256
    numbers = bits.view(np.float32)
    codes = np.arange(256, dtype=np.uint8)
    for name in FLOAT8:
        ours, theirs = getattr(rushlight, name), getattr(torch, name)
        for wide in ("float32", "float64", "float16", "bfloat16"):
            a = rushlight.from_numpy(numbers).to(getattr(rushlight, wide)).to(ours).view(rushlight.uint8).numpy()
            b = torch.from_numpy(numbers).to(getattr(torch, wide)).to(theirs).view(torch.uint8).numpy()
            if wide != "float32":
                # What becomes of a NaN's sign on the way to a narrower float is no concern of this conversion.
                a, b = a[~np.isnan(numbers)], b[~np.isnan(numbers)]
            assert np.array_equal(a, b), (name, wide, a[a != b][:5], b[a != b][:5])
        a = rushlight.from_numpy(codes).view(ours).float().numpy().view(np.uint32)
        b = torch.from_numpy(codes).view(theirs).float().numpy().view(np.uint32)
        assert np.array_equal(a, b), (name, codes[a != b], a[a != b], b[a != b])
    return "8-bit floats: all codes and 2^24 numbers convert to PyTorch's bits"


def convert_unsigned():
    """Random integers of all magnitudes, half of the 64-bit ones beyond int64; files read both ways."""
    words = np.random.default_rng(0).integers(0, 2**64, 100_000, dtype=np.uint64)
    words >>= np.random.default_rng(1).integers(0, 64, words.size, dtype=np.uint64)
    with tempfile.TemporaryDirectory() as folder:
        for name in UNSIGNED:
            array = words.astype(name)
            ours, theirs = rushlight.from_numpy(array), torch.from_numpy(array)
            for other in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", *UNSIGNED):
                a, b = ours.to(getattr(rushlight, other)), theirs.to(getattr(torch, other))
                assert np.array_equal(a.view(rushlight.uint8).numpy(), b.view(torch.uint8).numpy()), (name, other)
            assert ours.sort()[0].tolist() == np.sort(array).tolist() and ours.sum().item() == theirs.sum().item()
            assert (ours * ours.flip(0)).tolist() == (theirs * theirs.flip(0)).tolist()
        for name in UNSIGNED + FLOAT8:
            path = pathlib.Path(folder) / "file.pt"
            bytes_ = words.view(np.uint8)[:256].copy()
            a, b = rushlight.from_numpy(bytes_).view(getattr(rushlight, name)), torch.from_numpy(bytes_).view(getattr(torch, name))
            rushlight.save({"x": a}, path)
            assert torch.load(path)["x"].dtype == b.dtype and torch.equal(torch.load(path)["x"].view(torch.uint8), b.view(torch.uint8))
            torch.save({"x": b}, path)
            assert rushlight.load(path)["x"].dtype == a.dtype and rushlight.equal(rushlight.load(path)["x"].view(rushlight.uint8), a.view(rushlight.uint8))
    return "unsigned integers: conversion, files and ops agree"


def share_with_jax():
    """Memory lent both ways; jax's arrays cannot be written to, so that reading is what is checked."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return "jax is not installed: skipped"
    jax.config.update("jax_platforms", "cpu")
    lent = rushlight.arange(6, dtype=rushlight.float32).reshape(2, 3)
    taken = jnp.from_dlpack(lent)
    assert taken.shape == (2, 3) and taken.tolist() == lent.tolist()
    for dtype in ("float32", "float16", "bfloat16", "int32", "uint8", "bool"):
        theirs = jnp.array([[0, 1], [1, 0]], dtype=dtype)
        ours = rushlight.from_dlpack(theirs)
        assert ours.dtype == getattr(rushlight, dtype) and ours.tolist() == theirs.tolist(), dtype
        assert jnp.from_dlpack(ours.clone()).dtype == theirs.dtype
    # A function of jax's in the middle of ours, with its gradient.
    class Sine(rushlight.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return rushlight.from_dlpack(jnp.sin(jnp.from_dlpack(x.detach())))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * rushlight.from_dlpack(jnp.cos(jnp.from_dlpack(x.detach())))

    x = rushlight.tensor([0.0, 1.0], requires_grad=True)
    Sine.apply(x).sum().backward()
    assert np.allclose(x.grad.numpy(), np.cos([0.0, 1.0]))
    return f"exchange with jax {jax.__version__}: memory agrees"


def main():
    shared = torch.arange(6.0).view(2, 3)
    rushlight.from_dlpack(shared).add_(1)
    assert shared[0, 0] == 1
    lent = rushlight.ones(3)
    torch.from_dlpack(lent).mul_(2)
    assert lent.tolist() == [2, 2, 2]

    print(convert_float8())
    print(convert_unsigned())

    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    ours = rushlight.nn.Sequential(rushlight.nn.Linear(3, 4), rushlight.nn.ReLU())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "file.pt"
        torch.save(theirs.state_dict(), path)
        ours.load_state_dict(rushlight.load(path))
        assert outputs_agree(ours, theirs)
        loaded, metadata = rushlight.load(path), theirs.state_dict()._metadata
        assert type(loaded) is OrderedDict and loaded._metadata == metadata
        rushlight.save({"ordered": loaded, "plain": {}}, path)
        loaded = torch.load(path)
        assert type(loaded["ordered"]) is OrderedDict and loaded["ordered"]._metadata == metadata and type(loaded["plain"]) is dict
        torch.save(theirs, path)
        assert outputs_agree(rushlight.load(path, weights_only=False), theirs)
        rushlight.save(ours, path)
        assert outputs_agree(ours, torch.load(path, weights_only=False))
        optimizer = rushlight.optim.Adam(ours.parameters())
        ours(rushlight.ones(3)).sum().backward()
        optimizer.step()
        rushlight.save({"model": ours.state_dict(), "optimizer": optimizer.state_dict()}, path)
        state = torch.load(path)
        theirs.load_state_dict(state["model"])
        other = torch.optim.Adam(theirs.parameters())
        other.load_state_dict(state["optimizer"])
        for library, model, step in ((rushlight, ours, optimizer), (torch, theirs, other)):
            step.zero_grad()
            model(library.ones(3)).sum().backward()
            step.step()
        assert outputs_agree(ours, theirs)
    print("exchange with PyTorch: memory, state dicts, models, optimizer states agree")
    print(share_with_jax())


if __name__ == "__main__":
    main()
