"""``torch.random``: the state of the default generator."""

from ._C import get_rng_state, initial_seed, seed, set_rng_state  # noqa: F401
from ._functions import default_generator, manual_seed  # noqa: F401


class fork_rng:
    """Restores the generator at the end of the block."""

    def __init__(self, devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
        self._enabled = enabled

    def __enter__(self):
        self._state = get_rng_state()

    def __exit__(self, *exception):
        if self._enabled:
            set_rng_state(self._state)
