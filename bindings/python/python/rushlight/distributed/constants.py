"""Constants of ``torch.distributed``."""

from ._group import default_pg_timeout

default_pg_nccl_timeout = default_pg_timeout

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]
