"""Random functions inside of ``vmap``: refused, equal for all elements of a batch, or different."""

from .. import _C

Tensor = _C.Tensor

#: Functions that make tensors from sizes.
CREATED = frozenset("rand randn randint randperm normal".split())
#: Functions of tensors.
RANDOM = frozenset(
    "rand_like randn_like randint_like bernoulli multinomial poisson dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout "
    "gumbel_softmax rrelu rrelu_ dropout_ alpha_dropout_ normal_ uniform_ bernoulli_ exponential_ random_ cauchy_ geometric_ log_normal_ "
    "fractional_max_pool2d fractional_max_pool3d _standard_gamma _sample_dirichlet binomial".split()
)
_DROPPED = frozenset("dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout rrelu rrelu_ dropout_ alpha_dropout_".split())
#: Samples of distributions whose parameters are tensors.
_OF_PARAMETERS = frozenset("bernoulli multinomial normal poisson _standard_gamma _sample_dirichlet binomial".split())
#: Those of them that are written in Python: drawn for the whole batch, whose elements wait for one another.
_WHOLE = frozenset("_standard_gamma _sample_dirichlet binomial".split())
#: Functions of a whole batch at once whose elements are independent.
_POINTWISE = frozenset("rand_like randn_like randint_like bernoulli poisson dropout alpha_dropout rrelu normal_ uniform_ bernoulli_ exponential_ random_ cauchy_ geometric_ log_normal_".split())


def _is_random(name, args, kwargs):
    """Dropouts are not random unless they train."""
    if name not in _DROPPED:
        return True
    at = 3 if name.startswith("rrelu") else 2
    training = args[at] if len(args) > at else kwargs.get("training", kwargs.get("train", not name.startswith("rrelu")))
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    return bool(training) and (name.startswith("rrelu") or p > 0)


def _restarting(generator):
    """A function that starts the generator again for each element."""
    state = _C.get_rng_state() if generator is None else generator.get_state()

    def before(i):
        if i and generator is None:
            _C.set_rng_state(state)
        elif i:
            generator.set_state(state)

    return before


def _with_batch(level, name, args, kwargs):
    """The arguments of a function of a size with the batch as its first dimension, so that numbers come in the order of a loop; None for others."""
    if "size" in kwargs and name in ("rand", "randn", "randint"):
        return args, {**kwargs, "size": [level.size, *kwargs["size"]]}
    if name == "randint" and args and isinstance(args[-1], (list, tuple)):
        return (*args[:-1], [level.size, *args[-1]]), kwargs
    if name in ("rand", "randn"):
        return ([level.size, *(args[0] if len(args) == 1 and not isinstance(args[0], int) else args)],), kwargs
    return None


def randomly(level, name, func, args, kwargs):
    """The result of a random function by the level's randomness."""
    from . import Batched

    batched = level.mentions(args) or level.mentions(kwargs)
    if not _is_random(name, args, kwargs):
        return level.wrap(func(args[0]._value, *args[1:], **kwargs)) if batched else func(*args, **kwargs)
    if level.randomness == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap "
            "or perform the randomness operation out of vmap"
        )
    if level.randomness == "same":
        if not batched:
            return func(*args, **kwargs)
        if name in _OF_PARAMETERS or name == "bernoulli_" and (level.mentions(args[1:]) or level.mentions(kwargs)):
            raise RuntimeError(
                "Vmap does not currently support same randomness with a batched tensor input: samples of different distributions are not the same. "
                "Use randomness='different'"
            )
        return level.loop(func, args, kwargs, _restarting(kwargs.get("generator")))
    in_place = name.endswith("_")
    if name in _WHOLE:
        from ._rules import pointwise

        return pointwise(level, func, *(t if level.has(t) else Batched(level.expanded(t), level) for t in args), **kwargs)
    if not batched:
        if in_place:
            raise RuntimeError(
                "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. If this is necessary for "
                "your usage, please file an issue with functorch."
            )
        sized = _with_batch(level, name, args, kwargs)
        if sized is not None:
            return Batched(func(*sized[0], **sized[1]), level)
        if name in CREATED or not args:
            return Batched(_C._torch.stack([func(*args, **kwargs) for _ in range(level.size)]), level)
        args = (Batched(level.expanded(args[0]), level), *args[1:])
    if name in _POINTWISE and level.has(args[0]) and not level.mentions(args[1:]) and not level.mentions(kwargs) and "size" not in kwargs:
        made = func(args[0]._value, *args[1:], **kwargs)
        return args[0] if in_place else Batched(made, level)
    return level.loop(func, args, kwargs)
