"""What libraries import of PyTorch's own test tools."""
