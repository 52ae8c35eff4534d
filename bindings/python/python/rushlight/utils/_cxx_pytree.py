"""``torch.utils._cxx_pytree``: PyTorch's trees of containers in C++. Here they are those of ``torch.utils._pytree``."""

from ._pytree import *  # noqa: F401, F403
from ._pytree import tree_flatten, tree_map, tree_map_only, tree_unflatten  # noqa: F401
