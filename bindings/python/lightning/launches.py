"""Data parallel by every way of starting ranks, over Rushlight and over PyTorch.

    launches.py --rushlight PYTHON [--reference PYTHON] [--reference-path FOLDER] [--program BINARY]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from table import differs

RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks.py")


def run(command, environment):
    """What rank 0 wrote, or the end of what was printed."""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "outcome.json")
        command = [target if part == "TARGET" else part for part in command]
        try:
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return None, "not done after 300 s"
        if done.returncode or not os.path.exists(target):
            return None, (done.stdout + done.stderr)[-600:]
        with open(target) as file:
            return json.load(file), ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rushlight", required=True)
    parser.add_argument("--reference")
    parser.add_argument("--reference-path")
    parser.add_argument("--binary", help="the program rushlight")
    args = parser.parse_args()
    ways = {
        "ddp, ranks by Lightning": [RANKS, "TARGET"], "ddp_spawn": [RANKS, "TARGET", "--strategy", "ddp_spawn"],
        "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2", RANKS, "TARGET"],
    }
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    known = None
    if args.reference:
        old = {"PYTHONPATH": args.reference_path, "RUSHLIGHT_LIGHTNING_PACKAGE": "pytorch_lightning"} if args.reference_path else {}
        with_path = dict(environment, **old)
        known, why = run([args.reference, *ways["ddp, ranks by Lightning"]], with_path)
        print(f"  {'PyTorch, ranks by Lightning':<44} {known or 'does not run: ' + why}")
    failed = 0
    commands = {name: [args.rushlight, *way] for name, way in ways.items()}
    if args.binary:
        commands["rushlight run"] = [args.binary, "run", "--nproc-per-node", "2", args.rushlight, RANKS, "TARGET"]
    for name, command in commands.items():
        found, why = run(command, environment)
        known = known or found
        difference = why if found is None else differs(known, found, name)
        failed += bool(difference)
        print(f"  {name:<44} {'FAILED ' + difference if difference else 'same outcome'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
