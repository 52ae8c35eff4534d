"""PyTorch's place of ``load``."""

from ._load import load, load_state_dict

__all__ = ["load", "load_state_dict"]
