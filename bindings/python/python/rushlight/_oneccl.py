"""``oneccl_bindings_for_pytorch``: importing it is all that programs do. The backend ``ccl`` means the best engine there is."""

import os

from ._version import __version__  # noqa: F401

#: The folder whose ``env/vars.sh`` scripts source. There is nothing to set.
cwd = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_oneccl_env")

