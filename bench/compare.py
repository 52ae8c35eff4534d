"""Rushlight against PyTorch, both measured in one run.

Each case is timed in both programs in turn, several times over, so that a slow moment of the machine hits both. The ratio
is PyTorch's time over ours in the same round, the median over the rounds: above 1 we are ahead. Single ops (`op_…`) run on
one thread.
"""

import argparse
import atexit
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

#: Set by --threads; children inherit it.
THREADS = int(os.environ.get("BENCH_THREADS", 2))


def torch_cases():
    """Name prefix -> function of the rest of the name that prepares a case and returns its closure."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)

    def leaf(*shape):
        return torch.randn(*shape, requires_grad=True)

    def operands(rest):
        dtype, sizes = rest.split("_")
        m, k, n = map(int, sizes.split("x"))
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        return torch.randn(m, k).to(kind), torch.randn(k, n).to(kind)

    def matmul(rest):
        a, b = operands(rest)
        return lambda: torch.mm(a, b)

    def linear(rest):
        x, w = operands(rest)
        w = w.t().contiguous()
        return lambda: F.linear(x, w)

    def conv(rest):
        channels, size, kernel, stride = rest.split("_")
        batch, inputs, outputs = map(int, channels.split("x"))
        size, kernel, stride = int(size), int(kernel), int(stride)
        options = {} if stride == 0 else {"stride": stride, "padding": kernel // 2}
        x, w = leaf(batch, inputs, size, size), leaf(outputs, inputs, kernel, kernel)
        dy = torch.randn_like(F.conv2d(x, w, **options))
        return lambda: torch.autograd.grad(F.conv2d(x, w, **options), (x, w), dy)

    def attention(rest):
        shape = list(map(int, rest.split("x")))
        q, k, v = leaf(*shape), leaf(*shape), leaf(*shape)
        dy = torch.randn(*shape)
        return lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), dy)

    def small(rest):
        a, b, w = torch.rand(8), torch.rand(8), torch.rand(8, requires_grad=True)
        if rest == "add_8":
            return lambda: a + b

        def chain():
            z = w
            for _ in range(50):
                z = z * a
                z = z + b
            w.grad = None
            z.sum().backward()

        return chain

    def memory(_):
        x = leaf(2048, 2048)

        def chain():
            y = x
            for _ in range(5):
                y = F.gelu(torch.sin(y * 0.5) + x)
            y.sum().backward()

        return chain

    def memory_bound(name):
        op, size = name.rsplit("_", 1)
        shape = (512 if size == "1M" else 8192, 2048)
        forward, backward = (op[: -len("_backward")], True) if op.endswith("_backward") else (op, False)
        weight, bias, other = leaf(2048), leaf(2048), leaf(*shape)
        if forward in ("rand", "randn"):
            return lambda: getattr(torch, forward)(*shape)
        f = {
            "add": lambda x: x + other,
            "exp": torch.exp,
            "gelu": F.gelu,
            "softmax": lambda x: torch.softmax(x, -1),
            "layer_norm": lambda x: F.layer_norm(x, (2048,), weight, bias),
            "sum": torch.sum,
            "dropout": lambda x: F.dropout(x, 0.1),
        }[forward]
        x = leaf(*shape)
        if backward:
            dy = torch.ones_like(f(x))
            return lambda: torch.autograd.grad(f(x), x, dy)

        def run():
            with torch.no_grad():
                f(x)

        return run

    def train(rest):
        import torch_models

        return torch_models.step(*rest.split("_"))

    def adam(_):
        import torch_models

        return torch_models.adam()

    def recurrent(kind):
        def prepare(rest):
            steps, batch, features = map(int, rest.split("_")[-1].split("x"))
            net, x = getattr(torch.nn, kind)(features, features, num_layers=2), torch.randn(steps, batch, features)

            def forward():
                with torch.no_grad():
                    net(x)

            def both():
                net.zero_grad()
                net(x)[0].sum().backward()

            return forward if rest.startswith("forward") else both

        return prepare

    def op(rest):
        import torch_ops

        torch.set_num_threads(1)
        return torch_ops.prepare(rest)

    def loader(rest):
        from torch.utils.data import DataLoader, TensorDataset

        data = TensorDataset(torch.rand(2048, 1, 512), torch.rand(2048, 20, 512))
        workers = {"num_workers": 2, "persistent_workers": True} if rest.startswith("workers") else {}
        batches = DataLoader(data, batch_size=32, shuffle=True, **workers)

        def epoch():
            for _ in batches:
                pass

        return epoch

    def file(rest):
        state = {f"l{i}.w": torch.randn(2500, 2500) for i in range(20)}
        path = os.path.join(tempfile.gettempdir(), f"torch-bench-{os.getpid()}.pt")
        atexit.register(lambda: os.path.exists(path) and os.remove(path))
        if rest.startswith("save"):
            return lambda: torch.save(state, path)
        if rest.startswith("create"):
            return lambda: (os.path.exists(path) and os.remove(path), torch.save(state, path))
        torch.save(state, path)

        def load():
            for t in torch.load(path, mmap=True).values():
                t.sum()

        return load

    families = {"op": op, "train": train, "lstm": recurrent("LSTM"), "gru": recurrent("GRU"), "adam": adam, "loader": loader, "file": file, "matmul": matmul, "linear": linear, "conv": conv, "attention": attention, "small": small, "memory": memory}

    def prepare(name):
        torch.set_num_threads(THREADS)
        family, _, rest = name.partition("_")
        return families[family](rest) if family in families else memory_bound(name)

    return prepare


class Torch:
    def __init__(self):
        self.prepare, self.name, self.case = torch_cases(), None, None

    def time(self, name, repeats):
        if self.name != name:
            self.case = None
            self.name, self.case = name, self.prepare(name)
        start = time.perf_counter()
        for _ in range(repeats):
            self.case()
        return (time.perf_counter() - start) / repeats


class Ours:
    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "RUSHLIGHT_NUM_THREADS": str(THREADS)})

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"rushlight-bench stopped while answering '{request}'")
        return answer

    def time(self, name, repeats):
        return float(self.ask(f"time {name} {repeats}"))


def repeats_for(side, name):
    """As many repeats as take about 60 ms."""
    side.time(name, 1)
    once = side.time(name, 2)
    return max(1, min(100_000, int(0.06 / max(once, 1e-7))))


def peak_child(name):
    """In a fresh process: the memory a case adds in PyTorch, or all of a program that trains, in bytes."""
    case = torch_cases()(name)
    before = 0 if name.startswith("train_") else int(open("/proc/self/statm").read().split()[1]) * 4096
    for _ in range(3 if name.startswith("train_") else 1):
        case()
    peak = next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]
    print(int(peak) * 1024 - before)


def machine():
    name = platform.processor() or platform.machine()
    try:
        lines = open("/proc/cpuinfo").read().splitlines()
        name = next(l.split(":")[1].strip() for l in lines if l.startswith("model name"))
        flags = next(l for l in lines if l.startswith("flags")).split()
        extra = [f for f in ("avx2", "avx512f", "amx_bf16") if f in flags]
        name += f" ({', '.join(extra)})"
    except (OSError, StopIteration):
        pass
    return name


def human(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def main():
    global THREADS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: bench/run --only matmul --rounds 5")
    parser.add_argument("--binary", help="the built rushlight-bench (bench/run passes it)")
    parser.add_argument("--only", default="", help="run only cases whose name contains this; several separated by commas")
    parser.add_argument("--rounds", type=int, default=7, help="how often each side is timed (default 7)")
    parser.add_argument("--threads", type=int, default=THREADS, help="threads of both sides (default 2); single ops run on one")
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--peak-child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak_child:
        return peak_child(args.peak_child)

    THREADS = args.threads
    os.environ["BENCH_THREADS"] = str(THREADS)
    import torch

    ours = Ours(args.binary)
    theirs = Torch()
    names = ours.ask("list").split()
    wanted = [w for w in args.only.split(",") if w]
    names = [n for n in names if not wanted or any(w in n for w in wanted)]
    print(f"{machine()}, {THREADS} threads, PyTorch {torch.__version__}, {args.rounds} rounds, medians\n")
    print("| case | PyTorch | Rushlight | ratio |\n|---|---|---|---|", flush=True)
    results = []
    for name in names:
        if name.startswith(("memory", "train")):
            child = [sys.executable, os.path.abspath(__file__), "--peak-child", name]
            a = int(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
            b = int(Ours(args.binary).ask(f"peak {name}"))
            print(f"| {name}: peak memory | {a / 2**20:.0f} MiB | {b / 2**20:.0f} MiB | {a / max(b, 1):.2f} |", flush=True)
            results.append({"case": name + ": peak memory", "torch": a, "rushlight": b, "ratio": a / max(b, 1)})
        if name.startswith("memory"):
            continue
        counts = repeats_for(theirs, name), repeats_for(ours, name)
        a, b = [], []
        # PyTorch's idle threads spin for a while; files are written and old ones freed behind both sides' backs.
        after_theirs, after_ours = (0.5, 0.5) if name.startswith("file") else (0.2, 0.002)
        for _ in range(args.rounds):
            a.append(theirs.time(name, counts[0]))
            time.sleep(after_theirs)
            b.append(ours.time(name, counts[1]))
            time.sleep(after_ours)
        ratio = statistics.median(x / y for x, y in zip(a, b))
        a, b = statistics.median(a), statistics.median(b)
        print(f"| {name} | {human(a)} | {human(b)} | {ratio:.2f} |", flush=True)
        results.append({"case": name, "torch": a, "rushlight": b, "ratio": ratio})
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"machine": machine(), "torch": torch.__version__, "results": results}, f, indent=1)


if __name__ == "__main__":
    main()
