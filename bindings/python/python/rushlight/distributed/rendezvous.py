"""``torch.distributed.rendezvous``: a store for the ranks of a URL, with this process's rank and the world size."""

from __future__ import annotations

import numbers
import os
from urllib.parse import parse_qs, urlsplit

from ._group import _seconds, default_pg_timeout
from ._stores import FileStore, TCPStore

__all__ = ["register_rendezvous_handler", "rendezvous"]

_handlers = {}


def register_rendezvous_handler(scheme, handler):
    """Makes ``handler(url, timeout=...)`` serve the URLs of a scheme. It yields a store, the rank and the world size."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url, rank=-1, world_size=-1, **kwargs):
    """Yields a store, the rank and the world size, for ``env://``, ``tcp://host:port`` and ``file:///path``. ``rank`` and ``world_size`` may be in its query."""
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    for name, value in (("rank", rank), ("world_size", world_size)):
        if not isinstance(value, numbers.Integral):
            raise RuntimeError(f"`{name}` must be an integer. {value}")
    url = url.decode() if isinstance(url, bytes) else url
    given = {name: value for name, value in (("rank", rank), ("world_size", world_size)) if value != -1}
    if given:
        if _given(url) != (None, None):
            raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
        both = "&".join(f"{name}={value}" for name, value in given.items())
        url += ("&" if "?" in url else "?") + both
    scheme = urlsplit(url).scheme
    if scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {scheme}://")
    return _handlers[scheme](url, **kwargs)


def _given(url):
    """The rank and the world size of a URL's query; None where they are missing."""
    query = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    return query.get("rank"), query.get("world_size")


def _required(url, scheme, missing):
    rank, size = _given(url)
    for value, name in ((rank, "rank parameter"), (size, "world size parameter")):
        if value is None:
            missing = [*missing, name]
    if missing:
        raise ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: {missing[0]} missing")
    return int(rank), int(size)


def _once(scheme):
    raise RuntimeError(f"Unable to perform rerendezvous using {scheme}:// method")


def _by_file(url, **kwargs):
    path = urlsplit(url).path
    rank, size = _required(url, "file", [] if path else ["path"])
    yield FileStore(path, size), rank, size
    _once("file")


def _tcp_store(host, port, rank, size, timeout):
    return TCPStore(host, port, size, rank == 0, timeout, wait_for_workers=False)


def _by_tcp(url, timeout=default_pg_timeout, **kwargs):
    parts = urlsplit(url)
    rank, size = _required(url, "tcp", [] if parts.port else ["port number"])
    yield _tcp_store(parts.hostname, parts.port, rank, size, _seconds(timeout)), rank, size
    _once("tcp")


def _by_environment(url, timeout=default_pg_timeout, **kwargs):
    rank, size = _given(url)

    def value(name, given=None):
        found = given if given is not None else os.environ.get(name)
        if found is None:
            raise ValueError(f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set")
        return found

    rank, size = int(value("RANK", rank)), int(value("WORLD_SIZE", size))
    host, port = value("MASTER_ADDR"), int(value("MASTER_PORT"))
    yield _tcp_store(host, port, rank, size, _seconds(timeout)), rank, size
    _once("env")


for _scheme, _handler in (("file", _by_file), ("tcp", _by_tcp), ("env", _by_environment)):
    register_rendezvous_handler(_scheme, _handler)
