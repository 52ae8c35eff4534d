#!/usr/bin/env python3
"""Writes the golden files of the tensor crate's tests: PyTorch's answers, op by op.

Example:
    python tests/goldens/make.py                  # regenerate every file
    python tests/goldens/make.py pool conv        # only these families
    python tests/goldens/make.py --check          # compare with the committed files, exit 1 on a difference
"""

import argparse
import importlib
import json
import pathlib
import sys
import warnings

import safetensors
import safetensors.torch
import torch

from cases import display, promotion
from family import Family, close, worst

DATA = pathlib.Path(__file__).resolve().parent / "data"
FAMILIES = ["pointwise", "activation", "binary", "compare", "ternary", "reduce", "scan", "sort", "index", "scatter",
            "shape", "pad", "matmul", "conv", "pool", "norm", "loss", "attention", "resize", "linalg", "creation"]
TABLES = {"display": display.table, "promotion": promotion.table}


def build(name):
    family = Family(name)
    importlib.import_module(f"cases.{name}").build(family)
    return family


def differences(family, path):
    """What differs between a freshly made family and its file; numbers within a case's tolerance do not."""
    if not path.exists():
        return [f"{path.name} is missing"]
    with safetensors.safe_open(path, "pt") as file:
        old_cases = {case["id"]: case for case in json.loads(file.metadata()["cases"])}
        old = {name: file.get_tensor(name) for name in file.keys()}
    found = [f"{case_id} is in the file only" for case_id in old_cases.keys() - {c["id"] for c in family.cases}]
    for case in family.cases:
        if old_cases.get(case["id"]) != case:
            found.append(f"{case['id']} is new or called differently")
            continue
        for name in names_in(case):
            if not close(family.tensors[name], old[name], case["rtol"], case["atol"]):
                found.append(f"{case['id']} tensor {name}: {worst(family.tensors[name], old[name])}")
    return found


def names_in(case):
    """Every stored tensor a case mentions."""
    def walk(node):
        if isinstance(node, dict):
            for key, value in node.items():
                yield from [value] if key == "tensor" else walk(value)
        elif isinstance(node, list):
            for value in node:
                yield from walk(value)
    def flat(node):
        for value in node:
            yield from flat(value) if isinstance(value, list) else [] if value is None else [value]
    grad = case["grad"] or {"dy": [], "dx": []}
    return [*walk(case["inputs"]), *walk(case["kwargs"]), *case["outputs"], *flat(grad["dy"]), *flat(grad["dx"])]


def summary(families, sizes):
    for family in families:
        print(f"\n{family.name} ({sizes[family.name] / 1024:.0f} KiB)")
        cells = [f"{op} {count}" for op, count in sorted(family.counts.items())]
        width = max(map(len, cells)) + 2
        columns = 120 // width
        for start in range(0, len(cells), columns):
            print("  " + "".join(cell.ljust(width) for cell in cells[start:start + columns]).rstrip())
    ops = {op for family in families for op in family.counts}
    cases = sum(len(family.cases) for family in families)
    print(f"\n{cases} cases of {len(ops)} ops, {sum(sizes.values()) / 1024 / 1024:.2f} MiB in {len(sizes)} files")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="families or tables to make (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the committed files differ")
    args = parser.parse_args()
    known = FAMILIES + list(TABLES)
    if unknown := set(args.name) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = args.name or known

    torch.set_num_threads(1)  # the order of summation, and so the last bits, must not depend on the machine
    warnings.simplefilter("ignore")
    DATA.mkdir(exist_ok=True)
    problems, families, sizes = [], [], {}
    for name in chosen:
        if name in TABLES:
            text = TABLES[name]()
            path = DATA / f"{name}.json"
            sizes[name] = len(text)
            if not args.check:
                path.write_text(text)
            elif not path.exists() or path.read_text() != text:
                problems.append(f"{path.name} differs")
            continue
        family = build(name)
        families.append(family)
        path = DATA / f"{name}.safetensors"
        problems += family.complaints
        content = family.to_bytes()
        sizes[name] = len(content)
        if args.check:
            problems += differences(family, path)
        else:
            path.write_bytes(content)
    summary(families, sizes)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
