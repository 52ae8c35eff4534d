"""Handles of registered hooks: ``torch.utils.hooks``."""

import itertools
import weakref

_ids = itertools.count()


class RemovableHandle:
    """Removes a hook from the dictionary it was registered in; also a context manager."""

    def __init__(self, hooks_dict, *, extra_dict=None):
        self.id = next(_ids)
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        extra = extra_dict if isinstance(extra_dict, (list, tuple)) else [] if extra_dict is None else [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra)

    def remove(self):
        """Removes the hook; a second call has no effect."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self):
        return (self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref))

    def __setstate__(self, state):
        from collections import OrderedDict

        hooks, self.id, extra = state
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extra)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()
