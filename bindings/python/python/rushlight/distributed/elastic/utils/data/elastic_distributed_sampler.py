"""``torch.distributed.elastic.utils.data.elastic_distributed_sampler``."""

import math

from ..... import _C
from .....utils.data.distributed import DistributedSampler

__all__ = ["ElasticDistributedSampler"]


class ElasticDistributedSampler(DistributedSampler):
    """PyTorch's sampler for jobs that are resumed by an index: a process's share of the samples from ``start_index`` on, in an order of ``epoch``.

    The order after ``start_index`` differs from the whole epoch's, so samples read before a restart may be read again. ``DistributedSampler`` with
    ``state_dict`` and ``load_state_dict`` continues in the same order and reads each sample once."""

    def __init__(self, dataset, num_replicas=None, rank=None, start_index=0):
        super().__init__(dataset=dataset, num_replicas=num_replicas, rank=rank)
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        count = len(self.dataset) - self.start_index
        indices = [self.start_index + i for i in _C._permutation(count, self.epoch)]
        indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank : self.total_size : self.num_replicas])
