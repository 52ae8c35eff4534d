"""``torch.distributed.run``: the launcher, which this version does not have."""

import sys

_WHY = (
    "rushlight has no launcher of its own yet. Start the program with srun, mpiexec or PyTorch's torchrun; or start each process yourself with "
    "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; or call torch.multiprocessing.spawn"
)


def main(args=None):
    """An error that says how to start the processes."""
    raise NotImplementedError(_WHY)


parse_args = run = elastic_launch = main

if __name__ == "__main__":
    sys.exit(f"torch.distributed.run: {_WHY}.")
