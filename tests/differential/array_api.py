"""The array API's own tests, run over ``array_api_compat.torch`` on PyTorch and on Rushlight.

    python tests/differential/array_api.py TESTS STANDARD [--examples 20] [--work FOLDER] [--only EXPRESSION] [--verbose]

with a Python that has torch, numpy, pytest, hypothesis, ndindex and array_api_compat; the extension built. TESTS is a checkout or a git directory of
github.com/data-apis/array-api-tests, STANDARD one of github.com/data-apis/array-api, which the tests read signatures from; nothing of them is part of this
project. Prints how many tests pass on each, lists what passes on PyTorch only, and fails if Rushlight passes fewer.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
FRONT = HERE.parents[1] / "bindings" / "python" / "python"


def unpack(source, folder):
    """A checkout's files, or those of a git directory's last commit."""
    if (source / ".git").exists() or not (source / "HEAD").exists():
        return source
    if not folder.is_dir():
        folder.mkdir(parents=True)
        archive = subprocess.Popen(["git", f"--git-dir={source}", "archive", "HEAD"], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
        if archive.wait():
            raise SystemExit(f"{source} is not a git directory")
    return folder


def run(tests, work, options, ours):
    """Outcomes by test."""
    report = work / ("rushlight.xml" if ours else "torch.xml")
    report.unlink(missing_ok=True)
    front = ["-m", "rushlight", "--device", "cpu"] if ours else []
    command = [
        sys.executable, *front, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:warnings", "--tb=line", f"--junitxml={report}", "--disable-deadline",
        f"--max-examples={options.examples}", "--hypothesis-seed=0", "array_api_tests", *(["-k", options.only] if options.only else []),
    ]
    environment = {
        **os.environ, "ARRAY_API_TESTS_MODULE": "array_api_compat.torch", "PYTHONPATH": str(FRONT), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1", "RUSHLIGHT_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    }
    with open(report.with_suffix(".log"), "w") as log:
        subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    if not report.exists():
        raise SystemExit(f"no report: see {report.with_suffix('.log')}")
    found = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        failure = case.find("failure") if case.find("failure") is not None else case.find("error")
        found[name] = ("skipped", "") if case.find("skipped") is not None else ("passed", "") if failure is None else ("failed", failure.get("message") or "")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=pathlib.Path)
    parser.add_argument("standard", type=pathlib.Path)
    parser.add_argument("--examples", type=int, default=20, help="examples of each test")
    parser.add_argument("--work", type=pathlib.Path, help="a folder for unpacked files and reports")
    parser.add_argument("--only", help="an expression of pytest's -k")
    parser.add_argument("--verbose", action="store_true", help="prints the messages of failures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or pathlib.Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        tests = unpack(options.tests.resolve(), work / "array-api-tests")
        standard = unpack(options.standard.resolve(), work / "array-api")
        link = tests / "array-api"
        if not (link / "src").exists():
            if link.is_dir() and not link.is_symlink():
                link.rmdir()
            link.unlink(missing_ok=True)
            link.symlink_to(standard)
        theirs, ours = run(tests, work, options, False), run(tests, work, options, True)
    counts = {}
    for name, found in (("PyTorch", theirs), ("Rushlight", ours)):
        passed = sum(outcome == "passed" for outcome, _ in found.values())
        ran = sum(outcome != "skipped" for outcome, _ in found.values())
        counts[name] = passed
        print(f"{name}: {passed} of {ran} tests pass ({passed / max(ran, 1):.1%}), {len(found) - ran} skipped")
    worse = sorted(name for name, (outcome, _) in theirs.items() if outcome == "passed" and ours.get(name, ("absent", ""))[0] != "passed")
    better = sum(outcome == "passed" and theirs.get(name, ("absent", ""))[0] != "passed" for name, (outcome, _) in ours.items())
    print(f"{len(worse)} pass on PyTorch only, {better} on Rushlight only")
    for name in worse:
        print(f"  {name}" + (f": {' '.join(ours.get(name, ('', 'not run'))[1].split())[:300]}" if options.verbose else ""))
    return counts["Rushlight"] < counts["PyTorch"]


if __name__ == "__main__":
    sys.exit(main())
