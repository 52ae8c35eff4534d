"""Runs at the start of every Python process of ``scripts/peers``: a part's test process, and the ranks and programs that it starts.

``PEERS_TORCH`` is a folder with PyTorch's ``torch/testing``. Rushlight serves ``torch``; ``torch.testing._internal`` is PyTorch's harness of
tests. The harness imports private names that the front does not have: ``stand_ins.txt`` lists them.
"""

import os

if os.environ.get("PEERS_TORCH"):
    import stand_ins

    stand_ins.install(os.environ["PEERS_TORCH"])
