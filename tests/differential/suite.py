"""PyTorch's own test files, run on Rushlight.

    python tests/differential/suite.py SOURCES [FILE ...] [--least 0.85] [--jobs 2] [--whole] [--work FOLDER] [--verbose]

with a Python that has torch, numpy, scipy, pytest, expecttest and hypothesis; the extension built. SOURCES is a checkout of PyTorch or a git
directory of it (bare or not); tests and harness are unpacked from there, and nothing of them is part of this project. ``suite_files.txt`` lists the
files with their samples and limits, ``suite_left_out.txt`` the tests that are not run and why. Failures are repeated on PyTorch, and those that fail
there do not count. The rest is grouped by ``suite_clusters.txt``; what no line of it names is listed by itself, and ``--page docs/pytorch-tests.md``
writes files and clusters with their reasons; with files named, the page keeps what it had of the others. ``--least`` is the share of tests below which the command fails. ``--whole`` takes no samples and splits large files, for machines of many cores.

For a machine of many cores that has NumPy and no network, ``--pack FOLDER`` writes what it needs beside this tree (``--extension`` names the built
library): tests, harness, pytest and its kin. There ``suite.py --packed FOLDER --whole --jobs 16 --within 440 --records FILE.tar.gz`` runs it all, and here
``suite.py SOURCES --whole --recorded FILE.tar.gz`` counts: only failures are repeated, on this machine's PyTorch.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FRONT = HERE.parents[1] / "bindings" / "python" / "python"
UNPACKED = ["torch/testing", "torchgen", "functorch", "test"]
#: Numbers of how often a process is started anew after a crash.
RESTARTS = 12
#: What the harness imports, in versions without machine code where there are such.
PACKAGES = ["pytest", "expecttest", "hypothesis<6.140", "packaging", "psutil"]
EXTENSION = "_C.abi3.so"
#: Files that begin when all others have begun.
LAST = re.compile("test_sparse|test_complex|functorch/")


def table(name, columns):
    """Lines of a list, split at two or more spaces."""
    rows = []
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            cells = re.split(r"  +", line.strip(), maxsplit=columns - 1)
            if len(cells) != columns:
                raise SystemExit(f"{name}: expected {columns} columns: {line}")
            rows.append(cells)
    return rows


def unpack(sources, work):
    """PyTorch's tests and harness as files."""
    if (sources / "torch" / "testing").is_dir():
        return sources
    folder = work / "sources"
    if not (folder / "torch" / "testing").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.Popen(["git", f"--git-dir={sources}", "archive", "HEAD", *UNPACKED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
        archive.wait()
        # Its hooks shard PyTorch's own runs.
        (folder / "test" / "conftest.py").unlink(missing_ok=True)
    if not (folder / "torch" / "testing").is_dir():
        raise SystemExit(f"{sources} is neither a checkout nor a git directory of PyTorch")
    return folder


def pack(options, files):
    """Everything that ``--packed`` needs and the tree has not."""
    folder = options.pack
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        sources = unpack(options.sources.resolve(), pathlib.Path(work))
        wanted = ["torch/testing", "torchgen", "functorch", "test/expect"]
        wanted += sorted({f"test/{file[0].rpartition('/')[0]}" for file in files if "/" in file[0]})
        wanted += sorted(f"test/{path.name}" for path in (sources / "test").glob("*.py"))
        with tarfile.open(folder / "sources.tar.xz", "w:xz") as archive:
            for name in wanted:
                archive.add(sources / name, name)
        packages = pathlib.Path(work) / "packages"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages), *PACKAGES], check=True)
        library = pathlib.Path(work) / EXTENSION
        shutil.copy(options.extension or options.front / "rushlight" / EXTENSION, library)
        subprocess.run(["strip", "--strip-all", str(library)], check=True)
        with tarfile.open(folder / "rest.tar.xz", "w:xz") as archive:
            archive.add(packages, "packages")
            archive.add(library, EXTENSION)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 2**20:.0f} MiB; carry it with the tree")


def compiled(options, folders):
    """Writes bytecode once, as every part of every file is a process that reads the same sources."""
    subprocess.run([sys.executable, "-m", "compileall", "-qq", "-j", str(options.jobs), *map(str, folders)], stdout=subprocess.DEVNULL)


