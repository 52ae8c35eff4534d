"""Data parallel by every way of starting ranks, over Rushlight and over PyTorch.

    launches.py --rushlight PYTHON [--reference PYTHON] [--reference-path FOLDER] [--binary PROGRAM]
"""

import os
import sys

from sides import HERE, arguments, differs, environment, outcome

RANKS = os.path.join(HERE, "ranks.py")


def main():
    parser = arguments()
    parser.add_argument("--binary", help="the program rushlight")
    args = parser.parse_args()
    ways = {
        "ddp, ranks by Lightning": [RANKS, "TARGET"], "ddp_spawn": [RANKS, "TARGET", "--strategy", "ddp_spawn"],
        "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2", RANKS, "TARGET"],
    }
    known = None
    if args.reference:
        known, why = outcome([args.reference, *ways["ddp, ranks by Lightning"]], environment(args.reference_path, OMP_NUM_THREADS="1"), 300)
        print(f"  {'PyTorch, ranks by Lightning':<44} {known or 'does not run: ' + why}")
    failed = 0
    commands = {name: [args.rushlight, *way] for name, way in ways.items()}
    if args.binary:
        commands["rushlight run"] = [args.binary, "run", "--nproc-per-node", "2", args.rushlight, RANKS, "TARGET"]
    for name, command in commands.items():
        found, why = outcome(command, environment(OMP_NUM_THREADS="1"), 300)
        known = known or found
        difference = why if found is None else differs(known, found, name)
        failed += bool(difference)
        print(f"  {name:<44} {'FAILED ' + difference if difference else 'same outcome'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
