"""Preemption: a job that is about to lose its nodes saves its state at the edge of a step and asks to be queued again.

    preemption = Preemption()
    for step, batch in enumerate(loader):
        ...
        if preemption.agreed():
            save_checkpoint()
            sys.exit(preemption.requeue())

Schedulers send SIGTERM or SIGUSR1 some time before they take the nodes. The handler sets a flag and nothing else. At the
edge of each step the ranks tell each other of their flags, so that all stop after the same step.
"""

import os
import signal
import subprocess
import sys

__all__ = ["REQUEUE_CODE", "Preemption"]

#: Exit code of a program that requests to be requeued. ``rushlight run`` passes it on; scripts of ``rushlight job`` act
#: on it.
REQUEUE_CODE = 75


class Preemption:
    """Watches for signals, on every rank. Construct it in the main thread, after ``init_process_group``."""

    def __init__(self, signals=(signal.SIGTERM, signal.SIGUSR1)):
        self._signal = None
        self._pending = None
        self._agreed = False
        for number in signals:
            signal.signal(number, self._note)

    def _note(self, number, _frame):
        self._signal = number

    def is_requested(self):
        """Whether this rank has received a signal."""
        return self._signal is not None

    def agreed(self):
        """Whether the ranks must save and exit: the same answer on every rank. Call it at the end of each step, equally often on every rank.

        The flags of this step are sent on their way and those of the step before are answered: nobody waits for the network."""
        import rushlight as torch

        distributed = torch.distributed
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return self.is_requested()
        if not self._agreed and self._pending is not None:
            work, flag = self._pending
            self._pending = None
            work.wait()
            self._agreed = bool(flag.item())
        if not self._agreed:
            flag = torch.tensor([int(self.is_requested())])
            self._pending = distributed.all_reduce(flag, op=distributed.ReduceOp.MAX, async_op=True), flag
        return self._agreed

    def requeue(self):
        """Requests another job, and returns the exit code for it. Call it when the state is saved, then exit with that code.

        A program that ``srun`` started itself has no launcher above that would act on the code: its rank 0 calls ``scontrol requeue``."""
        job = os.environ.get("SLURM_JOB_ID")
        first = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"
        if job and first and not os.environ.get("TORCHELASTIC_RUN_ID"):
            try:
                subprocess.run(["scontrol", "requeue", job], check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"rushlight: scontrol requeue {job} failed ({error}); submit the job again to continue", file=sys.stderr)
        return REQUEUE_CODE
