"""``deepspeed.utils.logging``: the logger that programs and libraries set the level of."""

import logging

logger = logging.getLogger("DeepSpeed")


def log_dist(message, ranks=None, level=logging.INFO):
    """Logs on the given ranks; on all for None or -1."""
    from ... import distributed as dist

    rank = dist.get_rank() if dist.is_initialized() else 0
    if not ranks or -1 in ranks or rank in ranks:
        logger.log(level, f"[Rank {rank}] {message}")
