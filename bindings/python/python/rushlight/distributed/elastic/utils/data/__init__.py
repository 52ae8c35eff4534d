"""``torch.distributed.elastic.utils.data``: a sampler that begins in the middle of a dataset."""

from .elastic_distributed_sampler import ElasticDistributedSampler

__all__ = ["ElasticDistributedSampler"]
