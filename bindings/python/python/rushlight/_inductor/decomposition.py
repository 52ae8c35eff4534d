"""``torch._inductor.decomposition``: how a compiler would split ops. Programs here run ops as they are, so the table is kept and not used."""

#: Functions by op.
decompositions = {}


def register_decomposition(ops):
    """A decorator that keeps a function as the decomposition of ops."""

    def register(function):
        for op in ops if isinstance(ops, (list, tuple)) else [ops]:
            decompositions[op] = function
        return function

    return register
