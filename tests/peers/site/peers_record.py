"""A pytest plugin of ``scripts/peers``: writes a line of JSON when a test begins and when it ends, and leaves out what is listed."""

import json
import os
import re

_results = os.environ["PEERS_RESULTS"]
_patterns = [re.compile(pattern) for pattern in json.loads(os.environ.get("PEERS_LEFT_OUT", "[]"))]
_rank = os.environ.get("RANK", "")
if _rank:
    # Horovod's tests ask its launcher's variables.
    os.environ.update(HOROVOD_RANK=_rank, HOROVOD_SIZE=os.environ["WORLD_SIZE"])


def _write(**record):
    with open(_results, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def pytest_collection_modifyitems(config, items):
    # Tests that an earlier process has begun are not begun again.
    seen = set(json.loads(os.environ.get("PEERS_SEEN", "[]")))
    items[:] = [item for item in items if item.nodeid not in seen and not any(pattern.search(item.nodeid) for pattern in _patterns)]


def pytest_runtest_logstart(nodeid, location):
    _write(test=nodeid, outcome="began", began=True)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.failed or report.skipped:
        reason = ""
        if report.failed:
            reason = _last_line(str(report.longrepr))
        elif report.skipped and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2])
        # An expected failure is reported as skipped, a test that passes in spite of it as passed.
        _write(test=report.nodeid, outcome=report.outcome, reason=reason)


def pytest_collectreport(report):
    if report.failed:
        _write(test=report.nodeid, outcome="failed", reason="cannot be imported: " + _last_line(str(report.longrepr)))


def _last_line(text):
    """The line that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(E +)?[\w.]*(Error|Exception|Failed|Interrupted)\b.*", line)]
    return (named or lines or [""])[-1]
