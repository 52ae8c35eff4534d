"""``torch.mps``: the machine's accelerators. Apple's GPUs are not among them."""

from . import _accelerator

globals().update(_accelerator.functions("mps"))


def _no_device(name):
    def ask(*args, **kwargs):
        raise RuntimeError(f"torch.mps.{name}: there is no MPS device; torch.backends.mps.is_available() is False")

    ask.__name__ = ask.__qualname__ = name
    return ask


for _name in ("compile_shader", "current_allocated_memory", "driver_allocated_memory", "recommended_max_memory", "set_per_process_memory_fraction"):
    globals()[_name] = _no_device(_name)


def __getattr__(name):
    from ._functions import _missing

    return _missing(__name__, name)
