"""Selective activation checkpointing: some ops of a recomputed function keep their results, by a policy."""

import collections
import enum

from .. import _C
from .._dispatch_grad import RULES, record
from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map

__all__ = ["SAC_IGNORED_OPS", "CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]

Tensor = _C.Tensor


class CheckpointPolicy(enum.Enum):
    """Whether the value of an op is kept between the passes or computed again."""

    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD = range(5)


#: Ops that no policy is asked about.
SAC_IGNORED_OPS = frozenset({"detach", "prim"})


class SelectiveCheckpointContext:
    """What a policy is told: whether the function runs again."""

    def __init__(self, *, is_recompute, op_output=None):
        self.is_recompute, self.op_output = is_recompute, op_output


class _Selecting(TorchDispatchMode):
    """Asks a policy about every op. Parts of distributed tensors are seen, not the whole tensors."""

    #: ``checkpoint`` does not compare what the runs saved for backward: ops with kept results save other tensors.
    is_selective = True

    def __init__(self, policy, kept, allow_mutation):
        super().__init__()
        self.policy, self.kept, self.allow_mutation = policy, kept, allow_mutation

    def __torch_function__(self, func, types, args=(), kwargs=None):
        wrapper = next((kind for kind in types if getattr(kind, "_is_dtensor", False)), None)
        if wrapper is None:
            return super().__torch_function__(func, types, args, kwargs)
        with self:
            return wrapper.__torch_function__(func, types, args, kwargs or {})

    def saves(self, func, args, kwargs):
        name = func.overloadpacket.__name__
        if name in SAC_IGNORED_OPS:
            return False
        policy = self.policy(SelectiveCheckpointContext(is_recompute=self.is_recompute), func, *args, **kwargs)
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        if policy is CheckpointPolicy.MUST_CPU_OFFLOAD:
            raise NotImplementedError("create_selective_checkpoint_contexts: MUST_CPU_OFFLOAD is not supported; use MUST_SAVE within torch.autograd.graph.save_on_cpu")
        # Ops without a derivative of their arguments alone are computed again: attention and norms among them.
        return policy in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE) and name in RULES


class _Keep(_Selecting):
    is_recompute = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        saves = self.saves(func, args, kwargs)
        result = func(*args, **kwargs)
        if saves:
            kept = tree_map(lambda t: t.detach() if isinstance(t, Tensor) else t, result)
            self.kept[func].append((kept, tree_map(lambda t: t._version if isinstance(t, Tensor) else 0, kept)))
        return result


class _Reuse(_Selecting):
    is_recompute = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.saves(func, args, kwargs):
            return func(*args, **kwargs)
        if not self.kept[func]:
            raise RuntimeError(f"{func} encountered during backward, but not found in storage: the policy or the function differs from those of the forward pass")
        kept, versions = self.kept[func].popleft()
        now = tree_map(lambda t: t._version if isinstance(t, Tensor) else 0, kept)
        if now != versions and not self.allow_mutation:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated; pass allow_cache_entry_mutation=True to create_selective_checkpoint_contexts "
                "if that is intended"
            )
        if not _C.is_grad_enabled() or not any(isinstance(t, Tensor) and t.requires_grad for t in (*args, *kwargs.values())):
            return kept
        return record(func, args, kwargs, lambda: kept)


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """The two contexts that ``checkpoint(context_fn=…)`` takes. A policy is a list of ops to keep, or ``policy(context, op, *args, **kwargs)``.

    Results of products, sums and other ops whose gradients need their arguments only are kept; the others are computed again whatever the policy says.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not hasattr(op, "overloadpacket"):
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}; pass an overload such as torch.ops.aten.mm.default")
        chosen = list(policy_fn_or_list)

        def policy(context, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE if op in chosen else CheckpointPolicy.PREFER_RECOMPUTE
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept = collections.defaultdict(collections.deque)
    return _Keep(policy, kept, allow_cache_entry_mutation), _Reuse(policy, kept, allow_cache_entry_mutation)
