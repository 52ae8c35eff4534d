"""``torch.distributed.algorithms``: communication hooks, and training with uneven inputs."""

from .join import Join, Joinable, JoinHook  # noqa: F401
