"""``torch._higher_order_ops``: ops of ops. ``cond``, ``out_dtype`` and ``while_loop`` compute; the others belong to a compiler."""

from .. import _absent
from .cond import cond  # noqa: F401
from .out_dtype import out_dtype  # noqa: F401
from .while_loop import while_loop  # noqa: F401

_absent.fill(globals(), "torch._higher_order_ops", _absent._COMPILER, "associative_scan flex_attention inductor_compiled_code scan")
