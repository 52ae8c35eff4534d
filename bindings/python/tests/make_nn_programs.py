"""Records what the programs of nn_programs print with PyTorch: ``python make_nn_programs.py`` with a Python that has torch."""

import json
import pathlib

import nn_programs

RECORDED = pathlib.Path(__file__).parent / "nn_programs" / "recorded.json"


def main():
    import torch

    recorded = {name: nn_programs.printed(program, torch).splitlines() for name, program in nn_programs.programs().items()}
    RECORDED.write_text(json.dumps(recorded, indent=0) + "\n")
    print(f"{len(recorded)} programs, {sum(map(len, recorded.values()))} lines")


if __name__ == "__main__":
    main()
