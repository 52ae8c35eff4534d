"""The configuration: known keys are read, keys that would have no effect are refused by name."""

from __future__ import annotations

import difflib

#: Keys that are read; others raise.
_TOP = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer", "scheduler", "fp16", "bf16", "bfloat16",
    "gradient_clipping", "zero_optimization", "steps_per_print", "wall_clock_breakdown", "prescale_gradients", "gradient_predivide_factor",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "dump_state", "memory_breakdown",
    "activation_checkpointing", "aio", "plan",
}
#: What ``rushlight plan --write`` says beside DeepSpeed's keys.
_PLAN = {"model", "devices", "mesh", "pipeline_schedule", "activation_checkpointing"}
#: Of activation checkpointing, which the model's own calls do: what would move activations is refused.
_ACTIVATIONS = {"partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "synchronize_checkpoint_boundary", "number_checkpoints", "profile"}
#: Of asynchronous input and output to devices named "nvme": hints, as files are mapped and the system reads and
#: writes them.
_AIO = {"block_size", "queue_depth", "single_submit", "overlap_events", "thread_count"}
_HALF = {"enabled", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale", "consecutive_hysteresis", "auto_cast"}
#: Sizes of buckets and prefetching: hints, which change when DeepSpeed communicates, not what it computes.
_HINTS = {
    "allgather_partitions", "allgather_bucket_size", "overlap_comm", "reduce_scatter", "reduce_bucket_size", "contiguous_gradients", "round_robin_gradients",
    "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance", "sub_group_size",
    "stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save", "use_multi_rank_bucket_allreduce", "elastic_checkpoint",
}
_OFFLOAD = {"device", "pin_memory", "buffer_count", "buffer_size", "fast_init", "ratio", "pipeline_read", "pipeline_write", "max_in_cpu", "nvme_path"}


def _only(section, known, found):
    if not isinstance(found, dict):
        raise TypeError(f"DeepSpeed configuration: '{section}' should be a dictionary, got {found!r}")
    for key, value in found.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            where = f"'{section}.{key}'" if section else f"'{key}'"
            raise ValueError(f"DeepSpeed configuration: {where} is not supported{hint}")
        if value == "auto":
            raise ValueError(f"DeepSpeed configuration: '{key}' is 'auto', which the trainer should have replaced by a value")


def _positive(name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"DeepSpeed configuration: '{name}' should be a positive integer, got {value!r}")
    return value


class Config:
    """The values of a configuration."""

    def __init__(self, found, world_size):
        _only("", _TOP, found)
        self._check_plan(found.get("plan", {}), world_size)
        self.batch, self.micro_batch, self.accumulation = self._batches(found, world_size)
        zero = found.get("zero_optimization", {})
        _only("zero_optimization", _HINTS | {"stage", "offload_optimizer", "offload_param", "cpu_offload"}, zero)
        self.stage = zero.get("stage", 0)
        if self.stage not in (0, 1, 2, 3):
            raise ValueError(f"DeepSpeed configuration: 'zero_optimization.stage' should be 0, 1, 2 or 3, got {self.stage!r}")
        self.offload_optimizer, self.optimizer_files = self._offload(zero, "offload_optimizer")
        self.offload_optimizer = self.offload_optimizer or bool(zero.get("cpu_offload", False))
        self.offload_param, self.param_files = self._offload(zero, "offload_param")
        if self.offload_param and self.stage != 3:
            raise ValueError("DeepSpeed configuration: 'zero_optimization.offload_param' needs stage 3")
        if self.offload_optimizer and self.stage == 0:
            raise ValueError("DeepSpeed configuration: 'zero_optimization.offload_optimizer' needs stage 1, 2 or 3")
        names = ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")
        self.gathers_weights = any(bool(zero.get(name, False)) for name in names)
        self.fp16 = found.get("fp16", {})
        _only("fp16", _HALF, self.fp16)
        bf16 = found.get("bf16", found.get("bfloat16", {}))
        _only("bf16", {"enabled", "immediate_grad_update"}, bf16)
        self.use_fp16, self.use_bf16 = bool(self.fp16.get("enabled", False)), bool(bf16.get("enabled", False))
        if self.use_fp16 and self.use_bf16:
            raise ValueError("DeepSpeed configuration: 'fp16' and 'bf16' cannot both be enabled")
        if self.fp16.get("auto_cast"):
            raise ValueError("DeepSpeed configuration: 'fp16.auto_cast' is not supported; convert the inputs")
        self.clipping = float(found.get("gradient_clipping", 0.0))
        if found.get("prescale_gradients") or found.get("gradient_predivide_factor", 1.0) != 1.0:
            raise ValueError("DeepSpeed configuration: 'prescale_gradients' is not supported; gradients are averaged")
        self.optimizer, self.scheduler = found.get("optimizer"), found.get("scheduler")
        for name, section in (("optimizer", self.optimizer), ("scheduler", self.scheduler)):
            if section is not None:
                _only(name, {"type", "params"}, section)
        activations = found.get("activation_checkpointing", {})
        _only("activation_checkpointing", _ACTIVATIONS, activations)
        for name in ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization"):
            if activations.get(name):
                raise ValueError(f"DeepSpeed configuration: 'activation_checkpointing.{name}' is not supported; activations stay where they are")
        _only("aio", _AIO, found.get("aio", {}))
        self.steps_per_print = found.get("steps_per_print")

    @staticmethod
    def _check_plan(plan, world):
        """A plan is for a number of ranks, all of which are data parallel here; what it says of recomputation is the model's."""
        _only("plan", _PLAN, plan)
        if plan.get("devices", world) != world:
            raise ValueError(f"DeepSpeed configuration: the plan is for {plan['devices']} devices, not for {world} ranks")
        split = {name: size for name, size in plan.get("mesh", {}).items() if name != "dp" and size != 1}
        if split:
            shown = " and ".join(f"{name} {size}" for name, size in sorted(split.items()))
            raise ValueError(f"DeepSpeed configuration: the plan has {shown}, and deepspeed.initialize is data parallel only; split the model by parallelize_module, "
                             "pipelining and fully_shard over init_device_mesh(device, (pp, dp, tp))")

    @staticmethod
    def _offload(zero, name):
        """Whether to offload, and the folder of the files to offload to."""
        section = zero.get(name)
        if section is None:
            return False, None
        where = f"zero_optimization.{name}"
        _only(where, _OFFLOAD, section)
        device = section.get("device", "none")
        if device not in ("none", "cpu", "nvme"):
            raise ValueError(f"DeepSpeed configuration: '{where}.device' should be 'cpu', 'nvme' or 'none', got {device!r}")
        folder = section.get("nvme_path")
        if device == "nvme" and not folder:
            raise ValueError(f"DeepSpeed configuration: '{where}.device' 'nvme' needs '{where}.nvme_path', the folder of the files")
        return device != "none", str(folder) if device == "nvme" else None

    @staticmethod
    def _batches(found, world):
        """The batch, the microbatch of a rank and the number of accumulated ones: two of them give the third."""
        names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        batch, micro, steps = (None if found.get(n) is None else _positive(n, found[n]) for n in names)
        if batch is None and micro is None:
            raise ValueError("DeepSpeed configuration: 'train_batch_size' or 'train_micro_batch_size_per_gpu' needs to be set")
        if batch is None:
            steps = steps or 1
            batch = micro * steps * world
        elif micro is None:
            steps = steps or 1
            micro = batch // (steps * world)
        elif steps is None:
            steps = batch // (micro * world)
        if batch != micro * steps * world:
            raise ValueError(
                f"Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size {batch} != {micro} * {steps} * {world}"
            )
        return batch, micro, steps
