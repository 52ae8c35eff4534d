"""Named tuples that functions return, such as ``torch.return_types.max``."""

_classes = {}

_FIELDS = {
    "aminmax": "min max", "cummax": "values indices", "cummin": "values indices", "frexp": "mantissa exponent", "geqrf": "a tau", "histogram": "hist bin_edges",
    "histogramdd": "hist bin_edges", "kthvalue": "values indices", "linalg_cholesky_ex": "L info", "linalg_eig": "eigenvalues eigenvectors",
    "linalg_eigh": "eigenvalues eigenvectors", "linalg_inv_ex": "inverse info", "linalg_ldl_factor": "LD pivots", "linalg_ldl_factor_ex": "LD pivots info",
    "linalg_lstsq": "solution residuals rank singular_values", "linalg_lu": "P L U", "linalg_lu_factor": "LU pivots", "linalg_lu_factor_ex": "LU pivots info",
    "linalg_qr": "Q R", "linalg_slogdet": "sign logabsdet", "linalg_solve_ex": "result info", "linalg_svd": "U S Vh", "lu_unpack": "P L U", "max": "values indices",
    "median": "values indices", "min": "values indices", "mode": "values indices", "nanmedian": "values indices", "slogdet": "sign logabsdet",
    "sort": "values indices", "svd": "U S V", "topk": "values indices", "triangular_solve": "solution cloned_coefficient",
}


def of(name, fields):
    """The class of a function's results, created on first use."""
    found = _classes.get(name)
    if found is None:
        from collections import namedtuple

        base = namedtuple(name, fields)

        def make(cls, values, *rest):
            # The values in a sequence, as PyTorch has it, or one after the other, as named tuples have.
            return tuple.__new__(cls, (values, *rest) if rest else values)

        def show(self):
            return f"torch.return_types.{name}(\n" + ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self)) + ")"

        def reduce(self):
            return _rebuild, (name, fields, tuple(self))

        found = type(name, (base,), {"__slots__": (), "__new__": make, "__repr__": show, "__reduce__": reduce, "__module__": __name__})
        _classes[name] = found
        globals()[name] = found
    return found


def _rebuild(name, fields, values):
    return of(name, fields)(values)


def __getattr__(name):
    """The class of a function's results, or of its results that ``out=`` takes; ``all_return_types`` lists the former."""
    if name == "all_return_types":
        return [of(known, fields.split()) for known, fields in _FIELDS.items()]
    plain = name[:-4] if name.endswith("_out") else name
    if plain not in _FIELDS or name == "histogramdd_out":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return of(name, _FIELDS[plain].split())
