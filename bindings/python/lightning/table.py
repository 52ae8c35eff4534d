"""Runs the features over Rushlight and over PyTorch and prints a table.

    table.py --rushlight PYTHON [--reference PYTHON] [--reference-path FOLDER] [NAME ...]

The exit status says whether every feature that works over PyTorch has the same outcome over Rushlight.
"""

import os
import sys
import time

from sides import HERE, arguments, differs, environment, outcome


def run(python, names, path=None):
    """The outcomes of the features by name, how long they took, and why there are none."""
    begun = time.time()
    found, why = outcome([python, os.path.join(HERE, "features.py"), "TARGET", *names], environment(path), 3600)
    return found, time.time() - begun, why


def main():
    parser = arguments()
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    ours, seconds, why = run(args.rushlight, args.names)
    if ours is None:
        sys.exit(why)
    theirs, reference_seconds, why = run(args.reference, args.names, args.reference_path) if args.reference else (None, 0, "")
    if args.reference and theirs is None:
        print(f"the reference does not run, so there is nothing to compare with:\n{why[-400:]}\n")
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
