"""``torch.cuda.amp.common``: whether there is a GPU for mixed precision."""

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available():
    """Whether no GPU is there."""
    from .. import is_available

    return not is_available()
