"""Key-value stores by which processes find each other."""

from __future__ import annotations

import os
import time
import weakref
from datetime import timedelta

from .. import _C

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]

_DEFAULT = timedelta(seconds=300)


def _bytes(value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _seconds(timeout):
    """A timeout in seconds; None stays None."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


class _Absent:
    """The core's side of a store that is written in Python: it has the methods of its class only."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, method):
        raise NotImplementedError(f"Not implemented. {self._name} does not define {method}")


class Store:
    """Keys and values that processes share. The kinds are ``TCPStore``, ``FileStore``, ``HashStore``, ``PrefixStore``, and classes that override
    ``set``, ``get``, ``add`` and the other methods."""

    _store = None
    _wrapper = None

    def __init__(self):
        if type(self) is Store:
            raise TypeError("Store has no place to keep its keys; make a TCPStore, FileStore, HashStore or PrefixStore, or override its methods")
        self._store = _Absent(type(self).__name__)

    def _core(self):
        """The core's store: its own, or one that calls the methods of this object."""
        if isinstance(self._store, _Absent):
            if self._wrapper is None:
                self._wrapper = _C._Store.python(weakref.ref(self))
            return self._wrapper
        return self._store

    @classmethod
    def _around(cls, store):
        """A store that the core has made."""
        made = cls.__new__(cls)
        made._store = store
        return made

    def set(self, key, value):
        """Sets a key."""
        self._store.set(key, _bytes(value))

    def get(self, key):
        """The value of a key, as bytes, once it is set."""
        return self._store.get(key)

    def add(self, key, amount):
        """Adds to the number of a key, 0 if it is not set, and returns the sum."""
        return self._store.add(key, amount)

    def compare_set(self, key, expected_value, desired_value):
        """Sets a key if its value is the expected one (empty: not set). Returns the value afterwards."""
        return self._store.compare_set(key, _bytes(expected_value), _bytes(desired_value))

    def wait(self, keys, timeout=None):
        """Waits until all keys are set."""
        self._store.wait(list(keys), _seconds(timeout))

    def check(self, keys):
        """Whether all keys are set."""
        return self._store.check(list(keys))

    def delete_key(self, key):
        """Deletes a key; returns whether it existed."""
        return self._store.delete_key(key)

    def append(self, key, value):
        """Appends to the value of a key."""
        self._store.append(key, _bytes(value))

    def multi_get(self, keys):
        """The values of several keys, once all are set."""
        return self._store.multi_get(list(keys))

    def multi_set(self, keys, values):
        """Sets several keys."""
        keys, values = list(keys), list(values)
        if len(keys) != len(values):
            raise ValueError(f"multi_set: {len(keys)} keys and {len(values)} values")
        self._store.multi_set([(k, _bytes(v)) for k, v in zip(keys, values)])

    def num_keys(self):
        """Number of keys."""
        return self._store.num_keys()

    def list_keys(self):
        """All keys, in order."""
        return self._store.list_keys()

    def queue_push(self, key, value):
        """Appends a value to the queue of a name."""
        self._store.queue_push(key, _bytes(value))

    def queue_pop(self, key, block=True):
        """Takes the first value of a queue. Waits for one, or raises ``QueueEmptyError`` if ``block`` is False."""
        value = self._store.queue_pop(key, block)
        if value is None:
            from ._group import QueueEmptyError

            raise QueueEmptyError(f"the queue {key!r} is empty")
        return value

    def queue_len(self, key):
        """Number of values in a queue."""
        return self._store.queue_len(key)

    def clone(self):
        """Another handle of the same keys, for a thread that waits while others continue."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._store = self._store.clone()
        return made

    def barrier(self, key, world_size, timeout=None):
        """Waits until ``world_size`` callers have come to the barrier of this name. It can be used again."""
        number = self.add(f"{key}/arrived", 1)
        last = f"{key}/passed/{(number - 1) // world_size}"
        if number % world_size == 0:
            self.set(last, b"")
        try:
            self.wait([last], self.timeout if timeout is None else timeout)
        except _C._DistStoreError as error:
            raise _C._DistStoreError(f"barrier timeout: fewer than {world_size} callers came to {key!r}: {error}") from None

    def set_timeout(self, timeout):
        """Sets the timeout of calls."""
        self._store.set_timeout(_seconds(timeout))

    @property
    def timeout(self):
        """The timeout of calls."""
        return timedelta(seconds=self._store.timeout)

    def has_extended_api(self):
        """Whether ``append``, ``multi_get`` and ``multi_set`` are supported: by all but stores that are written in Python."""
        return not isinstance(self._store, _Absent)


class HashStore(Store):
    """A store for the threads of one process.

    >>> from rushlight.distributed import HashStore
    >>> store = HashStore()
    >>> store.set("epoch", "3")
    >>> store.get("epoch")
    b'3'
    """

    def __init__(self):
        self._store = _C._Store.hash()


class FileStore(Store):
    """A store in a file, for processes that share a file system. The file is removed when ``world_size`` processes have released it."""

    def __init__(self, file_name, world_size=-1):
        self._store = _C._Store.file(str(file_name), None if world_size is None or world_size < 0 else world_size)
        self.path = str(file_name)


class PrefixStore(Store):
    """The keys of another store that begin with a prefix."""

    def __init__(self, prefix, store):
        if not isinstance(store, Store):
            raise ValueError(f"PrefixStore: store must be a store, not {type(store).__name__}")
        self._store = _C._Store.prefix(prefix, store._core())
        self.underlying_store = store

    # A store that is written in Python may have the basic methods only.

    def append(self, key, value):
        """Appends to the value of a key."""
        if self.has_extended_api():
            return super().append(key, value)
        value = expected = _bytes(value)
        current = self.compare_set(key, b"", expected)
        while current != expected:
            expected = current + value
            current = self.compare_set(key, current, expected)

    def multi_get(self, keys):
        """The values of several keys, once all are set."""
        return super().multi_get(keys) if self.has_extended_api() else [self.get(key) for key in keys]

    def multi_set(self, keys, values):
        """Sets several keys."""
        if self.has_extended_api():
            return super().multi_set(keys, values)
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    @property
    def _underlying_non_prefix_store(self):
        found = self.underlying_store
        while isinstance(found, PrefixStore):
            found = found.underlying_store
        return found

    def has_extended_api(self):
        """Whether the underlying store has ``append``, ``multi_get`` and ``multi_set``."""
        return self.underlying_store.has_extended_api()


class TCPStore(Store):
    """A store in one process, the master, that the others reach over TCP.

    Both sides authenticate before anything is sent: by RUSHLIGHT_JOB_SECRET, or by a key in the user's home.
    """

    def __init__(
        self, host_name, port, world_size=None, is_master=False, timeout=_DEFAULT, wait_for_workers=True, multi_tenant=False, master_listen_fd=None,
        use_libuv=True,
    ):
        if world_size == 0:
            raise ValueError("TCPStore world size cannot be 0")
        # A launcher may hold the store of its ranks: then rank 0 is a client of it.
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") in ("1", "True", "true") and os.environ.get("MASTER_PORT") == str(port):
            is_master = False
        #: Which of PyTorch's two servers was asked for; there is one here.
        self.libuvBackend = use_libuv
        # One process may have several clients of a store, as multi_tenant requires; use_libuv chooses among
        # PyTorch's servers.
        key = (host_name, port)
        is_master = is_master and not (multi_tenant and key in _tenants)
        self._store, self.port = _C._Store.tcp(host_name, port, is_master, _seconds(timeout), master_listen_fd if is_master else None)
        self.host, self.is_master = host_name, is_master
        if is_master and multi_tenant:
            _tenants[(host_name, self.port)] = self._store
        self._store.set_timeout(_seconds(timeout))
        # One key counts the workers, as in PyTorch.
        came = self._store.add("_workers", 1)
        if world_size is not None and world_size > 0 and wait_for_workers and is_master:
            deadline = time.monotonic() + _seconds(timeout)
            while came < world_size:
                if time.monotonic() > deadline:
                    raise _C._DistStoreError(f"Timed out after {int(_seconds(timeout))} seconds waiting for clients. {came}/{world_size} clients joined.")
                time.sleep(0.01)
                came = self._store.add("_workers", 0)


#: Masters of this process that others may share, by host and port.
_tenants = {}


def _test_python_store(store):
    """Uses a store that is written in Python through the core, as PyTorch's own test does."""
    core = store._core()
    for key, value in (("key0", b"value0"), ("key1", b"value1"), ("key2", b"value2")):
        core.set(key, value)
    for amount in range(1, 7):
        core.add("key3", amount)
    for key, value in (("key0", b"value0"), ("key1", b"value1"), ("key2", b"value2"), ("key3", b"21")):
        assert core.get(key) == value, (key, core.get(key))
