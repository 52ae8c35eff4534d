"""Expert parallelism: a mixture's experts split among ranks, tokens sent to the ranks of their experts and back. Ours; PyTorch has no module for it.

::

    rows, way = dispatch(tokens, chosen, num_experts=8, group=group)     # rows for this rank's experts, grouped by expert
    outputs = torch.cat([expert(part) for expert, part in zip(experts, rows.split(way.counts))])
    tokens = way.combine(outputs)                                         # in the order of the tokens
"""

from .. import _C
from . import _group

__all__ = ["dispatch"]


def dispatch(tokens, chosen, num_experts, group=None):
    """Sends each row of ``tokens`` to the rank of its expert, ``chosen`` (int64). Rank ``r`` of ``n`` has the experts from ``r * num_experts / n`` on. Returns the
    rows for this rank's experts, grouped by expert, and an object whose ``counts`` says how many each has and whose ``combine`` brings the outputs back. Recorded."""
    return _C._dispatch(tokens, chosen, int(num_experts), _group._resolve(group)._group)
