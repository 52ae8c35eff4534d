"""``deepspeed.runtime.base_optimizer``."""


class DeepSpeedOptimizer:
    """The base of DeepSpeed's own optimizers. The engine steps ``torch.optim``'s, so that none is an instance."""
