"""``torch.distributed.elastic``: jobs whose ranks are started again. The launcher is ``rushlight.run``."""
