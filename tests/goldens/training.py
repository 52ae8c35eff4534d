"""Losses of 50 training steps of each example program, from weights and batches that a hash makes alike here and in Rust: data/training.json.

    python tests/goldens/training.py            writes it
    python tests/goldens/training.py --check    compares with what this PyTorch gives
"""

import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import Gpt, Net, ResNet18, fill, hashed, tokens

OUT = pathlib.Path(__file__).parent / "data" / "training.json"
STEPS = 50


def train(model, optimizer, loss_of):
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def transformer():
    model = fill(nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True))
    src, tgt = (hashed(1, (8, 1, 32)) + 1) / 2, (hashed(2, (8, 5, 32)) + 1) / 2
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return train(model, optimizer, lambda m, step: F.cross_entropy(m(src, tgt), tgt))


def images(model, batch, lr):
    x, y = hashed(1, (batch, 3, 32, 32)), tokens(2, (batch,), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return train(fill(model), optimizer, lambda m, step: F.cross_entropy(m(x), y))


def snapshot():
    model = fill(nn.Linear(20, 1))
    x, y = (hashed(1, (32, 20)) + 1) / 2, (hashed(2, (32, 1)) + 1) / 2
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return train(model, optimizer, lambda m, step: F.mse_loss(m(x), y))


def chargpt():
    model = fill(Gpt(65, 2, 2, 32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, betas=(0.9, 0.95))

    def loss_of(m, step):
        x = tokens(10 + step % 5, (4, 17), 65)
        loss = F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        return loss

    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    answers = {
        "transformer": transformer(),
        "cifar10_cnn": images(Net(), 16, 1e-2),
        "cifar10_resnet18": images(ResNet18(), 4, 1e-5),
        "snapshot": snapshot(),
        "chargpt": chargpt(),
    }
    if "--check" not in sys.argv:
        OUT.write_text(json.dumps(answers, indent=1) + "\n")
        return
    for name, losses in json.loads(OUT.read_text()).items():
        if not np.allclose(losses, answers[name], rtol=1e-4):
            sys.exit(f"training.json differs from what this PyTorch gives for {name}")


main()
