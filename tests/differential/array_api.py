"""The array API's own tests, run over ``array_api_compat.torch`` on PyTorch and on Rushlight.

    python tests/differential/array_api.py TESTS STANDARD [--examples 20] [--work FOLDER] [--only EXPRESSION] [--verbose]

with a Python that has torch, numpy, pytest, pytest-json-report, hypothesis, ndindex and array_api_compat; the extension built. TESTS is a checkout or a git directory of
github.com/data-apis/array-api-tests, STANDARD one of github.com/data-apis/array-api, which the tests read signatures from; nothing of them is part of this
project. Prints how many tests pass on each, lists what passes on PyTorch only, and fails if Rushlight passes fewer. The file is also the pytest plugin of
both runs: it writes an outcome per line, and keeps hypothesis from searching for smaller examples of failures.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

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


def pytest_configure(config):
    """Of the plugin: failures are reported as they are found."""
    from hypothesis import Phase, settings

    settings.register_profile("found", settings.default, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("found")


def pytest_runtest_logreport(report):
    """Of the plugin: records what came of a test."""
    if report.when == "call" or report.outcome != "passed":
        message = "" if report.outcome != "failed" else str(getattr(report.longrepr, "reprcrash", None) or report.longrepr)
        with open(os.environ["ARRAY_API_RECORDS"], "a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.outcome, message[-600:]]) + "\n")


def run(tests, work, options, ours):
    """Outcomes and messages by test."""
    records = work / ("rushlight.jsonl" if ours else "torch.jsonl")
    records.unlink(missing_ok=True)
    front = ["-m", "rushlight", "--device", "cpu"] if ours else []
    command = [
        sys.executable, *front, "-m", "pytest", "-q", "-p", "array_api", "-p", "no:cacheprovider", "-p", "no:warnings", "--tb=short", "--disable-deadline",
        f"--max-examples={options.examples}", "--hypothesis-seed=0", "array_api_tests", *(["-k", options.only] if options.only else []),
    ]
    environment = {
        **os.environ, "ARRAY_API_TESTS_MODULE": "array_api_compat.torch", "PYTHONPATH": os.pathsep.join([str(HERE), str(FRONT)]), "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "RUSHLIGHT_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "ARRAY_API_RECORDS": str(records),
    }
    with open(records.with_suffix(".log"), "w") as log:
        subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    if not records.exists():
        raise SystemExit(f"no test ran: see {records.with_suffix('.log')}")
    return {name: (outcome, message) for name, outcome, message in map(json.loads, records.read_text(encoding="utf-8").splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=pathlib.Path)
    parser.add_argument("standard", type=pathlib.Path)
    parser.add_argument("--examples", type=int, default=20, help="examples of each test")
    parser.add_argument("--work", type=pathlib.Path, help="a folder for unpacked files and reports")
    parser.add_argument("--only", help="an expression of pytest's -k")
    parser.add_argument("--ours", action="store_true", help="leaves PyTorch out and lists all failures")
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
        theirs = {} if options.ours else run(tests, work, options, False)
        ours = run(tests, work, options, True)
    counts = {}
    for name, found in (("PyTorch", theirs), ("Rushlight", ours))[options.ours:]:
        passed = sum(outcome == "passed" for outcome, _ in found.values())
        ran = sum(outcome != "skipped" for outcome, _ in found.values())
        counts[name] = passed
        print(f"{name}: {passed} of {ran} tests pass ({passed / max(ran, 1):.1%}), {len(found) - ran} skipped")
    if options.ours:
        theirs = dict.fromkeys(ours, ("passed", ""))
    worse = sorted(name for name, (outcome, _) in theirs.items() if outcome == "passed" and ours.get(name, ("absent", ""))[0] != "passed")
    better = sum(outcome == "passed" and theirs.get(name, ("absent", ""))[0] != "passed" for name, (outcome, _) in ours.items())
    print(f"{len(worse)} pass on PyTorch only, {better} on Rushlight only")
    for name in worse:
        print(f"  {name}" + (f": {' '.join(ours.get(name, ('', 'not run'))[1].split())[:300]}" if options.verbose else ""))
    return not options.ours and counts["Rushlight"] < counts["PyTorch"]


if __name__ == "__main__":
    sys.exit(main())
