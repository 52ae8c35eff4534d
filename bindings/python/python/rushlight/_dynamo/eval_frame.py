"""The class of compiled modules. There are none: ``torch.compile`` returns models unchanged."""

from .. import _absent

REASON = "models run as they are; torch.compile gives them back"

OptimizedModule = _absent.absent_class("torch._dynamo.OptimizedModule", REASON)
