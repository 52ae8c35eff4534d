"""``oneccl_bindings_for_pytorch``: programs only import it. The backend ``ccl`` selects the best available engine."""

import os

from ._version import __version__  # noqa: F401

#: The folder whose ``env/vars.sh`` scripts source. There is nothing to set.
cwd = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_oneccl_env")

