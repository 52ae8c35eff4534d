"""``horovod.runner``: a function in several ranks on this machine."""

import functools

__all__ = ["run"]


def run(func, args=(), kwargs=None, np=None, min_np=None, max_np=None, slots=None, reset_limit=None, hosts=None, hostfile=None, verbose=None, **options):
    """Runs ``func(*args, **kwargs)`` in ``np`` ranks on this machine, one unless given, and returns their results by rank.

    The function must be found by importing its module. Several hosts are started by ``rushlight run`` or a scheduler; ``verbose`` has no effect: the ranks'
    output is always shown.
    """
    given = {"hosts": hosts, "hostfile": hostfile, "min_np": min_np, "max_np": max_np, "slots": slots, **options}
    for name, value in given.items():
        if value not in (None, False) and (name, value) not in (("hosts", f"localhost:{np or 1}"), ("use_gloo", True), ("use_mpi", False)):
            raise NotImplementedError(f"horovod.run: {name} is not supported; start ranks on several hosts by `rushlight run` or your scheduler")
    from ...distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=np or 1, max_restarts=reset_limit or 0)
    results = elastic_launch(config, functools.partial(func, **(kwargs or {})))(*args)
    return [results[rank] for rank in sorted(results)]
