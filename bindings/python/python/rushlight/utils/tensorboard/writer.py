"""``torch.utils.tensorboard.writer``: the module in which PyTorch defines the writers."""

from . import FileWriter, SummaryWriter  # noqa: F401
