"""What Python programs feel: against PyTorch, and against the same models in Rust, each in one run.

    python bindings/python/bench.py --torch /path/to/python-with-torch [--ours /path/to/python-with-rushlight] [--rust target/release/rushlight-bench]

Small things are the best of several rounds, in another process per library, on two threads. Training steps are timed in turns with the Rust
program's: a ratio is ours over Rust's in the same round, the median over the rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
THREADS = 2
#: Cases of `rushlight-bench` that are programs.
STEPS = (
    "train_transformer_f32 train_transformer_bf16 train_chargpt_f32 train_chargpt_bf16 train_cnn_f32 train_resnet18_f32 train_resnet18_bf16 "
    "train_linear_f32 lstm_64x32x512 gru_64x32x512"
).split()

PROGRAM = r"""
import importlib.util, json, sys, time, timeit
name = sys.argv[1]
if name == "rushlight" and importlib.util.find_spec(name) is None:
    sys.path.insert(0, sys.argv[2])
start = time.perf_counter()
if name == "rushlight":
    import rushlight as torch
else:
    import torch
spent = {"import": time.perf_counter() - start}
import re
spent["memory after import (MB)"] = int(re.search(r"VmRSS:\s*(\d+)", open("/proc/self/status").read())[1]) / 1024
from importlib import import_module
nn, F = import_module(name + ".nn"), import_module(name + ".nn.functional")
torch.set_num_threads(2)
torch.manual_seed(0)

def best(f, number, rounds=7):
    f()
    return min(timeit.repeat(f, number=number, repeat=rounds)) / number

a, b = torch.randn(8), torch.randn(8)
spent["a + b, 8 floats"] = best(lambda: a + b, 20000)
spent["a.add(b)"] = best(lambda: a.add(b), 20000)
spent["torch.relu(a)"] = best(lambda: torch.relu(a), 20000)
spent["a[1:3]"] = best(lambda: a[1:3], 20000)
spent["a.view(2, 4)"] = best(lambda: a.view(2, 4), 20000)
spent["a.sum()"] = best(lambda: a.sum(), 20000)
spent["a.shape"] = best(lambda: a.shape, 20000)
spent["torch.zeros(3, 4)"] = best(lambda: torch.zeros(3, 4), 20000)

