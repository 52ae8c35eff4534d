"""What libraries use of ``torch._subclasses.fake_tensor`` although no tensor here is fake."""

import contextlib

__all__ = ["unset_fake_temporarily"]


@contextlib.contextmanager
def unset_fake_temporarily():
    """Gives None: no mode of fake tensors is ever on."""
    yield None
