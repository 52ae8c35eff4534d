"""Where PyTorch keeps copies of other packages; here they are those that are installed."""
