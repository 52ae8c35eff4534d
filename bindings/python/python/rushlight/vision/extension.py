"""``torchvision.extension``: the ops of ``torchvision.ops`` need no library of their own here."""


def _has_ops():
    return True


def _assert_has_ops():
    """Does nothing: there are ops."""
