"""One rank of the distributed benchmark in PyTorch (Gloo), with the cases of bench/src/bin/dist.rs; or, without RANK, both sides side by side."""
import os
import statistics
import subprocess
import sys
import time


def worker():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    def measure(name, repetitions, step):
        if os.environ.get("RUSHLIGHT_BENCH_FILTER", "") not in name:
            return
        for _ in range(repetitions // 10 + 2):
            step()
        dist.barrier()
        times = []
        for _ in range(repetitions):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e6)
        if dist.get_rank() == 0:
            print(name, *(f"{t:.2f}" for t in times), flush=True)

    for name, elements, repetitions in [("all_reduce_8B", 2, 2000), ("all_reduce_1MiB", 1 << 18, 300), ("all_reduce_64MiB", 1 << 24, 15)]:
        x = torch.ones(elements)
        measure(name, repetitions, lambda: dist.all_reduce(x))
    x, y = torch.randn(32, 20), torch.randn(32, 1)
    for name, wrap in [("linear_plain", lambda m: m), ("linear_ddp", DistributedDataParallel)]:
        model = wrap(torch.nn.Linear(20, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step():
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

        measure(name, 1000, step)
    x, y = torch.rand(32, 1, 512), torch.rand(32, 20, 512)
    for name, wrap in [("transformer_plain", lambda m: m), ("transformer_ddp", DistributedDataParallel)]:
        model = wrap(torch.nn.Transformer(batch_first=True))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def step():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x, y), y).backward()
            optimizer.step()

        measure(name, 5, step)
    dist.destroy_process_group()


def run(command, port):
    """Medians of one run of two ranks, by case, in microseconds."""
    ranks = []
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RUSHLIGHT_NUM_THREADS="1", OMP_NUM_THREADS="1")
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    texts = [rank.communicate(timeout=600)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{command[0]} failed")
    lines = [line.split() for line in texts[0].splitlines()]
    return {line[0]: statistics.median(map(float, line[1:])) for line in lines}


def main():
    binary, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    theirs, ours = [], []
    for i in range(rounds):
        theirs.append(run([sys.executable, __file__], 29600 + 2 * i))
        ours.append(run([binary], 29601 + 2 * i))
    for side in theirs + ours:
        if "linear_ddp" in side and "linear_plain" in side:
            side["linear_ddp_overhead"] = side["linear_ddp"] - side["linear_plain"]
    print(f"{'case':<22}{'gloo, µs':>12}{'ours, µs':>12}{'ratio':>8}   (medians of {rounds} rounds; the ratio is the median over rounds)")
    for case in ours[0]:
        a, b = [side[case] for side in theirs], [side[case] for side in ours]
        ratio = statistics.median(x / y for x, y in zip(a, b))
        print(f"{case:<22}{statistics.median(a):>12.1f}{statistics.median(b):>12.1f}{ratio:>8.2f}")


if __name__ == "__main__":
    worker() if "RANK" in os.environ else main()
