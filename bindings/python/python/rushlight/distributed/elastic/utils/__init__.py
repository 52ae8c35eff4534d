"""``torch.distributed.elastic.utils``."""

from .distributed import get_free_port, get_socket_with_port

__all__ = ["get_free_port", "get_socket_with_port"]
