"""Lists and dictionaries that nodes keep as arguments: assign ``node.args`` instead of changing them."""

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self, *args, **kwargs):
    raise NotImplementedError(f"{type(self).__name__} cannot be changed; assign node.args or node.kwargs")


class immutable_list(list):
    """A list that cannot be changed."""

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self):
        return hash(tuple(self))

    def __reduce__(self):
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dictionary that cannot be changed."""

    clear = pop = popitem = setdefault = update = __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self):
        return hash(frozenset(self.items()))

    def __reduce__(self):
        return immutable_dict, (tuple(self.items()),)
