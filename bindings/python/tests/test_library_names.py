"""Behaviour that libraries written for PyTorch rely on."""

import base64
import io
import pathlib
import pickle
import subprocess
import sys
import types
import zlib

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
    "torch._C": "_has_xpu TensorType DeviceObjType parse_schema",
    "torch._C._distributed_c10d": "ReduceOp Store",
    "torch._C._functorch": "is_batchedtensor",
    "torch._dynamo.utils": "is_compile_supported counters",
    "torch._jit_internal": "_copy_to_script_wrapper BroadcastingList2 Final boolean_dispatch _overload",
    "torch._utils": "_flatten_dense_tensors _unflatten_dense_tensors _take_tensors _reorder_tensors_as ExceptionWrapper _get_all_device_indices classproperty",
    "torch._vmap_internals": "vmap _vmap",
    "torch.cuda": "_initialized _lazy_call",
    "torch.cuda.comm": "broadcast gather scatter reduce_add broadcast_coalesced reduce_add_coalesced",
    "torch.backends.cusparselt": "is_available",
    "torch.distributed.distributed_c10d": "_get_global_rank _resolve_process_group GroupName",
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
    "torch.testing._internal.composite_compliance": "is_view_fn is_inplace is_inplace_view_fn",
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


#: A dictionary of a parameter, a transposed tensor and halves, which PyTorch wrote in the format before 1.6.
OLD_FILE = (
    r"""c-nQ5&2G~`5XbFZCn*aph4NKCOSz<%C`B%9rAlx>71Hu)F1}QjakjOq#hY1=i$JQBOG?W#@Bq9TkATF1v6EB;g*ohKXJ>x%pV<NXCiL&`yT4Wr"""
    r"""f4p7p4A`rmoX%r#+To((IDKo-Bt}O^$`+Z)!KH+7o?di@s8yu$UKZ!TPD4RK{M=Vjk$q7G@MG}WVS|E2YAixSvXIj)%MqH=3%!bA@&jl|uPi4$"""
    r"""U5b7JH$h{Qv=fz>=|V(SeJC^Ci~6yRKPpsK0Q*l0s=P2ZI(jUCx7%T>>Q9;RfdX$-B6hWj@%<<$pb;)m&bGg~x$bZH8{6G=--l)`HR+e6j=x5j"""
    r"""dnX;qhj2l<Ll9>PZA7aCX(5GpV|&V~-t#O$0T<T-xP&ktz`|)-T`qrx#Q?6<gCSf^NmM!!@{-0s*Rk}k4!_%lYiUb1ssHu5zhozHL%Ncmz|FIo"""
    r"""ehXnafZH`ag*#L97qQ+yr{A5XZ#~%}`aPmEqTjFRYzPmk=~hPMhX|_yJgPosulkr7<?gJ_u~}nq)nU%qcAOpV{B47$bUbT1)8>x-q;68<jeTS6"""
    r"""{{Z7mtJn"""
)

#: A list of a view and a sparse tensor that PyTorch wrote with ``pickle.dumps``.
PLAIN_PICKLE = (
    r"""c-q~R%Wl&^6o!3k0s}3jP@r7PwJDd7Hc6YVV1c?Z*XhO^G;*DxHZq?4_M}oPRm#Ru%QNr*@CZn(k{4qJC#r(l2Y^}3c#eM`&-p){=~*9PR01i|"""
    r"""Agr>kjN**2ly7&VxXmO_GLf>~RRVLY$<*TSaKd8Yx7nvud|}&rl4k@~zyi_cK}L9@9|&x3-ZYFs&l-Fs@$lE++vf1+;^)El_X|}Od^7xE>-9h#"""
    r"""z?(G;qmv3L0ui%ao@S9qU}}jstzN~Elrd*KX-9qnYjEfh6_tA(&a!BqXRr_8RJ<t_%tDb$Ou3e4t6h{xlw8MibP|#5pzJ!`uKsPsD{FO84veBa"""
    r"""vZ>0FTca9bdNWG1(O6$!X*3(n)>^ApLy<V>bYZ*pTM6fbPN!@<No@L6tv()u-U~IqgyWU;k$f2?E12q|L{ZLhhT^Pix>gS2nmNuL1<H?@2U6LQ"""
    r"""k#}jEr@Z|t3M9e#Wr}Hu8Hx+1;LAFGn(+}ug4r=ao<@Eg?fW_@VLM#1*xwUfmGj~s4kKCdbsz-ha$KUgTnWueXoa@7^siBUtu!Y=t=C)iX5(+D"""
    r"""&dE@Z#R{rpOb+vuJ?29N_X@?;9M>ooT*I|otB>nyG5ff26l#t)C2mpN9{W4@Uv<q!ZMC^JVX$?2*A!x9ur=8+YQi0D<s!x19QP>hYb$d+(0%f-"""
    r"""u<?<^62<7IB3r6Ng5|>R$2p!*JUx_n)<>1%Ij{Z(%%X3y"""
)