def unpacked(options, work):
    """Puts the parts of ``--packed`` in their places: sources, packages on the path, a copy of the front with its extension."""
    for name in ("sources.tar.xz", "rest.tar.xz"):
        with tarfile.open(options.packed / name) as archive:
            archive.extractall(work / "packed" / ("sources" if name.startswith("sources") else "rest"), filter="data")
    rest, front = work / "packed" / "rest", work / "packed" / "front"
    shutil.copytree(options.front, front, dirs_exist_ok=True, ignore=shutil.ignore_patterns(EXTENSION))
    shutil.move(rest / EXTENSION, front / "rushlight" / EXTENSION)
    options.front = front
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(rest / "packages"), os.environ.get("PYTHONPATH")]))
    compiled(options, [rest / "packages", front])
    return work / "packed" / "sources"


def read(path):
    """Outcomes by test, and the other records of a run."""
    tests, notes, order = {}, collections.defaultdict(list), ["passed", "skipped", "failed", "hangs"]
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        entry = json.loads(line)
        if "info" in entry:
            notes[entry["info"]].append(entry)
        elif "start" in entry:
            tests.setdefault(entry["start"], {"test": entry["start"], "outcome": "crashes", "error": "crash", "message": "the process ended"})
        else:
            old = tests.get(entry["test"], {"outcome": "crashes"})["outcome"]
            if old == "crashes" or order.index(entry["outcome"]) >= order.index(old):
                tests[entry["test"]] = entry
    return tests, notes


class Run:
    """One file on one library, in as many processes as crashes make necessary."""

    def __init__(self, options, sources, work, file, rules, part=(0, 1), only=None, real=False):
        self.options, self.sources, self.file, self.part, self.only, self.real = options, sources, file, part, only, real
        stem = file[0].replace("/", ".") + (".real" if real else ".again" if only else f".{part[0]}-{part[1]}")
        self.records, self.selection, self.log = (work / f"{stem}.{end}" for end in ("jsonl", "json", "log"))
        self.left_out = [] if self.real else [(pattern, reason) for where, pattern, reason in rules if re.fullmatch(where, file[0])]

    def start(self, seconds):
        done = list(read(self.records)[0])
        selection = {"left out": self.left_out, "only": self.only, "sample": 0 if self.only else int(self.file[1]), "part": self.part, "done": done}
        self.selection.write_text(json.dumps(selection))
        path = self.sources / "test" / f"{self.file[0]}.py"
        environment = {
            **os.environ, "SUITE_SOURCES": str(self.sources), "SUITE_FILE": str(path), "SUITE_RECORDS": str(self.records),
            "SUITE_SELECTION": str(self.selection), "SUITE_REAL": str(int(self.real)), "SUITE_FILE_SECONDS": str(seconds),
            "PYTHONPATH": os.pathsep.join([str(HERE), str(self.options.front), *filter(None, [os.environ.get("PYTHONPATH")])]), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1", "RUSHLIGHT_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu", "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
        }
        front = [] if self.real else ["-m", "rushlight", "--device", "cpu"]
        pytest = ["-m", "pytest", "-p", "suite_plugin", "-p", "no:cacheprovider", "-p", "no:warnings", "--assert=plain", "-q", "--tb=no", "-rN", str(path)]
        with open(self.log, "w") as log:
            try:
                return subprocess.run(
                    [sys.executable, *front, *pytest], cwd=self.sources / "test", env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    timeout=seconds + 60,
                ).returncode
            except subprocess.TimeoutExpired:
                return 99

    def __call__(self):
        if self.options.recorded and not self.only:
            return read(self.records)
        if not self.real:
            self.records.unlink(missing_ok=True)
        elif set(self.only) <= read(self.records)[0].keys():
            # What PyTorch does with a test stands in the records.
            return read(self.records)
        # Parts of a run have their limits; failing tests that are run again have none.
        end = time.time() + int(self.file[2]) * (8 if self.only else 1)
        end = end if self.only else min(end, self.options.end)
        for _ in range(RESTARTS):
            left = end - time.time()
            # 0 and 1: pytest ran to its end; 5: no tests.
            # Records of PyTorch may be of another run.
            if left < 5 or self.start(left) in (0, 1, 5) or "imported" not in read(self.records)[1]:
                break
        return read(self.records)