layer = nn.Linear(20, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
x, y = torch.randn(32, 20), torch.randn(32, 1)
def step():
    optimizer.zero_grad()
    F.mse_loss(layer(x), y).backward()
    optimizer.step()
spent["Linear(20, 1) SGD step"] = best(step, 1000)

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
adam = torch.optim.AdamW(net.parameters(), lr=1e-3)
images, labels = torch.randn(128, 64), torch.randint(0, 10, (128,))
def train():
    adam.zero_grad()
    F.cross_entropy(net(images), labels).backward()
    adam.step()
spent["MLP AdamW step, batch 128"] = best(train, 100)
print(json.dumps(spent))
"""


def measure(python, name):
    results = []
    # The second run finds files in the cache, for both.
    for _ in range(2):
        run = subprocess.run([python, "-c", PROGRAM, name, str(HERE / "python")], capture_output=True, text=True, check=True)
        results.append(json.loads(run.stdout.splitlines()[-1]))
    return {key: min(r[key] for r in results) for key in results[0]}


def prepare(name):
    """A closure that runs one of the steps, in the form that the Rust program has it."""
    import torch
    import torch.nn.functional as F
    import torch_models as models

    kind, _, rest = name.partition("_")
    if kind in ("lstm", "gru"):
        steps, batch, features = map(int, rest.split("x"))
        net, x = getattr(torch.nn, kind.upper())(features, features, num_layers=2), torch.randn(steps, batch, features)

        def both():
            out, _ = net(x)
            net.zero_grad()
            out.sum().backward()

        return both
    model, precision = rest.split("_")
    if model == "linear":
        return models.linear()
    if model == "transformer":
        net, x, y = torch.nn.Transformer(batch_first=True), torch.rand(32, 1, 512), torch.rand(32, 20, 512)
        optimizer, loss = torch.optim.Adam(net.parameters(), lr=1e-3), lambda: F.cross_entropy(net(x, y), y)
    elif model == "chargpt":
        net, x, y = models.Gpt(65, 6, 6, 384, 256), torch.randint(0, 65, (16, 256)), torch.randint(0, 65, (16 * 256,))
        optimizer, loss = torch.optim.AdamW(net.parameters(), lr=3e-4), lambda: F.cross_entropy(net(x).flatten(0, 1), y)
    else:
        batch = 512 if model == "cnn" else 64
        net, x, y = models.Net() if model == "cnn" else models.ResNet18(), torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
        optimizer, loss = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9), lambda: F.cross_entropy(net(x), y)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            value = loss()
        value.backward()
        optimizer.step()
        value.item()

    return step


def serve():
    """Answers `time CASE REPEATS` on standard input as `rushlight-bench` does, with the seconds of one repeat."""
    import importlib.util

    if importlib.util.find_spec("rushlight") is None:
        sys.path.insert(0, str(HERE / "python"))
    import rushlight

    rushlight.install()
    rushlight.set_num_threads(THREADS)
    sys.path.insert(0, str(HERE.parent.parent / "bench"))
    name = case = None
    for line in sys.stdin:
        _, wanted, repeats = line.split()
        if wanted != name:
            case = None
            name, case = wanted, prepare(wanted)
        start = time.perf_counter()
        for _ in range(int(repeats)):
            case()
        print((time.perf_counter() - start) / int(repeats), flush=True)


class Side:
    """A process that times cases."""

    def __init__(self, *command):
        environment = {**os.environ, "RUSHLIGHT_NUM_THREADS": str(THREADS)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def time(self, name, repeats):
        self.process.stdin.write(f"time {name} {repeats}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"{self.process.args[0]} stopped while timing '{name}'")
        return float(answer)


def compare_steps(rust, python, rounds, only):
    rust, python = Side(rust), Side(python, __file__, "--serve")
    print(f"{'':30} {'Rust':>12} {'Python':>12}  Python / Rust")
    for name in (n for n in STEPS if only in n):
        for side in (rust, python):
            side.time(name, 2)
        repeats = max(1, min(20000, int(0.1 / rust.time(name, 2))))
        pairs = []
        for _ in range(rounds):
            pairs.append((rust.time(name, repeats), python.time(name, repeats)))
        a, b = (statistics.median(side) for side in zip(*pairs))
        print(f"{name:30} {a * 1e3:9.3f} ms {b * 1e3:9.3f} ms  {statistics.median(q / p for p, q in pairs):5.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="a Python that has torch: small things beside PyTorch's")
    parser.add_argument("--ours", default=sys.executable, help="a Python that runs rushlight (installed, or from the tree)")
    parser.add_argument("--rust", help="the built rushlight-bench: training steps beside Rust's")
    parser.add_argument("--rounds", type=int, default=7, help="how often each side is timed (default 7)")
    parser.add_argument("--only", default="", help="only the training steps whose name contains this")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve()
    if args.torch:
        theirs, ours = measure(args.torch, "torch"), measure(args.ours, "rushlight")
        print(f"{'':30} {'PyTorch':>12} {'rushlight':>12}  ratio")
        for key in theirs:
            unit, factor = (("MB", 1) if "MB" in key else ("us", 1e6) if theirs[key] < 0.05 else ("ms", 1e3))
            print(f"{key:30} {theirs[key] * factor:9.2f} {unit} {ours[key] * factor:9.2f} {unit}  {theirs[key] / ours[key]:5.1f}")
    if args.rust:
        compare_steps(args.rust, args.ours, args.rounds, args.only)
    return None


if __name__ == "__main__":
    sys.exit(main())
