"""``torch._library``: parts of ``torch.library`` that libraries import."""
