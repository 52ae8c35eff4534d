"""``torch.__future__``: how ``Module.to`` and ``load_state_dict`` change parameters."""

_settings = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value):
    """Whether converting a module makes new parameters, instead of giving the old ones new data."""
    _settings["overwrite"] = value


def get_overwrite_module_params_on_conversion():
    """What ``set_overwrite_module_params_on_conversion`` has set."""
    return _settings["overwrite"]


def set_swap_module_params_on_conversion(value):
    """Whether converting or loading a module swaps its parameters with new ones (``torch.utils.swap_tensors``)."""
    _settings["swap"] = value


def get_swap_module_params_on_conversion():
    """What ``set_swap_module_params_on_conversion`` has set."""
    return _settings["swap"]
