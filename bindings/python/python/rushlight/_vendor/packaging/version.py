"""``packaging.version``, which must be installed."""

from packaging.version import InvalidVersion, Version, parse  # noqa: F401
