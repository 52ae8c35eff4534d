"""Conversions between ``torch.save``'s files and distributed checkpoints."""

import os

from ... import _absent
from ...serialization import load as _torch_load
from ...serialization import save as _torch_save
from ._load import _load_all
from ._save import save

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(dcp_checkpoint_dir, torch_save_path):
    """Writes a distributed checkpoint as one file of ``torch.save``."""
    _torch_save(_load_all(os.fspath(dcp_checkpoint_dir)), torch_save_path)


def torch_save_to_dcp(torch_save_path, dcp_checkpoint_dir):
    """Writes a file of ``torch.save`` as a distributed checkpoint, by this process alone."""
    save(_torch_load(torch_save_path, weights_only=True), checkpoint_id=dcp_checkpoint_dir, no_dist=True)


_absent.fill(globals(), "torch.distributed.checkpoint.format_utils", "dcp_to_torch_save reads a checkpoint without knowing its entries", "DynamicMetaLoadPlanner")
