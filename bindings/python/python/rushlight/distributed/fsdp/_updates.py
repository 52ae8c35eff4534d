"""Updates of shards that run while the backward pass goes on."""

import queue
import threading

from ... import optim

__all__ = ["UpdateInBackward"]

#: Optimizers that compute element by element. Others may communicate, which the backward pass does at the same time.
_ELEMENTWISE = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")


class UpdateInBackward:
    """Ours: an optimizer for each group of parameters of ``fully_shard``. When a group's gradients have arrived, a thread updates its shards, while the backward
    pass of earlier blocks goes on; ``step()`` waits for the updates. Numbers are those of one optimizer whose ``step`` runs after the backward pass.

    Nothing may need all gradients first, as clipping does, and ``step()`` follows each backward pass that reduces gradients. A group that runs more than once in a
    step, as under recomputation or accumulation, is updated by ``step()``. Gradients are dropped once they are used.

    ::

        optimizer = UpdateInBackward(model, lambda parameters: torch.optim.AdamW(parameters, lr=1e-4))
        loss.backward()
        optimizer.step()
    """

    def __init__(self, module, make):
        units = dict.fromkeys(part.__dict__["_fsdp_unit"] for part in module.modules() if "_fsdp_unit" in part.__dict__)
        self._optimizers = {}
        self._queue, self._open, self._changed, self._error = queue.SimpleQueue(), 0, threading.Condition(), None
        self._updated, self._late, self._thread = set(), [], None
        for unit in units:
            shards = [p for p in unit.shards() if p.requires_grad] if unit.group is not None else []
            if not shards:
                continue
            made = self._optimizers[unit] = make(shards)
            if type(made) not in [getattr(optim, name) for name in _ELEMENTWISE]:
                raise NotImplementedError(f"UpdateInBackward: {type(made).__name__} is not supported; use one of {', '.join(_ELEMENTWISE)}, or a plain optimizer after backward")
            unit.uses, unit.settle = 0, self._settle
            for p in shards:
                p.register_post_accumulate_grad_hook(lambda _, unit=unit: self._arrived(unit))
        if not self._optimizers:
            raise ValueError("UpdateInBackward: no module was sharded by fully_shard")

    @property
    def optimizers(self):
        """The optimizers of the groups, for schedules of learning rates and for states."""
        return list(self._optimizers.values())

    def _arrived(self, unit):
        """All gradients of a group are there: called for each of its parameters."""
        if unit in self._updated:
            # The first of the parameters has said so; gradients that come later are of another backward pass.
            if unit.uses > 1:
                # Told by step(), as other ranks are in the same backward pass.
                self._error = RuntimeError(
                    "UpdateInBackward: gradients of a second backward pass came before step(); call step() after each, or set_requires_gradient_sync(False) before"
                )
            return
        if unit.uses > 1:
            if unit not in self._late:
                self._late.append(unit)
            return
        self._updated.add(unit)
        with self._changed:
            self._open += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="updates")
            self._thread.start()
        self._queue.put(unit)

    def _work(self):
        while True:
            unit = self._queue.get()
            try:
                self._update(unit)
            except BaseException as error:  # noqa: BLE001: step() raises it.
                self._error = error
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def _update(self, unit):
        self._optimizers[unit].step()
        self._optimizers[unit].zero_grad()

    def _settle(self):
        """Waits for the updates that were begun."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def step(self):
        """Waits until all groups that have gradients are updated."""
        for unit in self._late:
            self._update(unit)
        self._settle()
        self._updated.clear()
        self._late.clear()
        for unit in self._optimizers:
            unit.uses = 0
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def zero_grad(self, set_to_none=True):
        """Drops gradients that no update has used."""
        for optimizer in self._optimizers.values():
            optimizer.zero_grad(set_to_none)
