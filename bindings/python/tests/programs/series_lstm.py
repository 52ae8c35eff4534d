"""An LSTM that continues sine waves, trained with L-BFGS, and one with packed sequences and early stopping."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

np.random.seed(0)
torch.manual_seed(0)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 16)
        self.lstm2 = nn.LSTMCell(16, 16)
        self.linear = nn.Linear(16, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 16, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 16, dtype=torch.double)
        h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(c_t)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


phase = np.random.randint(-20, 20, 6).reshape(6, 1)
data = np.sin((np.arange(40) + phase) / 4.0).astype("float64")
input, target = torch.from_numpy(data[1:, :-1]), torch.from_numpy(data[1:, 1:])
seq = Sequence()
seq.double()
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=6)
history = []
for i in range(4):

    def closure():
        optimizer.zero_grad()
        out = seq(input)
        loss = criterion(out, target)
        history.append(loss.item())
        loss.backward()
        return loss

    optimizer.step(closure)
with torch.no_grad():
    pred = seq(torch.from_numpy(data[:1, :-1]), future=10)
    y = pred.detach().numpy()
assert y.shape == (1, 49)
print("sine", history[0], "->", history[-1])
assert history[-1] < 0.2 * history[0]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 8, padding_idx=0)
        self.rnn = nn.GRU(8, 16, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 2))

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        mask = (torch.arange(out.size(1))[None, :] < lengths[:, None]).unsqueeze(-1)
        return self.head((out * mask).sum(1) / lengths.unsqueeze(1))


rows = [torch.randint(1, 12, (n,)) for n in torch.randint(3, 9, (64,)).tolist()]
lengths = torch.tensor([len(r) for r in rows])
tokens = pad_sequence(rows, batch_first=True)
labels = torch.tensor([int((r > 6).float().mean() > 0.5) for r in rows])
model = Tagger()
optimizer = optim.AdamW(model.parameters(), lr=1e-2)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
best = math.inf
for epoch in range(25):
    model.train()
    optimizer.zero_grad()
    loss = nn.CrossEntropyLoss(label_smoothing=0.05)(model(tokens, lengths), labels)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    assert torch.isfinite(norm)
    optimizer.step()
    scheduler.step(loss.item())
    best = min(best, loss.item())
model.eval()
accuracy = (model(tokens, lengths).argmax(-1) == labels).float().mean().item()
print(f"tagger {best:.3f} {accuracy:.2f}")
assert accuracy > 0.9
