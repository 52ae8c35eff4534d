"""``torch.numa``: which processors ranks are bound to."""
