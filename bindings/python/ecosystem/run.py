"""Runs jobs: ``python run.py [--repeat N] [LIBRARY[:JOB] …]`` prints a line of JSON for each. ``--list`` names them.

The first run of a job imports its library. Further runs, N of them, are timed apart: the seconds are those of the fastest. They are seconds of CPU time, so
that a busy machine gives the same; set OMP_NUM_THREADS and RUSHLIGHT_NUM_THREADS to 1 to compare with another Python.
"""

import importlib
import json
import pathlib
import sys
import time
import traceback
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from common import JOBS  # noqa: E402

for _file in ("models", "architectures", "others", "blocks", "mathematics", "tools", "further", "systems", "arrays"):
    if (pathlib.Path(__file__).parent / f"{_file}.py").exists():
        importlib.import_module(_file)


def flat(values):
    """Numbers of a job's result, as lists."""
    found = {}
    for name, value in (values or {}).items():
        found[name] = value.detach().double().reshape(-1).tolist() if isinstance(value, torch.Tensor) else [float(value)]
    return found


def timed(job):
    """What a job gives, from the same seed each time, and the seconds that its threads computed."""
    torch.manual_seed(0)
    started = time.process_time()
    values = job()
    return values, time.process_time() - started


def run(library, name, repeat=0):
    try:
        values, seconds = timed(JOBS[library][name])
        if repeat:
            seconds = min(timed(JOBS[library][name])[1] for _ in range(repeat))
        return {"library": library, "job": name, "seconds": seconds, "values": flat(values)}
    except BaseException as error:
        lines = traceback.format_exc().strip().splitlines()
        where = [line.strip() for line in lines if line.strip().startswith("File")]
        return {"library": library, "job": name, "error": f"{type(error).__name__}: {error}", "where": where[-3:], "trace": "\n".join(lines)}


def main(args):
    if "--list" in args:
        for library, jobs in JOBS.items():
            print(library, *jobs)
        return
    repeat = 0
    if args[:1] == ["--repeat"]:
        repeat, args = int(args[1]), args[2:]
    wanted = args or list(JOBS)
    for one in wanted:
        library, _, name = one.partition(":")
        for known in [name] if name else JOBS.get(library, {}):
            print(json.dumps(run(library, known, repeat)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
