"""FSDP2, tensor and pipeline parallelism and their compositions beside PyTorch's over gloo, same weights and data: losses within 1e-5.

``python tests/differential/sharded.py [2 4 8]``, with a Python that has PyTorch; the numbers are those of ranks. ``--speed ROUNDS`` instead measures a step of FSDP2 on
two ranks, the peers in turn, prints the ratios, and times asynchronous tensor parallelism. ``RUSHLIGHT_PACKAGE`` names the folder of the package, the source's by default.
"""

import json
import os
import pathlib
import secrets
import socket
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
TESTS = ROOT / "bindings/python/tests"


def run(peer, size, what="losses", program="sharded_ranks.py", timeout=300):
    """What rank 0 prints."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    package = os.environ.get("RUSHLIGHT_PACKAGE", str(ROOT / "bindings/python/python"))
    env = os.environ | {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SHARDED_PEER": peer}
    env |= {"OMP_NUM_THREADS": "1", "RUSHLIGHT_NUM_THREADS": "1", "RUSHLIGHT_JOB_SECRET": secrets.token_hex(16), "PYTHONPATH": package}
    ranks = [
        subprocess.Popen([sys.executable, str(TESTS / program), what], env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE, text=True)
        for r in range(size)
    ]
    printed = [rank.communicate(timeout=timeout)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{peer} on {size} ranks: exit codes {[rank.returncode for rank in ranks]}")
    return json.loads(printed[0].strip().splitlines()[-1])


def compared(size):
    """The largest difference of losses, relative where they are above 1."""
    worst = 0.0
    for what, program in (("losses", "sharded_ranks.py"), ("compositions", "composed_ranks.py")):
        theirs, ours = run("torch", size, what, program, 900), run("rushlight", size, what, program, 900)
        for name, expected in theirs.items():
            difference = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours[name], expected, strict=True))
            worst = max(worst, difference)
            print(f"{name} on {size} ranks: {len(expected)} losses, largest difference {difference:.1e}", flush=True)
    return worst


def speed(rounds):
    """PyTorch's time of a step over ours, the peers in turn."""
    ratios, used = [], []
    for _ in range(rounds):
        theirs, ours = run("torch", 2, "speed"), run("rushlight", 2, "speed")
        ratios.append(theirs["step"] / ours["step"])
        used.append(theirs["cpu"] / ours["cpu"])
        print(f"step of FSDP2 on 2 ranks: {ours['step'] * 1e3:.1f} ms, PyTorch's {theirs['step'] * 1e3:.1f} ms, ratio {ratios[-1]:.2f}; of CPU time {used[-1]:.2f}", flush=True)
    both = run("rushlight", 2, "overlap_speed")
    print(f"tensor-parallel layer on 2 ranks: {both['plain'] * 1e3:.1f} ms, with overlapped communication {both['overlapped'] * 1e3:.1f} ms, ratio {both['ratio']:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}, of CPU time {statistics.median(used):.2f}")


def main():
    if sys.argv[1:2] == ["--speed"]:
        return speed(int(sys.argv[2]))
    worst = max(compared(size) for size in map(int, sys.argv[1:] or ("2", "4", "8")))
    if worst > 1e-5:
        raise SystemExit(f"losses differ by {worst:.1e}")


if __name__ == "__main__":
    main()
