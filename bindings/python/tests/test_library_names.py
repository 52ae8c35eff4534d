"""Behaviour that libraries written for PyTorch rely on."""

import io
import pathlib
import subprocess
import sys

import pytest

import rushlight as torch
from rushlight import _functorch_api as functorch
from rushlight import fx
from rushlight.vision import io as files
from rushlight.vision import utils


def test_versions_compare_with_tuples_and_strings():
    version = torch.__version__
    assert isinstance(version, str) and version >= (2, 6) and version < (3,) and version > "2.9.1" and not version < "2.10"
    assert version == str(version) and hash(version) == hash(str(version))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
def test_complex_parameters_step_as_pairs(kind):
    whole = torch.nn.Parameter(torch.tensor([1 + 2j, -0.5 + 0.25j]))
    parts = torch.nn.Parameter(torch.view_as_real(whole.detach()).clone())
    optimizers = [getattr(torch.optim, kind)([p], lr=0.1) for p in (whole, parts)]
    for _ in range(3):
        for optimizer, p in zip(optimizers, (whole, parts)):
            optimizer.zero_grad()
            (p.abs() ** 2 if p.is_complex() else p**2).sum().backward()
            optimizer.step()
    assert torch.allclose(torch.view_as_real(whole.detach()), parts.detach())
    assert all(not isinstance(v, torch.Tensor) or v.shape in ((2,), ()) for v in optimizers[0].state[whole].values())


def test_functorch_makes_functions_of_modules():
    net = torch.nn.Linear(3, 2)
    call, parameters = functorch.make_functional(net)
    x = torch.randn(4, 3)
    assert torch.equal(call(parameters, x), net(x))
    with pytest.raises(RuntimeError, match="make_functional_with_buffers"):
        functorch.make_functional(torch.nn.BatchNorm1d(3))


def test_traced_einsum_has_its_operands_one_by_one():
    traced = fx.symbolic_trace(lambda a, b: torch.einsum("ij,jk->ik", a, b))
    node = next(n for n in traced.graph.nodes if n.op == "call_function")
    assert node.args[0] == "ij,jk->ik" and len(node.args) == 3


def test_tensors_that_require_gradients_become_arrays_without_a_tape():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()
    with torch.no_grad():
        assert x.numpy().tolist() == [1.0, 1.0]


