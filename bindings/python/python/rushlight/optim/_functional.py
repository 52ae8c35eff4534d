"""``torch.optim._functional``, which older programs import: ``torch.optim.functional``."""

from .functional import adadelta, adagrad, adam, adamax, adamw, asgd, nadam, radam, rmsprop, rprop, sgd  # noqa: F401
