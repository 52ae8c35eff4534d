"""``torch._prims``: ``utils`` is ``_prims_common``. The primitive operators themselves belong to PyTorch's compiler, and are not part of this version."""

from . import _prims_common as utils  # noqa: F401
