"""The reducer of ``DistributedDataParallel``: sends gradients in buckets while backward runs.

Hooks of the parameters report finished gradients. Full buckets are sent in order, the same on all ranks. A callback at the end of backward
waits for them and stores the means in the parameters. After the first pass the buckets are rebuilt in the gradients' order.
"""

from __future__ import annotations

import weakref

from ... import _C
from ...distributed import _collectives as dist

_MIB = 1 << 20
_torch = _C._torch


class _Quiet:
    """A context without recording."""

    def __enter__(self):
        self._before = _C._set_grad_enabled(False)

    def __exit__(self, *exception):
        _C._set_grad_enabled(self._before)


class Bucket:
    """Gradients that are sent together: one flat tensor, and a view of it for each."""

    def __init__(self, indices, parameters):
        total = sum(parameters[i].numel() for i in indices)
        like = parameters[indices[0]]
        self.flat = _torch.zeros(total, dtype=like.dtype, device=like.device)
        self.members, offset = [], 0
        for i in indices:
            count = parameters[i].numel()
            self.members.append((i, self.flat.narrow(0, offset, count).view(parameters[i].shape)))
            offset += count
        self.pending = len(self.members)


def divide(order, parameters, cap):
    """Buckets of at most ``cap`` bytes, of one dtype and device each, in the given order. The first is small, so that communication starts early."""
    done, open_lists = [], {}
    for i in order:
        p = parameters[i]
        key = (p.dtype, str(p.device))
        indices, size = open_lists.setdefault(key, ([], 0))
        indices.append(i)
        size += p.numel() * p.element_size()
        open_lists[key] = (indices, size)
        if size >= (cap if done else min(cap, _MIB)):
            done.append(indices)
            del open_lists[key]
    done.extend(indices for indices, _ in open_lists.values())
    return [Bucket(indices, parameters) for indices in done]


class GradBucket:
    """A bucket as communication hooks see it."""

    def __init__(self, bucket, index, last, parameters):
        self._bucket, self._index, self._last, self._parameters = bucket, index, last, parameters
        self._buffer = bucket.flat

    def index(self):
        return self._index

    def buffer(self):
        """The gradients as one flat tensor."""
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer = buffer

    def gradients(self):
        """The gradients as views of it."""
        return [view for _, view in self._bucket.members]

    def parameters(self):
        return [self._parameters[i] for i, _ in self._bucket.members]

    def is_last(self):
        return self._last