def again(options, sources, work, file, rules, parts):
    """Runs failing tests of the records anew, those that match; what comes of it takes their place in the records."""
    found = {run: read(run.records)[0] for run in parts}
    failing = [
        name for tests in found.values() for name, entry in tests.items()
        if entry["outcome"] not in ("passed", "skipped") and re.search(options.again, f"{file[0]}::{name}|{entry.get('error')}|{entry.get('message', '')}")
    ]
    if not failing:
        return
    run = Run(options, sources, work, file, rules, only=failing)
    new = run()[0]
    for part, tests in found.items():
        lines = part.records.read_text(encoding="utf-8").splitlines() if tests.keys() & new.keys() else []
        if lines:
            kept = [line for line in lines if (entry := json.loads(line)).get("test", entry.get("start")) not in new]
            kept += [json.dumps(new[name]) for name in tests if name in new]
            part.records.write_text("\n".join(kept) + "\n", encoding="utf-8")
    counts = collections.Counter(entry["outcome"] for entry in new.values())
    print(f"{file[0]}: of {len(failing)} run anew {', '.join(f'{count} {outcome}' for outcome, count in counts.most_common())}", flush=True)
    run.records.unlink(missing_ok=True)


def run_parts(runs):
    """What came of a file on Rushlight: tests and notes, and the last lines of a run that imported nothing."""
    tests, notes, error = {}, collections.defaultdict(list), ""
    for run, future in runs:
        found, kinds = future.result()
        tests.update(found)
        for kind, entries in kinds.items():
            notes[kind] += entries[:1] if kind in ("imported", "collected") else entries
        if "imported" not in kinds:
            error = run.log.read_text()[-600:].strip().rpartition("\n")[2] if run.log.exists() else "no time left"
    return tests, notes, error


def summary(options, sources, work, file, rules, parts):
    """The failures that count, and how many of the others there are."""
    tests, notes, error = run_parts(parts)
    if "imported" not in notes:
        return {"file": file[0], "error": error}
    for entry in tests.values():
        # PyTorch's list says that it fails; here it does not.
        if entry["outcome"] == "failed" and entry.get("message") == "Unexpected success":
            entry["outcome"] = "skipped"
    # Rules may be newer than records.
    left_out = [pattern for where, pattern, _ in rules if re.fullmatch(where, file[0])]
    failures = {name: e for name, e in tests.items() if e["outcome"] not in ("passed", "skipped") and not any(re.search(p, name) for p in left_out)}
    real = Run(options, sources, work, file, rules, only=sorted(failures), real=True) if failures else None
    # Without running PyTorch, what stands in the records of it counts.
    real = {} if real is None else read(real.records)[0] if options.no_real else real()[0]
    excused = {name for name in failures if name in real and real[name]["outcome"] != "passed"}
    return {
        "file": file[0], "passed": sum(t["outcome"] == "passed" for t in tests.values()),
        "skipped": sum(t["outcome"] == "skipped" for t in tests.values()), "failures": {n: f for n, f in failures.items() if n not in excused},
        "excused": len(excused), "left out": notes["collected"][0]["left_out"] if notes["collected"] else {},
        "selected": sum(note["selected"] for note in notes["collected"]), "absent": notes["imported"][0]["absent"],
    }


def cluster(results, rules, verbose):
    """Groups failures by the first line of the list that matches file, test, error and statement."""
    rules = [(re.compile(pattern, re.S), name) for pattern, name, _ in rules]
    groups = collections.defaultdict(list)
    for result in results:
        for name, entry in result.get("failures", {}).items():
            text = f"{result['file']}::{name}|{entry.get('error')}|{entry.get('message', '')}|{entry.get('code') or ''}"
            group = next((group for pattern, group in rules if pattern.search(text)), "not named")
            groups[group].append((f"{result['file']}::{name}", entry))
    for group, members in sorted(groups.items(), key=lambda pair: (pair[0] == "not named", -len(pair[1]))):
        print(f"{len(members):6}  {group}")
        for name, entry in members if verbose or group == "not named" else []:
            print(f"        {name}: {entry.get('error')}: {' '.join(entry.get('message', '').split())[:150]}")
    return groups


#: What begins the page's text that is not of a run.
ALWAYS = "Tests that fail on PyTorch, too, do not count"


