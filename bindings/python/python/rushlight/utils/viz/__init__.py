"""``torch.utils.viz``: pictures of memory."""
