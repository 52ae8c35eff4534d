"""``torch.utils.tensorboard``, for the error it raises."""

raise ImportError(
    "rushlight.utils.tensorboard: writing TensorBoard's files is not supported; write metrics with the csv or json module, or use the package "
    "tensorboardX, whose SummaryWriter has the same methods"
)