def test_files_before_pytorch_1_6_are_read():
    data = zlib.decompress(base64.b85decode(OLD_FILE))
    for options in ({}, {"weights_only": False}, {"map_location": "cpu"}):
        found = torch.load(io.BytesIO(data), **options)
        assert isinstance(found["w"], torch.nn.Parameter) and found["w"].tolist() == [0.0, 1.0, 2.0] and found["w"].is_leaf
        assert found["t"].tolist() == [[0, 3], [1, 4], [2, 5]] and found["t"].stride() == (1, 3) and found["h"].dtype == torch.float16
    # Nothing of a file runs unless it is trusted.
    harmful = data.replace(b"torch._utils\n_rebuild_tensor_v2\n", b"builtins\nexec\n")
    with pytest.raises(pickle.UnpicklingError, match="exec"):
        torch.load(io.BytesIO(harmful))
    for wrong in (data[:-20], b"no file"):
        with pytest.raises((RuntimeError, pickle.UnpicklingError)):
            torch.load(io.BytesIO(wrong), weights_only=False)


def test_plain_pickles_of_pytorch_are_read():
    program = f"""
import base64, pickle, sys, zlib
sys.path.insert(0, {str(pathlib.Path(torch.__file__).parents[1])!r})
import rushlight
rushlight.install()
view, sparse = pickle.loads(zlib.decompress(base64.b85decode({PLAIN_PICKLE!r})))
print(view.tolist(), sparse.to_dense().tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[1.0, 2.0] [[1.0, 0.0], [0.0, 1.0]]", done.stderr


def test_gray_images_of_png_files_are_libpngs():
    image = torch.tensor([[[173, 213, 9]], [[222, 246, 9]], [[250, 254, 9]]], dtype=torch.uint8)
    gray = files.decode_image(files.encode_png(image), "GRAY")
    assert gray.tolist() == [[[210, 237, 9]]]
    assert files.decode_png(files.encode_png(image), files.ImageReadMode.GRAY_ALPHA)[:, 0].tolist() == [[210, 237, 9], [255, 255, 255]]


def test_sparse_tensors_are_flattened():
    tensors = [torch.eye(2).to_sparse(), torch.tensor([0.0, 3.0]).to_sparse()]
    back = torch._utils._unflatten_sparse_tensors(torch._utils._flatten_sparse_tensors(tensors), tensors)
    assert all(torch.equal(a.to_dense(), b.to_dense()) for a, b in zip(tensors, back))


def test_classes_of_torchscript_are_missing_by_name():
    assert torch.classes.loaded_libraries is torch.ops.loaded_libraries and not hasattr(torch.classes, "__path__")
    with pytest.raises(RuntimeError, match="Tried to instantiate class 'mine.Stack'"):
        torch.classes.mine.Stack


def test_names_of_torchvision_that_libraries_import():
    from rushlight import vision
    from rushlight.vision.extension import _has_ops
    from rushlight.vision.models._utils import _ovewrite_named_param, handle_legacy_interface

    @handle_legacy_interface(weights=("pretrained", lambda options: options["kind"]))
    def model(*, kind="small", weights=None):
        return weights

    assert model(kind="large", pretrained=True) == "large" and model(pretrained=False) is None and model(weights=3) == 3
    options = {}
    _ovewrite_named_param(options, "classes", 5)
    with pytest.raises(ValueError, match="expected value 6 but got 5"):
        _ovewrite_named_param(options, "classes", 6)
    vision.disable_beta_transforms_warning()
    assert _has_ops() and vision.version.__version__ == vision.__version__ and not isinstance(torch.ones(1), vision.tv_tensors.Image)
    with pytest.raises(NotImplementedError, match="tv_tensors.Mask': transforms are those of plain tensors"):
        vision.tv_tensors.Mask(torch.ones(2, 2))


def test_schemas_are_text():
    aten = torch.ops.aten.add.Tensor._schema
    schema = torch._C.parse_schema("mine::twice.out(Tensor x) -> Tensor")
    assert (schema.name, schema.overload_name) == ("mine::twice", "out") and str(aten) == "aten::add.Tensor"
    assert not aten.is_backward_compatible_with(schema) and schema.is_backward_compatible_with(torch.parse_schema(str(schema)))
    with pytest.raises(RuntimeError, match="expected name"):
        torch.parse_schema("twice")


def test_kinds_of_ops():
    from rushlight.testing._internal.composite_compliance import is_inplace, is_inplace_view_fn, is_view_fn

    ops = torch.ops.aten
    assert [is_view_fn(op) for op in (ops.view.default, ops.add.Tensor)] == [True, False]
    operators = [types.SimpleNamespace(overloadpacket=types.SimpleNamespace(__name__=name)) for name in ("__iand__", "__and__")]
    assert [is_inplace(op) for op in (ops.add_.Tensor, ops.add.Tensor, *operators)] == [True, False, True, False]
    assert is_inplace_view_fn(ops.t_.default) and not is_inplace_view_fn(ops.add_.Tensor)


def test_sizes_of_packed_sequences():
    from rushlight.utils.flop_counter import _unpack_flash_attention_nested_shapes as sizes

    x, at = torch.ones(5, 2, 4), torch.tensor([0, 2, 5], dtype=torch.int32)
    assert list(sizes(query=x, key=x, value=x, cum_seq_q=at, cum_seq_k=at)) == [(*[(1, 2, n, 4)] * 3, None) for n in (2, 3)]
    assert list(sizes(query=x, key=x, value=x, grad_out=x)) == [(x.shape,) * 4]
