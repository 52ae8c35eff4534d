"""Random programs run by PyTorch and by Rushlight: values, dtypes, shapes, strides of views, gradients and exceptions must agree.

    python tests/differential/fuzz.py --programs 2000 --seed 0        with a Python that has torch; the extension built

Prints each new kind of mismatch as a short program, and at the end how many programs agree. ``known.txt`` lists mismatches that stay, with
the reason. Exits with 1 if fewer programs agree than ``--least`` (a share) or one makes a process die.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bindings" / "python" / "python")]
LENGTH = 6
DIED = "PyTorch died"


def known():
    """Patterns of ``known.txt``: a regular expression over ``kind | statement | expected …``, and the reason."""
    lines = (HERE / "known.txt").read_text().splitlines()
    pairs = [line.split("  # ", 1) for line in lines if line.strip() and not line.startswith("#")]
    return [(re.compile(pattern.strip()), reason) for pattern, reason in pairs]


def call(statement):
    """The name of the last function that a statement calls, or its operator."""
    right = statement.split(" = ", 1)[-1] if re.match(r"\w+ = ", statement) else statement
    names = [n for n in re.findall(r"(?:torch|F|linalg|special|\bv\d+|g0|\))\.([a-zA-Z_]\w*)", right) if n not in ("tensor", "linalg")]
    if names and not re.match(r"\w+\[.*\] [-+*/]?=", statement):
        return names[0]
    if re.match(r"\w+\[.*\] [-+*/]?=", statement):
        return "setitem"
    operator = re.search(r" (\*\*|//|[-+*/%&|^@])=? ", right)
    return operator.group(1) if operator else "getitem" if "[" in right else right


def worker(first, count, length):
    """Runs programs and prints their results, one line each, for the parent."""
    import torch

    import evaluate
    import programs

    torch.set_num_threads(1)
    import rushlight as ours

    for seed in range(first, first + count):
        # Written first, so that the parent knows the program at which a process died. PyTorch alone makes the program.
        print(f"? {seed}", flush=True)
        statements = programs.Program(torch, seed, evaluate).make(length)
        print(f"@ {seed}", flush=True)
        mismatch = evaluate.compare(statements, torch, ours)
        if mismatch is None:
            print("=", flush=True)
            continue
        statements, mismatch = evaluate.shrink(statements, torch, ours, mismatch)
        fields = [mismatch.kind, statements[-1], *statements[:-1], f"expected {mismatch.expected}", f"found    {mismatch.found}"]
        print("! " + repr(fields), flush=True)


def results(first, count, length):
    """(seed, None or the fields of a mismatch, or ``DIED``), over as many processes as it takes."""
    at, end = first, first + count
    while at < end:
        command = [sys.executable, __file__, "--worker", "--seed", str(at), "--programs", str(end - at), "--length", str(length)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        seed = making = None
        for line in process.stdout:
            if line.startswith("? "):
                making = int(line[2:])
            elif line.startswith("@ "):
                seed, making = int(line[2:]), None
            elif line.startswith("= ") or line.strip() == "=":
                yield seed, None
                at, seed = seed + 1, None
            elif line.startswith("! "):
                yield seed, eval(line[2:])
                at, seed = seed + 1, None
        if process.wait() != 0:
            if making is not None:
                print(f"\n# seed {making}: PyTorch died while the program was made; the program does not count")
                yield making, DIED
                at = making + 1
                continue
            if seed is None:
                raise SystemExit(f"a worker ended with {process.returncode} outside any program")
            yield seed, [f"process died ({process.returncode})", f"seed {seed}"]
            at = seed + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=LENGTH, help="most statements of a program, beside what makes tensors")
    parser.add_argument("--least", type=float, default=0.0, help="share of programs that must agree")
    parser.add_argument("--all", action="store_true", help="print mismatches that are listed or were seen before, too")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.seed, options.programs, options.length)
    patterns, counts, listed, agree, total = known(), collections.Counter(), collections.Counter(), 0, options.programs
    for seed, fields in results(options.seed, options.programs, options.length):
        if fields is None:
            agree += 1
            continue
        if fields is DIED:
            total -= 1
            continue
        kind, statement = fields[:2]
        reason = next((r for p, r in patterns if p.search(f"{kind} | {statement} | {fields[-2]}")), None)
        signature = f"{call(statement)}: {kind}"
        if reason:
            listed[reason] += 1
        counts[signature] += not reason
        if options.all or (not reason and counts[signature] == 1):
            print(f"\n# seed {seed}: {signature}", *fields[2:-2], statement, *(f"#   {f}" for f in fields[-2:]), sep="\n")
    print(f"\n{agree} of {total} programs agree; {sum(listed.values())} differ as listed, {sum(counts.values())} otherwise")
    for reason, count in listed.most_common():
        print(f"{count:6} listed: {reason}")
    for signature, count in counts.most_common():
        if count:
            print(f"{count:6} {signature}")
    died = any(s.split(": ")[1].startswith("process died") for s in counts)
    sys.exit(died or agree < options.least * total)


if __name__ == "__main__":
    main()
