"""PyTorch loads a distributed checkpoint that two ranks of ours have saved.

``python tests/differential/checkpoints.py``, with a Python that has PyTorch. ``RUSHLIGHT_PACKAGE`` names the folder of the package, the source's by default.
"""

import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [os.environ.get("RUSHLIGHT_PACKAGE", str(ROOT / "bindings/python/python")), str(ROOT / "bindings/python/tests")]

import torch
import torch.distributed.checkpoint as dcp
from test_distributed import launch

with tempfile.TemporaryDirectory() as folder:
    launch(2, ROOT / "bindings/python/tests/model_parallel_ranks.py", "checkpoint_save", folder, 1)
    state = {
        "model": {"rows": torch.zeros(5, 4), "columns": torch.zeros(3, 6, dtype=torch.bfloat16)},
        "epoch": 0,
        "optimizer": {"state": {0: {"exp_avg": torch.zeros(3, 4)}}, "param_groups": [{"lr": 0.0, "params": []}]},
    }
    dcp.load(state, checkpoint_id=folder)
assert torch.equal(state["model"]["rows"], (torch.arange(20) % 7).float().view(5, 4)), state
assert torch.equal(state["model"]["columns"], (torch.arange(18) % 7).bfloat16().view(3, 6)), state
assert state["epoch"] == 7 and state["optimizer"]["param_groups"][0] == {"lr": 0.25, "params": [0, 1]}, state
assert state["optimizer"]["state"][0]["exp_avg"].abs().sum() > 0
print("PyTorch loads the checkpoint")
