"""``torch.distributed.elastic.utils.distributed``: free ports."""

import contextlib
import socket

__all__ = ["get_free_port", "get_socket_with_port"]


def get_socket_with_port():
    """A socket that listens on a free port of this machine. The port stays free for others once the socket is closed, though not for sure."""
    error = OSError("Failed to create a socket")
    for family, kind, protocol, _, _ in socket.getaddrinfo("localhost", None, socket.AF_UNSPEC, socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            made.bind(("localhost", 0))
            made.listen(0)
            return made
        except OSError as problem:
            made.close()
            error = problem
    raise RuntimeError("Failed to create a socket") from error


def get_free_port():
    """A port that is free now."""
    with contextlib.closing(get_socket_with_port()) as found:
        return found.getsockname()[1]
