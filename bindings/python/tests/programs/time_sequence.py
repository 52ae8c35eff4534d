"""Learns sine waves and predicts further, in the manner of pytorch/examples: LSTM cells, LBFGS, doubles."""
from __future__ import print_function
import argparse
import torch
import torch.nn as nn
import torch.optim as optim
import numpy as np

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    plt = None


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 21)
        self.lstm2 = nn.LSTMCell(21, 21)
        self.linear = nn.Linear(21, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 21, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 21, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 21, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 21, dtype=torch.double)

        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        outputs = torch.cat(outputs, dim=1)
        return outputs


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2, help="steps to run")
    opt = parser.parse_args()
    np.random.seed(2)
    T, L, N = 20, 60, 12
    x = np.empty((N, L), "int64")
    x[:] = np.array(range(L)) + np.random.randint(-4 * T, 4 * T, N).reshape(N, 1)
    data = np.sin(x / 1.0 / T).astype("float64")
    torch.save(data, open("traindata.pt", "wb"))
    np.random.seed(0)
    torch.manual_seed(0)
    data = torch.load("traindata.pt", weights_only=False)
    input = torch.from_numpy(data[3:, :-1])
    target = torch.from_numpy(data[3:, 1:])
    test_input = torch.from_numpy(data[:3, :-1])
    test_target = torch.from_numpy(data[:3, 1:])
    seq = Sequence()
    seq.double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8)
    losses = []
    for i in range(opt.steps):
        print("STEP: ", i)

        def closure():
            optimizer.zero_grad()
            out = seq(input)
            loss = criterion(out, target)
            print("loss:", loss.item())
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
        with torch.no_grad():
            future = 30
            pred = seq(test_input, future=future)
            loss = criterion(pred[:, :-future], test_target)
            print("test loss:", loss.item())
            losses.append(loss.item())
            y = pred.detach().numpy()
        if plt is not None:
            plt.figure(figsize=(30, 10))
            plt.plot(np.arange(input.size(1)), y[0][:input.size(1)], "r", linewidth=2.0)
            plt.savefig("predict%d.pdf" % i)
            plt.close()
    assert y.shape == (3, 59 + 30) and losses[-1] < losses[0] / 5
