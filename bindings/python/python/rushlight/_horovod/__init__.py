"""``horovod``: its package for PyTorch, over ``torch.distributed``."""
