"""``torch.torch_version``: a version that is a string and compares as a version."""

import re

from ._version import __version__ as _text

__all__ = ["TorchVersion"]


def _release(version):
    """The numbers of a version: of a string, a tuple, or an object of ``packaging``."""
    if isinstance(version, (tuple, list)):
        return tuple(int(part) for part in version)
    found = re.match(r"\s*v?(\d+(?:\.\d+)*)", str(version))
    if found is None:
        raise ValueError(f"'{version}' is not a version")
    return tuple(int(part) for part in found.group(1).split("."))


class TorchVersion(str):
    """PyTorch's version. It compares with strings, tuples and versions, by their numbers: ``torch.__version__ >= (2, 6)``."""

    def _compared(self, other, operation):
        try:
            mine, others = _release(self), _release(other)
        except ValueError:
            return getattr(super(), operation)(str(other))
        length = max(len(mine), len(others))
        mine, others = (numbers + (0,) * (length - len(numbers)) for numbers in (mine, others))
        if mine == others and isinstance(other, str):
            # Equal numbers: a suffix (a pre-release, a local version) decides.
            suffixes = [re.sub(r"^\s*v?\d+(?:\.\d+)*", "", str(v)) for v in (self, other)]
            return getattr(suffixes[0], operation)(suffixes[1])
        return getattr(mine, operation)(others)

    def __lt__(self, other):
        return self._compared(other, "__lt__")

    def __le__(self, other):
        return self._compared(other, "__le__")

    def __gt__(self, other):
        return self._compared(other, "__gt__")

    def __ge__(self, other):
        return self._compared(other, "__ge__")

    def __eq__(self, other):
        return self._compared(other, "__eq__") if isinstance(other, (str, tuple, list)) or hasattr(other, "release") else False

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


__version__ = internal_version = TorchVersion(_text)
