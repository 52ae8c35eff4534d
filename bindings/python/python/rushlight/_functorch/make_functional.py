"""``torch._functorch.make_functional``: modules as functions of their state."""

from .._functorch_api import FunctionalModule, FunctionalModuleWithBuffers, combine_state_for_ensemble, make_functional, make_functional_with_buffers  # noqa: F401


def functional_init_with_buffers(model_class, ensemble_shape=(), device="cpu"):
    """A function that makes a model's parameters, or those of a row of models, with the model as a function of its state."""

    def make(*args, **kwargs):
        if len(ensemble_shape) >= 2:
            raise ValueError("NYI: ensemble_shape with more than 1 element")
        if not ensemble_shape:
            return make_functional_with_buffers(model_class(*args, **kwargs).to(device))
        if ensemble_shape[0] <= 0:
            raise ValueError(f"num_models {ensemble_shape[0]} should be > 0")
        function, parameters, buffers = combine_state_for_ensemble([model_class(*args, **kwargs).to(device) for _ in range(ensemble_shape[0])])
        return parameters, buffers, function, function.param_names, function.buffer_names

    return make
