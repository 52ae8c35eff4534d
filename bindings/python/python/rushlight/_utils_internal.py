"""Paths of files that tests write."""

import os
import tempfile


def get_writable_path(path):
    """The path, if it can be written; else a new folder of the same name's last part."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))
