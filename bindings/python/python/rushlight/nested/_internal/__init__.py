"""Private modules of PyTorch's nested tensors that libraries import."""
