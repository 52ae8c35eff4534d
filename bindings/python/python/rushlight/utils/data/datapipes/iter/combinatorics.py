"""Pipes that reorder."""

import random

from .. import IterDataPipe, functional_datapipe

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]


class SamplerIterDataPipe(IterDataPipe):
    """Elements, or their indices, in the order of a sampler."""

    def __init__(self, datapipe, sampler=None, sampler_args=None, sampler_kwargs=None):
        from ...sampler import SequentialSampler

        self.datapipe = datapipe
        self.sampler = (sampler or SequentialSampler)(*(sampler_args or ()), **{"data_source": datapipe, **(sampler_kwargs or {})})

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe):
    """Elements in random order, drawn from a buffer."""

    def __init__(self, datapipe, *, buffer_size=10000, unbatch_level=0):
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level)
        self.buffer_size, self._enabled, self._seed = buffer_size, True, None

    def set_shuffle(self, shuffle=True):
        self._enabled = shuffle
        return self

    def set_seed(self, seed):
        self._seed = seed
        return self

    def __iter__(self):
        if not self._enabled:
            yield from self.datapipe
            return
        if self._seed is None:
            from ...sampler import draw_seed

            draw = random.Random(draw_seed(None))
        else:
            draw, self._seed = random.Random(self._seed), None
        buffer = []
        for data in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(data)
                continue
            at = draw.randrange(len(buffer))
            taken, buffer[at] = buffer[at], data
            yield taken
        draw.shuffle(buffer)
        yield from buffer

    def __len__(self):
        return len(self.datapipe)