def test_image_files():
    y, x = torch.meshgrid(torch.arange(21), torch.arange(30), indexing="ij")
    image = torch.stack([x * 8, y * 12, x * 4 + y * 6]).to(torch.uint8)
    for channels in (image[:1], image[:2], image, torch.cat([image, image[:1]])):
        assert torch.equal(files.decode_png(files.encode_png(channels)), channels)
    for one in (image, image[:1]):
        back = files.decode_jpeg(files.encode_jpeg(one, quality=95))
        assert back.shape == one.shape and (back.float() - one.float()).abs().mean().item() < 3.0
    assert files.decode_image(files.encode_png(image), "GRAY").shape == (1, 21, 30)
    assert files.decode_image(files.encode_png(image), files.ImageReadMode.RGB_ALPHA)[3].min().item() == 255
    with pytest.raises(RuntimeError, match="only PNG and JPEG"):
        files.decode_image(torch.zeros(8, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="quality 0"):
        files.encode_jpeg(image, quality=0)
    buffer = io.BytesIO()
    utils.save_image(image.float() / 255, buffer, format="jpeg")
    assert buffer.getvalue()[:3] == b"\xff\xd8\xff"


def test_masks_are_drawn():
    image, mask = torch.zeros(3, 4, 4, dtype=torch.uint8), torch.zeros(4, 4, dtype=torch.bool)
    mask[1:3, 1:3] = True
    drawn = utils.draw_segmentation_masks(image, mask, alpha=1.0, colors=(10, 20, 30))
    assert drawn[:, 1, 1].tolist() == [10, 20, 30] and drawn[:, 0, 0].tolist() == [0, 0, 0]


#: Private names that libraries import, by module.
PRIVATE = {
    "torch": "_check_with _check_tensor_all_with DeviceObjType TensorType",
    "torch._C": "_has_xpu TensorType DeviceObjType",
    "torch._C._distributed_c10d": "ReduceOp Store",
    "torch._C._functorch": "is_batchedtensor",
    "torch._dynamo.utils": "is_compile_supported counters",
    "torch._jit_internal": "_copy_to_script_wrapper BroadcastingList2 Final boolean_dispatch _overload",
    "torch._utils": "_flatten_dense_tensors _unflatten_dense_tensors _take_tensors _reorder_tensors_as ExceptionWrapper _get_all_device_indices classproperty",
    "torch._vmap_internals": "vmap _vmap",
    "torch.cuda": "_initialized _lazy_call",
    "torch.cuda.comm": "broadcast gather scatter reduce_add broadcast_coalesced reduce_add_coalesced",
    "torch.distributed.distributed_c10d": "_get_global_rank",
    "torch.distributed.fsdp.api": "ShardingStrategy",
    "torch.distributed.rpc": "is_available",
    "torch.distributions.transforms": "_clipped_sigmoid",
    "torch.functional": "einsum",
    "torch.fx.node": "Target Argument",
    "torch.jit": "_get_trace_graph",
    "torch.mps": "current_allocated_memory",
    "torch.nn.modules.conv": "_ConvTransposeMixin _ConvTransposeNd",
    "torch.nn.modules.padding": "_ConstantPadNd _ReflectionPadNd _ReplicationPadNd",
    "torch.nn.parameter": "UninitializedTensorMixin",
    "torch.nn.utils.clip_grad": "_clip_grads_with_norm_ _get_total_norm",
    "torch.optim.adadelta": "Adadelta", "torch.optim.adagrad": "Adagrad", "torch.optim.adamax": "Adamax", "torch.optim.adamw": "AdamW",
    "torch.optim.optimizer": "_use_grad_for_differentiable _get_value _default_to_fused_or_foreach _view_as_real _capturable_doc _foreach_doc _maximize_doc",
    "torch.quasirandom": "SobolEngine",
    "torch.serialization": "DEFAULT_PROTOCOL MAP_LOCATION",
    "torch.utils._contextlib": "_DecoratorContextManager",
    "torch.utils._cxx_pytree": "tree_map tree_flatten",
    "torch.utils._foreach_utils": "_group_tensors_by_device_and_dtype",
    "torch.utils.data._utils.collate": "np_str_obj_array_pattern",
    "torch.utils.data._utils.fetch": "_MapDatasetFetcher _IterableDatasetFetcher",
    "torch.utils.data._utils.worker": "_generate_state WorkerInfo",
    "torch.utils.data.dataloader": "_collate_fn_t",
    "torch.utils.data.datapipes.iter": "IterableWrapper",
    "torch.utils.data.graph_settings": "get_all_graph_pipes",
    "torch.utils.deterministic": "fill_uninitialized_memory",
}


def test_private_names_can_be_imported():
    place = str(pathlib.Path(torch.__file__).parents[1])
    lines = [f"from {module} import {', '.join(names.split())}" for module, names in PRIVATE.items()]
    program = "\n".join([f"import sys; sys.path.insert(0, {place!r})", "import rushlight", "rushlight.install()", *lines, "import torch", "torch.utils.data._utils.worker"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_results_have_classes_of_their_own():
    types, m = torch.return_types, torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
    assert isinstance(torch.max(m, 0), types.max) and isinstance(torch.linalg.qr(torch.eye(2)), types.linalg_qr)
    assert types.topk((m, m + 1)).indices is not None and types.linalg_svd._fields == ("U", "S", "Vh") and types.max in types.all_return_types
    assert not hasattr(types, "no_such_function")


def test_functions_over_lists_have_public_names():
    from rushlight import foreach

    a, b = [torch.ones(2), torch.ones(1)], torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert [t.tolist() for t in foreach.add(a, 2.0)] == [[3.0, 3.0], [3.0]] and foreach.mul_(a, 3.0)[0] is a[0] and a[0].tolist() == [3.0, 3.0]
    assert foreach.mm([b], [torch.eye(2)])[0].tolist() == b.tolist() and foreach.norm([b], ord=1)[0].item() == 10.0 and foreach.clone([b])[0] is not b
    assert all(callable(getattr(foreach, name)) for name in foreach.__all__)


def test_places_of_saved_storages():
    from rushlight.serialization import default_restore_location, location_tag

    storage = torch.ones(2).untyped_storage()
    assert location_tag(storage) == "cpu" and default_restore_location(storage, "cpu").nbytes() == 8
    with pytest.raises(RuntimeError, match="don't know how to restore"):
        default_restore_location(storage, "nowhere")
