"""Programs of pytorch/examples that need sparse tensors and graphs, unmodified, on PyTorch and on Rushlight: gcn and gat.

    PYTHON tests/differential/examples.py SOURCES [NAME ...] [--reference PYTHON] [--epochs 20]

with a Python that has numpy, and with the front built or installed. SOURCES is a checkout or a git directory of github.com/pytorch/examples; nothing of it is
part of this project. ``--reference`` is a Python that has PyTorch (this one by default). The data set is a generated graph in Cora's format, handed over in place of the
download; random numbers, which differ, come from formulas on both sides. Compares every number that the programs print, but times.
"""

import argparse
import io
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
FRONT = HERE.parents[1] / "bindings" / "python" / "python"
PROGRAMS = {"gcn": ["--dropout-p", "0", "--val-every", "1", "--include-bias"], "gat": ["--dropout-p", "0", "--val-every", "1", "--num-heads", "2", "--hidden-dim", "8"]}
NODES, FEATURES, CLASSES = 1800, 24, 5


def source(sources, name):
    """The text of a program, from a checkout or a git directory."""
    if (sources / name / "main.py").is_file():
        return (sources / name / "main.py").read_text(encoding="utf-8")
    return subprocess.run(["git", f"--git-dir={sources}", "show", f"HEAD:{name}/main.py"], capture_output=True, text=True, check=True).stdout


def graph(folder):
    """A graph as the files ``cora.content`` and ``cora.cites``, and as an archive of them. Nodes of a class share words and cite one another."""
    (folder / "cora").mkdir()
    lines, cites = [], []
    for node in range(NODES):
        kind = node * 7 % CLASSES
        words = [int((node * 31 + word * 17) % 11 < (6 if word % CLASSES == kind else 1)) for word in range(FEATURES)]
        lines.append("\t".join(map(str, [1000 + node * 3, *words, f"class_{kind}"])))
        cites += [(node, (node + CLASSES * step) % NODES) for step in (1, 3)] + [(node, (node * 13 + 5) % NODES)]
    (folder / "cora" / "cora.content").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "cora" / "cora.cites").write_text("".join(f"{1000 + a * 3}\t{1000 + b * 3}\n" for a, b in cites if a != b), encoding="utf-8")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder / "cora", "cora")
    return packed.getvalue()


def child(name, folder, epochs):
    """Runs a program in this process."""
    import torch

    drawn = [0]

    def fill(tensor, *options, **more):
        drawn[0] += 1
        values = torch.arange(tensor.numel(), dtype=torch.float64).mul(0.7310585).add(drawn[0] * 0.37).sin().mul(0.2)
        with torch.no_grad():
            return tensor.copy_(values.reshape(tensor.shape))

    def permuted(n, **options):
        step = next(k for k in range(n // 3 + 1, n) if math.gcd(k, n) == 1)
        return (torch.arange(n) * step + 1).remainder(n)

    class Answer:
        raw = io.BytesIO((folder / "cora.tgz").read_bytes())

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return False

    sys.modules["requests"] = types.SimpleNamespace(get=lambda *args, **options: Answer())
    torch.nn.init.xavier_normal_, torch.randperm = fill, permuted
    os.chdir(folder)
    sys.argv = [f"{name}.py", *PROGRAMS[name], "--epochs", str(epochs), "--no-accel"]
    exec(compile((folder / f"{name}.py").read_text(encoding="utf-8"), f"{name}.py", "exec"), {"__name__": "__main__"})


def printed(text):
    """The numbers of a program's lines, times left out."""
    lines = [re.sub(r"\([0-9.]+s\)", "", line) for line in text.splitlines()]
    return [[float(number) for number in re.findall(r"(?<![\w.])-?\d+\.\d+(?![\w.])", line)] for line in lines if re.search(r"loss", line)]


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--reference", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    failed = False
    for name in options.names:
        found = []
        for command in ([options.reference], [sys.executable, "-m", "rushlight"]):
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                (folder / f"{name}.py").write_text(source(options.sources, name), encoding="utf-8")
                (folder / "cora.tgz").write_bytes(graph(folder))
                environment = {**os.environ, "PYTHONPATH": str(FRONT) if len(command) > 1 else ""}
                run = subprocess.run([*command, __file__, "--child", name, str(folder), str(options.epochs)], capture_output=True, text=True, env=environment)
                if run.returncode:
                    print(f"{name}: {' '.join(command)} failed:\n{run.stderr[-1500:]}")
                found.append(printed(run.stdout))
        theirs, mine = found
        apart = [abs(a - b) for x, y in zip(theirs, mine) for a, b in zip(x, y)]
        agrees = len(theirs) == len(mine) == options.epochs + 1 and max(apart) < 2e-3
        failed |= not agrees
        print(json.dumps({"program": name, "lines": [len(theirs), len(mine)], "largest difference": max(apart, default=None), "last": mine[-1] if mine else None, "agrees": agrees}))
    sys.exit(failed)


if __name__ == "__main__":
    main()
