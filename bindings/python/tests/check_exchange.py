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


if __name__ == "__main__":
    main()
