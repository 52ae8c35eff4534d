"""``torch.foreach``: functions over lists of tensors, such as ``torch.foreach.add``. Those in place return their tensors."""

import functools

__all__ = (
    "abs abs_ acos acos_ add add_ addcdiv addcdiv_ addcmul addcmul_ asin asin_ atan atan_ ceil ceil_ clamp_max clamp_max_ clamp_min clamp_min_ clone copy_ cos cos_ "
    "cosh cosh_ div div_ erf erf_ erfc erfc_ exp exp_ expm1 expm1_ floor floor_ frac frac_ lerp lerp_ lgamma lgamma_ log log10 log10_ log1p log1p_ log2 log2_ log_ "
    "max maximum maximum_ minimum minimum_ mm mul mul_ neg neg_ norm pow pow_ reciprocal reciprocal_ round round_ rsqrt rsqrt_ sigmoid sigmoid_ sign sign_ sin sin_ "
    "sinh sinh_ sqrt sqrt_ sub sub_ tan tan_ tanh tanh_ trunc trunc_ zero_"
).split()


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from . import _foreach

    function = getattr(_foreach, f"_foreach_{name}")
    if not name.endswith("_"):
        return function

    @functools.wraps(function)
    def run(self, *args, **kwargs):
        function(self, *args, **kwargs)
        return list(self)

    return run


def norm(self, *, ord=2, dtype=None):
    """The norm of each tensor of a list."""
    from . import _foreach

    return _foreach._foreach_norm(self, ord, dtype)


def __dir__():
    return list(__all__)
