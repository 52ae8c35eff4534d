"""Queries about symbolic sizes; all sizes are numbers here."""


class GuardOnDataDependentSymNode(RuntimeError):
    """An error of symbols without a value; never raised here."""


def guard_or_true(a):
    """Whether a condition holds."""
    return bool(a)


guard_or_false = guard_size_oblivious = statically_known_true = guard_bool = guard_or_true


def is_symbolic(val):
    """Whether a number is a symbol: always False."""
    return False


has_free_symbols = has_free_unbacked_symbols = is_symbolic


def free_symbols(val):
    """The symbols in a value: always empty."""
    return set()


free_unbacked_symbols = free_symbols
