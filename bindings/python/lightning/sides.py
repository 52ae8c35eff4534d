"""What the comparisons share: the two Pythons, a program's outcome as JSON, and where two outcomes differ."""

import argparse
import json
import math
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    """A parser with the options that say where Rushlight and, if wanted, PyTorch are installed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rushlight", required=True, metavar="PYTHON")
    parser.add_argument("--reference", metavar="PYTHON")
    parser.add_argument("--reference-path", metavar="FOLDER", help="an older Lightning for the reference")
    return parser


def environment(path=None, **variables):
    """The variables of a run without GPUs; over an older Lightning if its folder is given."""
    older = {"PYTHONPATH": path, "RUSHLIGHT_LIGHTNING_PACKAGE": "pytorch_lightning"} if path else {}
    return dict(os.environ, CUDA_VISIBLE_DEVICES="", **older, **variables)


def outcome(command, variables, timeout):
    """What a program wrote to the file in the place of TARGET among its words, or nothing and the end of what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "outcome.json")
        command = [target if word == "TARGET" else word for word in command]
        try:
            done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return None, f"not done after {timeout} s"
        if done.returncode or not os.path.exists(target):
            return None, (done.stdout + done.stderr)[-1500:]
        with open(target) as file:
            return json.load(file), ""


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
