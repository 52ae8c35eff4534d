"""The class of compiled modules: ``torch.compile(module)`` returns one."""

from ..nn import Module


class OptimizedModule(Module):
    """A module whose calls are recorded and run as programs. ``_orig_mod`` is the module itself; other attributes are its own."""

    def __init__(self, mod, dynamo_ctx=None):
        super().__init__()
        self._orig_mod = mod
        object.__setattr__(self, "_compiled", dynamo_ctx)
        self.training = mod.training

    def forward(self, *args, **kwargs):
        return self._compiled(*args, **kwargs)

    def train(self, mode=True):
        self._orig_mod.train(mode)
        self.training = mode
        return self

    def __getattr__(self, name):
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["_orig_mod"], name)

    def __reduce__(self):
        return _compiled, (self._orig_mod,)


def _compiled(module):
    from .._compile import compile

    return compile(module)


def is_dynamo_supported():
    """Whether PyTorch's compiler of Python bytecode runs here: it does not; ``torch.compile`` records what a function does."""
    return False
