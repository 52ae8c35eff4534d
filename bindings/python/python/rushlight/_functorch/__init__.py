"""``torch._functorch``: parts of ``vmap`` and of transforms that libraries import. ``functorch`` itself is ``rushlight._functorch_api``."""

from . import apis, vmap  # noqa: F401
