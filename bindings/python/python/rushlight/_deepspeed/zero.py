"""``deepspeed.zero``."""


class Init:
    """A context in which models are built. They are built whole, and ``initialize`` shards them; build one that no rank can hold on the meta device."""

    def __init__(self, module=None, data_parallel_group=None, mem_efficient_linear=True, remote_device=None, pin_memory=False, config_dict_or_path=None, config=None,
                 enabled=True, dtype=None, mpu=None, zero_param_parallel_group=None, zero_quantized_weights=False, zero_quantized_nontrainable_weights=False,
                 sequence_data_parallel_group=None, param_swapper=None):
        for name, value in (("mpu", mpu), ("zero_quantized_weights", zero_quantized_weights), ("param_swapper", param_swapper), ("module", module), ("dtype", dtype)):
            if enabled and value:
                raise NotImplementedError(f"deepspeed.zero.Init: {name} is not supported")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


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
