"""Records torchvision's numbers for ``vision_cases.py``: ``python make_vision_cases.py``, by a Python that has PyTorch and torchvision."""

import json
import pathlib

import torch
import torchvision
from vision_cases import Cases

if __name__ == "__main__":
    found = Cases(torch, torchvision.models, torchvision.ops, torchvision.transforms).record()
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
    (pathlib.Path(__file__).parent / "vision_cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
