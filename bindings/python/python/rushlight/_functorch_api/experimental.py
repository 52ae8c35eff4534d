"""``functorch.experimental``."""

from ..func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_  # noqa: F401
from .._functorch.apis import chunk_vmap  # noqa: F401
