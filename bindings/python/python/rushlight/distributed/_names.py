"""Names of ``torch.distributed`` and its modules that are absent."""

REASON = "it is not supported; use DistributedDataParallel, torch.distributed.fsdp.fully_shard or torch.distributed.tensor.parallel"

#: Names of the package itself.
NAMES = """
ProcessGroupGloo ProcessGroupNCCL split_group
"""

#: Names that exist on Linux only.
ELSEWHERE = """
DistBackendError FileStore HashStore PrefixStore ProcessGroup ReduceOp Store TCPStore Work all_gather all_gather_object all_reduce barrier broadcast
broadcast_object_list destroy_process_group get_backend get_rank get_world_size init_device_mesh init_process_group new_group
"""

#: Names of its modules.
MODULES = {
    "_local_tensor": "LocalTensorMode",
    "_shard": "",
    "_shard.sharded_tensor": "ShardedTensor",
    "_shard.sharded_tensor.api": "ShardedTensor",
    "_tensor.experimental": "implicit_replication",
    "c10d_logger": "",
    "checkpoint._consolidate_hf_safetensors": "consolidate_safetensors_files consolidate_safetensors_files_on_every_rank",
    "checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "checkpoint.optimizer": "load_sharded_optimizer_state_dict",
    "fsdp._runtime_utils": "",
    "fsdp.sharded_grad_scaler": "ShardedGradScaler",
    "nn": "RemoteModule",
    "nn.functional": "all_gather all_reduce all_to_all broadcast gather reduce reduce_scatter scatter",
    "rpc": "PyRRef RRef TensorPipeRpcBackendOptions WorkerInfo get_worker_info init_rpc is_available remote rpc_async rpc_sync shutdown",
    "tensor.experimental": "context_parallel implicit_replication local_map register_sharding",
    "tensor.experimental._attention": "context_parallel set_rotate_method",
}
