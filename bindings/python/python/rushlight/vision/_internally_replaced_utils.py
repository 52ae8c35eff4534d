"""Where libraries import downloads of torchvision from."""

from ..hub import load_state_dict_from_url  # noqa: F401
