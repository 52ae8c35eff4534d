"""Names of ``torch.distributed`` and its modules that are absent."""

REASON = "training is data parallel here: use DistributedDataParallel"

#: Names of the package itself.
NAMES = """
ProcessGroupGloo ProcessGroupNCCL split_group supports_complex
"""

#: Names that exist on Linux only.
ELSEWHERE = """
DistBackendError FileStore HashStore PrefixStore ProcessGroup ReduceOp Store TCPStore Work all_gather all_gather_object all_reduce barrier broadcast
broadcast_object_list destroy_process_group get_backend get_rank get_world_size init_device_mesh init_process_group new_group
"""

#: Names of its modules.
MODULES = {
    "_composable": "checkpoint contract fully_shard replicate",
    "_composable.fsdp": "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard",
    "_functional_collectives": "AsyncCollectiveTensor all_gather_tensor all_reduce all_to_all_single all_to_all_single_autograd reduce_scatter_tensor wait_tensor",
    "_shard": "",
    "_shard.sharded_tensor": "ShardedTensor",
    "_shard.sharded_tensor.api": "ShardedTensor",
    "_tensor": "DTensor Replicate Shard distribute_module distribute_tensor",
    "_tensor.api": "DTensor",
    "_tensor.experimental": "implicit_replication",
    "algorithms._checkpoint": "",
    "algorithms._checkpoint.checkpoint_wrapper": "CheckpointImpl CheckpointWrapper apply_activation_checkpointing checkpoint_wrapper offload_wrapper",
    "c10d_logger": "",
    "checkpoint": "DefaultLoadPlanner DefaultSavePlanner FileSystemReader FileSystemWriter LoadPlanner SavePlanner StorageReader StorageWriter async_save load "
    "load_state_dict save save_state_dict",
    "checkpoint._consolidate_hf_safetensors": "consolidate_safetensors_files",
    "checkpoint.default_planner": "DefaultLoadPlanner DefaultSavePlanner",
    "checkpoint.filesystem": "FileSystemReader FileSystemWriter",
    "checkpoint.format_utils": "DynamicMetaLoadPlanner dcp_to_torch_save torch_save_to_dcp",
    "checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "checkpoint.metadata": "Metadata",
    "checkpoint.optimizer": "load_sharded_optimizer_state_dict",
    "checkpoint.planner": "LoadPlan LoadPlanner SavePlan SavePlanner",
    "checkpoint.state_dict": "StateDictOptions get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict set_optimizer_state_dict "
    "set_state_dict",
    "checkpoint.state_dict_loader": "load",
    "checkpoint.state_dict_saver": "save",
    "checkpoint.stateful": "Stateful",
    "fsdp": "BackwardPrefetch CPUOffload CPUOffloadPolicy FSDPModule FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel "
    "LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision MixedPrecisionPolicy OffloadPolicy OptimStateDictConfig OptimStateKeyType "
    "ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig StateDictSettings StateDictType UnshardHandle fully_shard "
    "register_fsdp_forward_method",
    "fsdp._fully_shard": "",
    "fsdp._runtime_utils": "",
    "fsdp.fully_sharded_data_parallel": "BackwardPrefetch CPUOffload CPUOffloadPolicy FLAT_PARAM FullOptimStateDictConfig FullStateDictConfig "
    "FullyShardedDataParallel LocalStateDictConfig MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy "
    "StateDictConfig StateDictType",
    "fsdp.sharded_grad_scaler": "ShardedGradScaler",
    "fsdp.wrap": "CustomPolicy ModuleWrapPolicy _or_policy _module_wrap_policy always_wrap_policy enable_wrap lambda_auto_wrap_policy size_based_auto_wrap_policy "
    "transformer_auto_wrap_policy wrap",
    "nn": "RemoteModule",
    "nn.functional": "all_gather all_reduce all_to_all broadcast gather reduce reduce_scatter scatter",
    "optim": "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer",
    "pipelining": "PipelineStage Schedule1F1B ScheduleGPipe SplitPoint build_stage pipe_split pipeline",
    "pipelining.schedules": "",
    "rpc": "PyRRef RRef TensorPipeRpcBackendOptions WorkerInfo get_worker_info init_rpc remote rpc_async rpc_sync shutdown",
    "tensor._api": "DTensor",
    "tensor._utils": "compute_local_shape_and_global_offset",
    "tensor.experimental": "context_parallel implicit_replication local_map register_sharding",
    "tensor.experimental._attention": "context_parallel set_rotate_method",
    "tensor.parallel": "ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleOutput RowwiseParallel SequenceParallel loss_parallel parallelize_module",
}
