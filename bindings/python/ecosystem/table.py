"""Runs the jobs of libraries and prints a table: ``python table.py [--reference PYTHON] [LIBRARY[:JOB] …]``.

Each library runs in a process of its own. With a reference, a Python that has PyTorch and the same libraries, numbers and CPU times of both are compared;
a file of what ``run.py`` printed with such a Python does as well. ``--page FILE`` writes the table into a page of the book, between its two marks; with
libraries named, the page keeps its rows of the others. Exits with 1 if a job fails or numbers differ.
"""

import argparse
import functools
import importlib.metadata
import json
import math
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
#: How far numbers of single precision may be apart, relative to the greatest of their kind.
TOLERANCE = 2e-4
#: Names of distributions where they are not the modules'.
DISTRIBUTIONS = {
    "ignite": "pytorch-ignite", "sentence_transformers": "sentence-transformers", "pyro": "pyro-ppl", "laplace": "laplace-torch", "neuralop": "neuraloperator",
    "architectures": "transformers", "avalanche": "avalanche-lib", "open_clip": "open-clip-torch", "pytorch_grad_cam": "grad-cam",
    "ot": "POT", "torchcrf": "pytorch-crf", "optimum": "optimum-quanto", "whisper": "openai-whisper", "kan": "pykan", "sklearn": "scikit-learn", "backpack": "backpack-for-pytorch", "curvlinops": "curvlinops-for-pytorch",
}


def lines(text):
    """The results among the lines that ``run.py`` printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"library"')]


@functools.lru_cache(None)
def _read(path):
    return lines(path.read_text())


def recorded(path, wanted):
    """What a file of results has of a library, or of one of its jobs."""
    library, _, job = wanted.partition(":")
    return {r["job"]: r for r in _read(path) if r["library"] == library and job in ("", r["job"])}


def results(python, wanted, seconds, repeat):
    """What each job gave, by name."""
    try:
        done = subprocess.run([python, str(HERE / "run.py"), "--repeat", str(repeat), wanted], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"*": {"error": f"took more than {seconds} s"}}
    found = {result["job"]: result for result in lines(done.stdout)}
    if done.returncode or not found:
        found["*"] = {"error": f"the process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"}
    return found


def difference(ours, theirs):
    """The greatest difference of two jobs' numbers, relative to the greatest number of each kind, and its name."""
    worst = 0.0, ""
    for name, expected in theirs.items():
        got = ours.get(name)
        if got is None or len(got) != len(expected):
            return float("inf"), name
        scale = max([abs(v) for v in expected] + [1e-6])
        apart = max([abs(a - b) if a != b and (a == a or b == b) else 0.0 for a, b in zip(got, expected)] + [0.0]) / scale
        worst = max(worst, (apart if apart == apart else float("inf"), name))
    return worst


#: The marks between which a page has the table.
MARKS = "<!-- The table is made by scripts/ecosystem --page. -->", "<!-- End of the table. -->"


#: Rows that are no library of others: models of transformers, and this project's own front.
OWN = ("architectures", "torchaudio")
#: Libraries that do not run as a whole: those without a job, and those with jobs of a part of them.
NOT_WHOLE = {"liger_kernel": "its layers are kernels of Triton", "xformers": "its attention is kernels for GPUs"}


def counted(lines):
    """A line about the rows of a table: how many libraries run unmodified."""
    told = {line.split("|")[1].strip(): line.split("|")[4].split(";") for line in lines}
    not_whole = dict(NOT_WHOLE)
    for name, parts in told.items():
        if not all(part.strip().startswith(("equal to", "runs")) for part in parts):
            not_whole[name] = "see its row"
    tried = {*told, *not_whole} - {*OWN}
    named = "; ".join(f"{name}: {why}" for name, why in sorted(not_whole.items()))
    return f"{len(tried) - len(not_whole)} of {len(tried)} libraries tried run unmodified, `architectures` and `torchaudio` not counted. Not as a whole: {named}."


