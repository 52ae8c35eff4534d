"""``torch.distributed.run``, which is torchrun: the launcher of ``rushlight.run``."""

import sys

from rushlight.run import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
