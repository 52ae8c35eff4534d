"""``torch.while_loop``: a function again and again, as long as another one holds."""

from .. import _C


def while_loop(cond_fn, body_fn, carried_inputs):
    """The tensors after ``body_fn`` has been applied to them as long as ``cond_fn`` of them holds. Their sizes and dtypes stay."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple or list, but got {type(carried_inputs)}")
    carried = tuple(carried_inputs)
    while True:
        go_on = cond_fn(*carried)
        if not (isinstance(go_on, bool) or isinstance(go_on, _C.Tensor) and go_on.dtype == _C.bool and go_on.dim() == 0):
            raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {go_on}")
        if not go_on:
            return carried
        made = body_fn(*carried)
        if not isinstance(made, (tuple, list)) or len(made) != len(carried):
            raise RuntimeError(f"body_fn should return a tuple of {len(carried)} elements, as many as carried_inputs, but got {made}")
        for old, new in zip(carried, made):
            if isinstance(old, _C.Tensor) and (not isinstance(new, _C.Tensor) or (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device)):
                raise RuntimeError(f"Expected carried_inputs and body_output to have same metadata but found {old} and {new}")
        carried = tuple(made)