class Reducer:
    def __init__(self, named, pg, cap, as_view=False, find_unused=False, static=False, zero_missing=False):
        self.names, self.parameters = [n for n, _ in named], [p for _, p in named]
        self.pg, self.cap, self.as_view, self.find_unused, self.static = pg, cap, as_view, find_unused, static
        count = len(named)
        #: Whether a missing gradient counts as zero instead of an error.
        self.zero_missing = zero_missing
        self.hook = None
        self.sync = True
        self.settled = False
        #: Number of ranks to divide by while some have run out of inputs; None for all.
        self.divisor = None
        self.expected, self.unused = [1] * count, [False] * count
        #: Parameters whose gradients changed since the last all-reduce, also within ``no_sync``.
        self.used = [False] * count
        self.sent = []
        self._place(divide(range(count - 1, -1, -1), self.parameters, cap))
        self._begin()
        self.handles = [p.register_post_accumulate_grad_hook(self._hook_of(i)) for i, p in enumerate(self.parameters)]

    def _hook_of(self, index):
        # Parameters keep their hooks; hooks must not keep the parameters.
        reducer = weakref.ref(self)

        def came(parameter):
            alive = reducer()
            if alive is not None:
                alive._came(index)

        return came

    def _place(self, buckets):
        self.buckets = buckets
        self.places = [None] * len(self.parameters)
        for bucket in buckets:
            for index, view in bucket.members:
                self.places[index] = (bucket, view)
                if self.as_view:
                    # Backward writes most gradients there directly.
                    _C._set_grad_home(self.parameters[index], view)

    def _drain(self):
        """Waits for buckets that a failed pass left in flight: they are about to be reused. That pass has reported the error."""
        sent, self.sent = self.sent, []
        for work in sent:
            try:
                if work is not None:
                    work.wait()
            except Exception:
                pass

    def _begin(self):
        """Resets to the state before the first gradient of a pass."""
        self.under_way, self.next, self.order = False, 0, []
        self.came = [0] * len(self.parameters)
        for bucket in self.buckets:
            bucket.pending = len(bucket.members)

    def is_idle(self):
        """Whether there is no other rank and no hook."""
        return self.pg.size() == 1 and self.hook is None

    def before_forward(self, sync):
        self.sync = sync
        self._drain()
        self._begin()

    def after_forward(self, outputs):
        """Finds parameters that outputs do not depend on."""
        if self.find_unused and not self.static and self.sync:
            self.unused = _C._unused_parameters(outputs, self.parameters)

    def prepare_for_forward(self):
        """PyTorch's name of the beginning of a pass."""
        self.before_forward(True)

    def prepare_for_backward(self, outputs):
        """PyTorch's name: the next backward pass ends with the exchange, also if its forward pass ran within ``no_sync``. Parameters that the outputs, a
        tensor or several, do not depend on are not waited for."""
        self.before_forward(True)
        outputs = [outputs] if isinstance(outputs, _C.Tensor) else list(outputs)
        if outputs:
            self.after_forward(outputs)

    def _came(self, index):
        self.used[index] = True
        if not self.sync or self.is_idle():
            return
        with _Quiet():
            if not self.under_way:
                self.under_way = True
                self._drain()
                _C._queue_callback(self._finish)
                for i, unused in enumerate(self.unused):
                    if unused:
                        self._complete(i)
            self.came[index] += 1
            if self.came[index] == 1:
                self.order.append(index)
            if (self.static and not self.settled) or self.came[index] < self.expected[index]:
                return
            if self.came[index] > self.expected[index] or self.unused[index]:
                raise RuntimeError(
                    f"Expected to mark a variable ready only once: the gradient of {self.names[index]} came more than once in one backward pass, or it came "
                    "although the forward pass did not use the parameter. Return everything the loss is made of from forward, or pass static_graph=True"
                )
            self._complete(index)

    def _complete(self, index):
        """Called when a gradient has its final value: sends full buckets."""
        self.places[index][0].pending -= 1
        while self.next < len(self.buckets) and self.buckets[self.next].pending == 0:
            self._send()

    def _send(self):
        bucket, number = self.buckets[self.next], self.next
        places, gradients = [], []
        for index, view in bucket.members:
            gradient = self.parameters[index].grad
            if gradient is None:
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr() or gradient.stride() != view.stride():
                places.append(view)
                gradients.append(gradient.detach())
        _C._foreach_copy_list(places, gradients)
        self.next += 1
        self.sent.append(self._communicate(bucket, number, self.next == len(self.buckets)))

    def _communicate(self, bucket, number, last):
        if self.hook is not None:
            hook, state = self.hook
            return hook(state, GradBucket(bucket, number, last, self.parameters))
        if self.divisor is not None:
            return dist.all_reduce(bucket.flat, dist.ReduceOp.SUM, self.pg, async_op=True)
        # No work is left to overlap with: the last one runs here.
        return dist.all_reduce(bucket.flat, dist.ReduceOp.AVG, self.pg, async_op=not last)

    def _finish(self):
        """The end of backward."""
        with _Quiet():
            if self.static and not self.settled:
                self.expected = [max(1, n) for n in self.came]
                self.unused = [n == 0 for n in self.came]
                for index in range(len(self.parameters)):
                    self._complete(index)
            if self.zero_missing:
                for index in [i for i, came in enumerate(self.came) if not came]:
                    self._complete(index)
            if self.next < len(self.buckets):
                missing = [n for n, came, expected, unused in zip(self.names, self.came, self.expected, self.unused) if came < expected and not unused]
                self._begin()
                raise RuntimeError(
                    "Expected to have finished reduction in the prior iteration: these parameters had no part in the loss: "
                    f"{', '.join(missing)}. Make all outputs of forward part of the loss, or pass find_unused_parameters=True"
                )
            self._receive()
            self._give_back()
            self.used = [False] * len(self.parameters)
            self._settle()
            self._begin()

    def _receive(self):
        for bucket, sent in zip(self.buckets, self.sent):
            # A failed wait leaves the list for `_drain`.
            result = sent.wait() if sent is not None else None
            if self.hook is not None:
                result = result[0] if isinstance(result, (list, tuple)) else result
                if result.data_ptr() != bucket.flat.data_ptr():
                    bucket.flat.copy_(result.view(-1))
            elif self.divisor is not None:
                bucket.flat.div_(self.divisor)
        self.sent = []

    def _used_anywhere(self):
        """The parameters that some rank used since the last all-reduce."""
        if not (self.find_unused or self.static):
            return None
        used = _C.tensor([int(used) for used in self.used], dtype=_C.uint8)
        dist.all_reduce(used, dist.ReduceOp.MAX, self.pg)
        return used.tolist()

    def _give_back(self):
        """Stores the means in the gradients. A parameter that no rank used keeps its gradient."""
        used = self._used_anywhere()
        gradients, places = [], []
        for bucket in self.buckets:
            for index, view in bucket.members:
                if used is not None and not used[index]:
                    continue
                parameter = self.parameters[index]
                gradient = parameter.grad
                if gradient is not None and gradient.data_ptr() == view.data_ptr() and gradient.numel():
                    continue
                if self.as_view:
                    parameter.grad = view
                elif gradient is None:
                    parameter.grad = view.clone()
                else:
                    gradients.append(gradient.detach())
                    places.append(view)
        _C._foreach_copy_list(gradients, places)

    def _settle(self):
        """After the first pass: buckets in the order of arrival on rank 0. With ``find_unused_parameters`` that order varies, so buckets stay."""
        if self.settled:
            return
        self.settled = True
        if self.find_unused and not self.static:
            return
        count = len(self.parameters)
        seen = set(self.order)
        order = _C.tensor(self.order + [i for i in range(count - 1, -1, -1) if i not in seen], dtype=_C.int64)
        dist.broadcast(order, group=self.pg, group_src=0)
        order = order.tolist()
        if sorted(order) != list(range(count)):
            raise RuntimeError("DistributedDataParallel: rank 0 sent a bucket order that does not match this rank's parameters")
        if order == [i for bucket in self.buckets for i, _ in bucket.members]:
            return
        before = self.places
        self._place(divide(order, self.parameters, self.cap))
        for (_, old), (_, new), parameter in zip(before, self.places, self.parameters):
            gradient = parameter.grad
            if gradient is not None and gradient.numel() and gradient.data_ptr() == old.data_ptr():
                new.copy_(gradient)
                parameter.grad = new

    def shadow(self):
        """A pass of a rank without inputs: takes part in the all-reduces with zero gradients."""
        with _Quiet():
            self._drain()
            self._begin()
            for number, bucket in enumerate(self.buckets):
                bucket.flat.zero_()
                self.sent.append(self._communicate(bucket, number, number + 1 == len(self.buckets)))
            self._receive()
            if self.find_unused or self.static:
                dist.all_reduce(_torch.zeros(len(self.parameters), dtype=_C.uint8), dist.ReduceOp.MAX, self.pg)
            self._settle()
            self._begin()

    def __del__(self):
        for handle in getattr(self, "handles", ()):
            handle.remove()
        if getattr(self, "as_view", False):
            for parameter in self.parameters:
                _C._set_grad_home(parameter, None)
