"""Names of PyTorch's experiments with graphs that libraries import."""
