"""``deepspeed.accelerator``: the device that programs run on."""

__all__ = ["get_accelerator"]


class _Accelerator:
    """The current accelerator, or the CPU."""

    def _module(self):
        import rushlight as torch

        return getattr(torch, self.device_name())

    def device_name(self, device_index=None):
        """``cuda``, ``xpu`` or ``cpu``; with an index the device's name."""
        import rushlight as torch

        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        kind = found.type if found is not None else "cpu"
        return kind if device_index is None else f"{kind}:{device_index}"

    def current_device_name(self):
        """The current device, with its index."""
        return self.device_name() if self.device_name() == "cpu" else self.device_name(self._module().current_device())

    def device_count(self):
        """Number of devices; 1 for the CPU."""
        return 1 if self.device_name() == "cpu" else self._module().device_count()

    def is_available(self):
        """Whether there is a device: always."""
        return True

    def communication_backend_name(self):
        """The backend of process groups."""
        return "nccl" if self.device_name() == "cuda" else "gloo"

    def is_bf16_supported(self):
        """Whether bfloat16 is supported: everywhere."""
        return True

    def is_fp16_supported(self):
        """Whether float16 is supported: everywhere."""
        return True

    def empty_cache(self):
        """Frees cached memory of a device."""
        if self.device_name() != "cpu":
            self._module().empty_cache()

    def synchronize(self, device_index=None):
        """Waits for the device."""
        if self.device_name() != "cpu":
            self._module().synchronize(device_index)


_accelerator = _Accelerator()


def get_accelerator():
    """The device of this process."""
    return _accelerator