def kept(path, files):
    """What a page has of files that were not run: rows, counts of causes by file, and its text of earlier runs."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rows, causes, tables = {}, {}, re.split(r"^\|[-|]+\|$", text, flags=re.M)
    for line in tables[1].splitlines() if len(tables) == 3 else []:
        file, *numbers = [cell.strip() for cell in line.strip("|").split("|")]
        if len(numbers) == 5 and all(number.isdigit() for number in numbers):
            rows[file] = list(map(int, numbers))
    for line in tables[2].splitlines() if len(tables) == 3 else []:
        cells = line.strip("|").split(" | ")
        if len(cells) == 4 and cells[0].strip().isdigit():
            counts = {name: int(count) for name, count in (pair.rsplit(" ", 1) for pair in cells[3].strip().split(", "))}
            # A page that names the first files only.
            counts["other files"] = counts.get("other files", 0) + int(cells[0]) - sum(counts.values())
            causes[cells[1].strip()] = collections.Counter({file: count for file, count in counts.items() if count > 0 and file not in files})
    said = re.search(rf"\(\d+\.\d%\)[.*]*\n\n(.*?)\n\n{ALWAYS}", text, re.S)
    return {file: row for file, row in rows.items() if file not in files}, causes, said[1] if said else ""


def page(path, results, groups, clusters, how, keep):
    """Files and clusters as a page. Files with a subject of their own (``LAST``) are counted apart.

    With ``keep``, what the page had of files that were not run stays there.
    """
    rows, causes, said = kept(path, {result["file"] for result in results}) if keep else ({}, {}, "")
    for result in results:
        if "error" not in result:
            counts = result["passed"], len(result["failures"]), result["excused"], result["skipped"], sum(result["left out"].values())
        rows[result["file"]] = None if "error" in result else counts
    for name, members in groups.items():
        causes[name] = causes.get(name, collections.Counter()) + collections.Counter(test.partition("::")[0] for test, _ in members)

    def share(counted):
        passed, failed = (sum(row[column] for row in counted) for column in (0, 1))
        return f"{passed:,} of {passed + failed:,} tests pass ({passed / max(passed + failed, 1):.1%})"

    apart = [row for file, row in rows.items() if row and LAST.match(file)]
    lines = [
        "# PyTorch's own tests", "", "<!-- Written by tests/differential/suite.py --page. -->", "",
        "PyTorch's test files on the Python front, on the CPU, without complex numbers, sparse tensors and `vmap`: "
        f"**{share([row for file, row in rows.items() if row and not LAST.match(file)])}**.",
    ]
    if apart:
        lines += [f"Files of those subjects: {share(apart)}."]
    lines += [
        "", *([said, ""] if said else []), how, "",
        f"{ALWAYS}, where failures were repeated there. `tests/differential/suite_left_out.txt` lists the tests that are",
        "not run, with reasons; names of PyTorch that only importing a test file needs are stood in for, and raise where a test uses them.", "",
        "| file | passed | failed | fails in PyTorch | skipped | left out |", "|---|---|---|---|---|---|",
    ]
    order = [row[0] for row in table("suite_files.txt", 4)]
    for file in sorted(rows, key=lambda file: order.index(file) if file in order else len(order)):
        lines.append(f"| {file} | {' | '.join(map(str, rows[file])) if rows[file] else 'not imported | | | |'} |")
    reasons = {name: reason for _, name, reason in clusters}
    lines += ["", "## What fails, and why", "", "| tests | cluster | reason | where |", "|---|---|---|---|"]
    for name, counts in sorted(causes.items(), key=lambda pair: (pair[0] == "not named", -pair[1].total())):
        if counts:
            files = ", ".join(f"{file} {count}" for file, count in sorted(counts.items(), key=lambda pair: (pair[0] == "other files", -pair[1])))
            lines.append(f"| {counts.total()} | {name} | {reasons.get(name, 'each for itself')} | {files} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path, nargs="?")
    parser.add_argument("files", nargs="*", help="names of suite_files.txt, or FILE:SAMPLE:SECONDS; all of the list by default")
    parser.add_argument("--least", type=float, default=0.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, help="keeps unpacked sources and records here")
    parser.add_argument("--no-real", action="store_true", help="do not repeat failures on PyTorch")
    parser.add_argument("--whole", action="store_true", help="all tests of every file; large files in parts, side by side")
    parser.add_argument("--within", type=float, default=1e9, help="seconds after which no test on Rushlight is started")
    parser.add_argument("--recorded", type=pathlib.Path, help="run nothing on Rushlight: count the records of an archive, or of the folder of --work")
    parser.add_argument("--again", metavar="REGEX", help="with --recorded FOLDER: run failing tests anew, those with a match in FILE::TEST|ERROR|MESSAGE")
    parser.add_argument("--records", type=pathlib.Path, help="write an archive of the records of this run")
    parser.add_argument("--page", type=pathlib.Path, help="write files and clusters to a page")
    parser.add_argument("--how", help="what the page says of the run: machine, build, date")
    parser.add_argument("--pack", type=pathlib.Path, help="write what another machine needs to a folder, and run nothing")
    parser.add_argument("--extension", type=pathlib.Path, help="the built library for --pack; by default that of the front")
    parser.add_argument("--packed", type=pathlib.Path, help="run what --pack wrote, without PyTorch")
    parser.add_argument("--front", type=pathlib.Path, default=FRONT, help="the folder of the package rushlight")
    parser.add_argument("--verbose", action="store_true", help="list the tests of every cluster")
    options = parser.parse_intermixed_args()
    if options.packed and options.sources:
        options.files, options.sources = [str(options.sources), *options.files], None
    if not options.packed and not options.sources:
        parser.error("name a checkout or git directory of PyTorch, or --packed FOLDER")
    options.no_real = options.no_real or bool(options.packed)
    options.end = time.time() + options.within
    known = {row[0]: row for row in table("suite_files.txt", 4)}
    files = []
    for given in options.files or known:
        name, *limits = given.split(":")
        row = known.get(name, [name, "0", "300", "1"])
        files.append([name, *limits, "1"] if len(limits) == 2 else [name, "0", *row[2:]] if options.whole else [*row[:3], "1"])
    rules, clusters = table("suite_left_out.txt", 3), table("suite_clusters.txt", 3)
    if options.pack:
        return pack(options, files)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.recorded if options.recorded and options.recorded.is_dir() else options.work or pathlib.Path(temporary)
        work = work.resolve()
        work.mkdir(parents=True, exist_ok=True)
        if options.recorded and not options.recorded.is_dir():
            with tarfile.open(options.recorded) as archive:
                archive.extractall(work, filter="data")
        sources = unpacked(options, work) if options.packed else unpack(options.sources.resolve(), work)
        if sources.is_relative_to(work):
            compiled(options, [sources / "torch" / "testing", *(sources / "test" / f"{file[0]}.py" for file in files)])
        results = []
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, concurrent.futures.ThreadPoolExecutor(options.jobs) as repeats:
            runs = {file[0]: [Run(options, sources, work, file, rules, (part, int(file[3]))) for part in range(int(file[3]))] for file in files}
            if options.again is not None:
                list(pool.map(lambda file: again(options, sources, work, file, rules, runs[file[0]]), files))
            # First parts of all files, then second ones: if time ends, samples of large files are missing.
            # What takes long begins first.
            waiting = {run: pool.submit(run) for run in sorted(sum(runs.values(), []), key=lambda run: (bool(LAST.match(run.file[0])), run.part[0], -int(run.file[2])))}
            parts = {name: [(run, waiting[run]) for run in group] for name, group in runs.items()}
            futures = [repeats.submit(summary, options, sources, work, file, rules, parts[file[0]]) for file in files]
            print("passed  failed  fails in PyTorch  skipped  left out  not reached  file", flush=True)
            for future in futures:
                result = future.result()
                results.append(result)
                if "error" in result:
                    print(f"{result['file']} cannot be imported: {result['error']}", flush=True)
                    continue
                left_out, failed = sum(result["left out"].values()), len(result["failures"])
                missed = result["selected"] - result["passed"] - result["skipped"] - failed - result["excused"]
                print(f"{result['passed']:6}  {failed:6}  {result['excused']:16}  {result['skipped']:7}  {left_out:8}  {missed:11}  {result['file']}", flush=True)
        if options.records:
            with tarfile.open(options.records, "w:gz") as archive:
                for path in sorted([*work.glob("*.jsonl"), *work.glob("*.log")]):
                    archive.add(path, path.name)
        print("failures by cause")
        groups = cluster(results, clusters, options.verbose)
        if options.page:
            how = options.how or ("Whole files." if options.whole else "Large files by fixed random samples.")
            page(options.page, results, groups, clusters, how, keep=bool(options.files))
        reasons = collections.Counter()
        for result in results:
            reasons.update(result.get("left out", {}))
        print("left out: " + "; ".join(f"{count} {reason}" for reason, count in reasons.most_common()))
    passed = sum(result.get("passed", 0) for result in results)
    failed = sum(len(result.get("failures", {})) for result in results)
    broken = [result["file"] for result in results if "error" in result]
    share = passed / max(passed + failed, 1)
    print(f"{passed} of {passed + failed} tests pass ({share:.1%}); {len(files) - len(broken)} of {len(files)} files ran")
    return int(share < options.least or bool(broken))


if __name__ == "__main__":
    sys.exit(main())