def write_page(path, rows, keep=False):
    """Writes the rows of a table into a page: a line for each library. Of the page's rows those of other libraries may be kept, in their places."""
    text = path.read_text(encoding="utf-8")
    start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    header = ["| library | version | jobs | beside PyTorch | PyTorch's CPU time over ours |", "|---|---|---|---|---|"]
    table = {}
    if keep:
        known = [line for line in text[start:end].splitlines() if line.startswith("| ") and line != header[0]]
        table.update((line.split("|")[1].strip(), line) for line in known)
    for library, jobs in rows.items():
        names = ", ".join(name for name, *_ in jobs) if len(jobs) < 9 else f"{len(jobs)} of them"
        told = sorted({text for _, text, *_ in jobs if not text.startswith("agrees")})
        apart = [float(text.split()[-1]) for _, text, *_ in jobs if text.startswith("agrees")]
        told = ([f"equal to {max(apart):.0e}"] if apart else []) + told
        ratios = [math.log(theirs / ours) for _, _, ours, theirs in jobs if ours and theirs]
        ratio = f"{math.exp(sum(ratios) / len(ratios)):.1f}" if ratios else ""
        table[library] = f"| {library} | {version(library)} | {names} | {'; '.join(told)} | {ratio} |"
    path.write_text(f"{text[:start]}\n\n" + "\n".join([*header, *table.values(), "", counted(table.values())]) + f"\n\n{text[end:]}", encoding="utf-8")


def version(library):
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(library, library))
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", help="a Python that has PyTorch and the same libraries, or a file of its results")
    parser.add_argument("--results", type=pathlib.Path, help="a file of what run.py printed here, instead of running the jobs")
    parser.add_argument("--page", type=pathlib.Path, help="a page whose table is written")
    parser.add_argument("--repeat", type=int, default=0, help="further runs of each job, of which the fastest is the time: without, times include imports")
    parser.add_argument("--seconds", type=float, default=900, help="time for a library")
    parser.add_argument("wanted", nargs="*", help="libraries, or single jobs as library:job")
    args = parser.parse_args()
    listed = subprocess.run([sys.executable, str(HERE / "run.py"), "--list"], capture_output=True, text=True, check=True).stdout.split("\n")
    wanted = args.wanted or [line.split()[0] for line in listed if line.strip()]
    failed, verdicts, slower, rows = 0, {}, [], {}
    file = pathlib.Path(args.reference) if args.reference and args.reference.endswith((".json", ".jsonl", ".txt")) else None
    print(f"{'library':<22} {'version':<9} {'job':<28} {'seconds':>8} {'PyTorch':>8}  result")
    for one in wanted:
        library = one.partition(":")[0]
        ours = recorded(args.results, one) if args.results else results(sys.executable, one, args.seconds, args.repeat)
        theirs = recorded(file, one) if file else results(args.reference, one, args.seconds, args.repeat) if args.reference else {}
        for name, result in ours.items():
            reference = theirs.get(name, {})
            seconds, other = (f"{r['seconds']:.2f}" if "seconds" in r else "" for r in (result, reference))
            if "error" in result:
                text = result["error"].splitlines()[0]
                failed += 1
            elif "values" in reference:
                apart, where = difference(result["values"], reference["values"])
                text = f"differs by {apart:.1e} ({where})" if apart > TOLERANCE else f"agrees to {apart:.0e}" if reference["values"] else "runs"
                failed += apart > TOLERANCE
            else:
                text = "runs" if not args.reference else f"runs; PyTorch: {reference.get('error', 'no result')}"
            verdicts[library] = verdicts.get(library, True) and text.startswith(("agrees", "runs"))
            if args.repeat and seconds and other and result["seconds"] > reference["seconds"]:
                slower.append(f"{library}:{name} {result['seconds'] / reference['seconds']:.2f}")
            rows.setdefault(library, []).append((name, text, result.get("seconds"), reference.get("seconds")))
            print(f"{library:<22} {version(library):<9} {name:<28} {seconds:>8} {other:>8}  {text}", flush=True)
    print(f"\n{sum(verdicts.values())} of {len(verdicts)} libraries; not: {', '.join(n for n, good in verdicts.items() if not good) or 'none'}")
    if args.page:
        write_page(args.page, rows, keep=bool(args.wanted))
    if args.repeat and args.reference:
        print(f"CPU time above PyTorch's: {', '.join(slower) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
