"""``torch._higher_order_ops``: ops of ops. ``out_dtype`` computes; the others belong to a compiler."""

from .. import _absent
from .out_dtype import out_dtype  # noqa: F401

_absent.fill(globals(), "torch._higher_order_ops", _absent._COMPILER, "associative_scan cond flex_attention inductor_compiled_code scan while_loop")
