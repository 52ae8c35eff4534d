"""What the loader is made of."""

from . import collate, fetch, worker  # noqa: F401
