"""Real PyTorch and Rushlight in one process: memory, files, whole models, optimizer states, both ways. Run by scripts/parity."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import numpy as np
import torch

import rushlight


def outputs_agree(ours, theirs):
    a = ours(rushlight.ones(3)).detach().numpy()
    return np.allclose(a, theirs(torch.ones(3)).detach().numpy())


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

    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    ours = rushlight.nn.Sequential(rushlight.nn.Linear(3, 4), rushlight.nn.ReLU())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "file.pt"
        torch.save(theirs.state_dict(), path)
        ours.load_state_dict(rushlight.load(path))
        assert outputs_agree(ours, theirs)
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
