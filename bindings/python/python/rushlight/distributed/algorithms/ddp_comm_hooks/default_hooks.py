"""Averages gradients over the ranks, uncompressed or in half precision."""

from .... import _C
from ....futures import Future
from ... import distributed_c10d as dist

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper", "noop_hook"]


def _mean(group, tensor):
    group = dist.group.WORLD if group is None else group
    return dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True).get_future()


def allreduce_hook(process_group, bucket):
    """Sends a bucket uncompressed."""
    return _mean(process_group, bucket.buffer()).then(lambda future: future.value()[0])


def _compressed(process_group, bucket, dtype):
    buffer = bucket.buffer()
    group = dist.group.WORLD if process_group is None else process_group
    # Divided first, as in PyTorch: the sum over many ranks would overflow half precision.
    sent = buffer.to(dtype).div_(group.size())
    future = dist.all_reduce(sent, group=group, async_op=True).get_future()
    return future.then(lambda future: buffer.copy_(future.value()[0]))


def fp16_compress_hook(process_group, bucket):
    """Sends a bucket as float16."""
    return _compressed(process_group, bucket, _C.float16)


def bf16_compress_hook(process_group, bucket):
    """Sends a bucket as bfloat16."""
    return _compressed(process_group, bucket, _C.bfloat16)


def _wrapper(hook, dtype):
    def wrapped(hook_state, bucket):
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))

        def restore(future):
            bucket.set_buffer(buffer)
            return buffer.copy_(future.value())

        return hook(hook_state, bucket).then(restore)

    return wrapped


def fp16_compress_wrapper(hook):
    """A hook that sees the bucket as float16."""
    return _wrapper(hook, _C.float16)


def bf16_compress_wrapper(hook):
    """A hook that sees the bucket as bfloat16."""
    return _wrapper(hook, _C.bfloat16)


def noop_hook(_, bucket):
    """Sends nothing: gradients stay on their rank."""
    future = Future()
    future.set_result(bucket.buffer())
    return future
