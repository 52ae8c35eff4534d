"""``torch.utils.benchmark``: timing of statements."""

import statistics
import timeit as _timeit

from .. import _accelerator, _C

__all__ = ["Measurement", "Timer"]


def _clock():
    _C._synchronize(_accelerator.place("cuda"))
    return _timeit.default_timer()


class Measurement:
    """Times of several runs of a statement, in seconds."""

    def __init__(self, number_per_run, raw_times, title=""):
        self.number_per_run, self.raw_times, self.title = number_per_run, raw_times, title

    times = property(lambda self: [t / self.number_per_run for t in self.raw_times])
    mean = property(lambda self: statistics.fmean(self.times))
    median = property(lambda self: statistics.median(self.times))

    @property
    def iqr(self):
        """The interquartile range of the times."""
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4)
        return high - low

    def __repr__(self):
        unit, factor = next(((u, f) for u, f in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if self.median * f >= 1), ("ns", 1e9))
        runs = f"{len(self.raw_times)} measurement{'s' if len(self.raw_times) != 1 else ''}, {self.number_per_run} runs per measurement"
        return f"<{type(self).__module__}.Measurement>\n{self.title}\n  {self.median * factor:.2f} {unit}\n  {runs}"


class Timer:
    """Times a statement, synchronising an accelerator. Uses one thread by default, like PyTorch's."""

    def __init__(
        self, stmt="pass", setup="pass", global_setup="", timer=_clock, globals=None, label=None, sub_label=None, description=None, env=None, num_threads=1,
        language="python",
    ):
        if str(language).lower() not in ("python", "py", "language.python"):
            raise NotImplementedError(f"Timer: statements are Python's, not {language}'s")
        if global_setup:
            raise ValueError("global_setup was provided, but is only used in C++.")
        if env is not None:
            raise NotImplementedError("Timer: env is for comparing runs of several processes, which are not kept")
        self._timer = _timeit.Timer(stmt, setup, timer, globals)
        self._threads = num_threads
        self._title = ": ".join(part for part in (label or str(stmt), sub_label, description) if part)

    def _timed(self, number, repeat):
        before = _C.get_num_threads()
        _C.set_num_threads(self._threads)
        try:
            return Measurement(number, [self._timer.timeit(number) for _ in range(repeat)], self._title)
        finally:
            _C.set_num_threads(before)

    def timeit(self, number=1000000):
        """``number`` runs as one measurement."""
        self._timed(max(number // 100, 2), 1)
        return self._timed(number, 1)

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        """Measurements for ``min_run_time`` seconds, each with as many runs as the clock's resolution needs."""
        number = 1
        while True:
            taken = self._timed(number, 1).raw_times[0]
            if taken >= min(min_run_time / 100, 1e-3) or number >= 10**8:
                break
            number *= 10
        times = []
        while sum(times) < min_run_time:
            times += self._timed(number, 1).raw_times
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._title)

    def adaptive_autorange(self, threshold=0.1, *, min_run_time=0.01, max_run_time=10.0, callback=None):
        """``blocked_autorange`` until the spread of the times is small, or the time is up."""
        spent, found = min_run_time, None
        while found is None or found.iqr > threshold * found.median and spent < max_run_time:
            found = self.blocked_autorange(callback, spent)
            spent *= 3
        return found
