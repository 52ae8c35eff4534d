"""What Python programs feel, here and with PyTorch, in one run.

    python bindings/python/bench.py --torch /path/to/python-with-torch [--ours /path/to/python-with-rushlight]

Each figure is the best of several rounds, in another process per library, on two threads.
"""

import argparse
import json
import pathlib
import subprocess
import sys

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
    tree = str(pathlib.Path(__file__).resolve().parent / "python")
    results = []
    # The second run finds files in the cache, for both.
    for _ in range(2):
        run = subprocess.run([python, "-c", PROGRAM, name, tree], capture_output=True, text=True, check=True)
        results.append(json.loads(run.stdout.splitlines()[-1]))
    return {key: min(r[key] for r in results) for key in results[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True, help="a Python that has torch")
    parser.add_argument("--ours", default=sys.executable, help="a Python that runs rushlight (installed, or from the tree)")
    args = parser.parse_args()
    theirs, ours = measure(args.torch, "torch"), measure(args.ours, "rushlight")
    print(f"{'':30} {'PyTorch':>12} {'rushlight':>12}  ratio")
    for key in theirs:
        unit, factor = (("MB", 1) if "MB" in key else ("us", 1e6) if theirs[key] < 0.05 else ("ms", 1e3))
        print(f"{key:30} {theirs[key] * factor:9.2f} {unit} {ours[key] * factor:9.2f} {unit}  {theirs[key] / ours[key]:5.1f}")


if __name__ == "__main__":
    main()
