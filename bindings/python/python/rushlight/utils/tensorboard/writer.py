"""``torch.utils.tensorboard.writer``: where PyTorch defines the writers."""

from . import FileWriter, SummaryWriter  # noqa: F401
