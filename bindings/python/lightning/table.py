"""Runs the features over Rushlight and over PyTorch and prints a table.

    table.py --rushlight PYTHON [--reference PYTHON] [--reference-path FOLDER] [NAME ...]

The exit status says whether every feature that works over PyTorch has the same outcome over Rushlight.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def run(python, names, program, path=None):
    """The outcomes of the features by name, and how long they took."""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "outcomes.json")
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
        if path:
            environment.update(PYTHONPATH=path, RUSHLIGHT_LIGHTNING_PACKAGE="pytorch_lightning")
        begun = time.time()
        done = subprocess.run([python, os.path.join(HERE, program), target, *names], env=environment, cwd=folder, capture_output=True, text=True, timeout=3600)
        if not os.path.exists(target):
            return {"version": "?", "features": {}, "failure": (done.stdout + done.stderr)[-1500:]}, time.time() - begun
        with open(target) as file:
            return json.load(file), time.time() - begun


def differs(a, b, where=""):
    """Where two outcomes differ, or nothing. Numbers may be apart by rounding."""
    if isinstance(a, bool) or isinstance(b, bool) or type(a) is not type(b) and not {type(a), type(b)} <= {int, float}:
        return "" if a == b else f"{where}: {a!r} and {b!r}"
    if isinstance(a, (int, float)):
        close = a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= 2e-3 * max(abs(a), abs(b)) + 1e-5
        return "" if close else f"{where}: {a!r} and {b!r}"
    if isinstance(a, dict):
        if sorted(a) != sorted(b):
            return f"{where}: {sorted(a)} and {sorted(b)}"
        return next(filter(None, (differs(a[key], b[key], f"{where}.{key}") for key in a)), "")
    if isinstance(a, list):
        if len(a) != len(b):
            return f"{where}: {len(a)} and {len(b)} entries"
        return next(filter(None, (differs(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b)))), "")
    return "" if a == b else f"{where}: {a!r} and {b!r}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rushlight", required=True)
    parser.add_argument("--reference")
    parser.add_argument("--reference-path")
    parser.add_argument("--program", default="features.py")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    ours, seconds = run(args.rushlight, args.names, args.program)
    theirs, reference_seconds = run(args.reference, args.names, args.program, args.reference_path) if args.reference else (None, 0)
    if "failure" in ours:
        sys.exit(ours["failure"])
    if theirs is not None and "failure" in theirs:
        print(f"the reference does not run, so there is nothing to compare with:\n{theirs['failure'][-400:]}\n")
        theirs = None
    print(f"Lightning {ours['version']} over Rushlight ({seconds:.0f} s)" + (f" and over PyTorch {theirs['torch']} ({reference_seconds:.0f} s)" if theirs else ""))
    good = failed = 0
    for name, found in ours["features"].items():
        known = theirs["features"].get(name) if theirs else None
        if known is not None and "error" in known:
            # What PyTorch's own version cannot do is no requirement; the same kind of error is the same outcome.
            kinds = [outcome.get("error", "").split(":")[0] for outcome in (known, found)]
            word = "same error" if kinds[0] == kinds[1] else f"PyTorch fails: {known['error'][:100]}"
            good += kinds[0] == kinds[1] or "error" not in found
            failed += kinds[0] != kinds[1] and "error" in found
        elif "error" in found:
            word, failed = f"FAILED: {found['error'][:160]}", failed + 1
        elif known is None:
            word, good = "runs", good + 1
        else:
            difference = differs(known["outcome"], found["outcome"], name)
            word = f"DIFFERS {difference[:200]}" if difference else "same outcome"
            good, failed = good + (not difference), failed + bool(difference)
        print(f"  {name:<44} {word}")
    print(f"{good} of {good + failed} features")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
