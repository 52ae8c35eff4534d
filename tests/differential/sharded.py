"""FSDP2 and tensor parallelism beside PyTorch's over gloo, same weights and data: losses within 1e-5, and the time of a step.

``python tests/differential/sharded.py``, with a Python that has PyTorch. ``RUSHLIGHT_PACKAGE`` names the folder of the package, the source's by default.
"""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "bindings/python/tests/sharded_ranks.py"


def run(peer, size, what="losses"):
    """What rank 0 prints."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    package = os.environ.get("RUSHLIGHT_PACKAGE", str(ROOT / "bindings/python/python"))
    env = os.environ | {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SHARDED_PEER": peer}
    env |= {"OMP_NUM_THREADS": "1", "RUSHLIGHT_NUM_THREADS": "1", "RUSHLIGHT_JOB_SECRET": secrets.token_hex(16), "PYTHONPATH": package}
    ranks = [
        subprocess.Popen([sys.executable, str(PROGRAM), what], env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE, text=True)
        for r in range(size)
    ]
    printed = [rank.communicate(timeout=300)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{peer} on {size} ranks: exit codes {[rank.returncode for rank in ranks]}")
    return json.loads(printed[0].strip().splitlines()[-1])


def main():
    worst = 0.0
    for size in (2, 4):
        theirs, ours = run("torch", size), run("rushlight", size)
        for name, expected in theirs.items():
            difference = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours[name], expected, strict=True))
            worst = max(worst, difference)
            print(f"{name} on {size} ranks: {len(expected)} losses, largest difference {difference:.1e}")
    theirs, ours = run("torch", 2, "speed"), run("rushlight", 2, "speed")
    print(f"step of FSDP2 on 2 ranks: {ours['step'] * 1e3:.1f} ms, PyTorch's {theirs['step'] * 1e3:.1f} ms, ratio {theirs['step'] / ours['step']:.2f}")
    if worst > 1e-5:
        raise SystemExit(f"losses differ by {worst:.1e}")


if __name__ == "__main__":
    main()
