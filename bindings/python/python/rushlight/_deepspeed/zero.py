"""``deepspeed.zero``."""


class Init:
    """Not supported: build the model on the meta device and shard it by ``fully_shard``."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError("deepspeed.zero.Init is not supported; build the model under torch.device('meta'), call fully_shard, then to_empty and load")


class GatheredParameters:
    """Parameters of stages 0 to 2 are whole on every rank: there is nothing to gather."""

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        params = list(params) if isinstance(params, (list, tuple)) else [params]
        if enabled and any(hasattr(p, "placements") for p in params):
            raise NotImplementedError("deepspeed.zero.GatheredParameters: sharded parameters have full_tensor()")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None
