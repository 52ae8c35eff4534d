//! The names a pickle may use. Anything else is refused: a name is how a pickle would run code.

use rushlight_core::DType;

/// The meaning of an allowed name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Global {
    /// Classes of dictionaries; calling one makes an empty dictionary.
    Dictionary,
    /// `collections.OrderedDict`.
    OrderedDictionary,
    /// `collections.defaultdict`, called with the class of its values.
    DefaultDict,
    Set,
    /// `_codecs.encode`: how protocol 2 spells bytes.
    Encode,
    Bytes,
    Bytearray,
    /// `torch.Size`.
    Size,
    Device,
    RebuildTensor,
    RebuildTensorV2,
    RebuildTensorV3,
    RebuildParameter,
    RebuildParameterWithState,
    RebuildFromType,
    RebuildOnDevice,
    /// `numpy.core.multiarray._reconstruct`: an array, to be filled later.
    ReconstructArray,
    /// `numpy.dtype`.
    NumpyDType,
    /// The class of a storage, by element type.
    Storage(Elements),
    /// A dtype as a value.
    DType(Elements),
    /// A class that is only ever an argument: of a `defaultdict`, or of a rebuilt tensor.
    Class,
    /// A class of a TorchScript archive, by its number there.
    Script(u32),
    /// `torch.jit._pickle.build_…list` and `restore_type_tag`: they return their first argument.
    First,
    /// A class of `torch.distributed.checkpoint`.
    Checkpoint(CheckpointClass),
}

/// Classes of distributed checkpoints' metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckpointClass {
    Metadata,
    Tensor,
    Bytes,
    Properties,
    Chunk,
    MetadataIndex,
    StorageInfo,
    StorageMeta,
    /// Layouts, memory formats and paths: their values are not read.
    Ignored,
}

/// Names in the metadata of a distributed checkpoint.
pub(crate) fn checkpoint(module: &str, name: &str) -> Option<Global> {
    use CheckpointClass::*;
    Some(Global::Checkpoint(match (module, name) {
        ("torch.distributed.checkpoint.metadata", "Metadata") => Metadata,
        ("torch.distributed.checkpoint.metadata", "TensorStorageMetadata") => Tensor,
        ("torch.distributed.checkpoint.metadata", "BytesStorageMetadata") => Bytes,
        ("torch.distributed.checkpoint.metadata", "TensorProperties") => Properties,
        ("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata") => Chunk,
        ("torch.distributed.checkpoint.metadata", "MetadataIndex") => MetadataIndex,
        ("torch.distributed.checkpoint.metadata", "StorageMeta") => StorageMeta,
        ("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING") => Ignored,
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo") => StorageInfo,
        ("torch.serialization", "_get_layout") => Ignored,
        ("pathlib" | "pathlib._local", "PosixPath" | "PurePosixPath" | "WindowsPath" | "PureWindowsPath") => Ignored,
        _ => return None,
    }))
}

/// The elements of a storage: a dtype of ours, or the name of one that is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Elements {
    Known(DType),
    /// Bytes whose dtype comes later.
    Untyped,
    Unknown(&'static str),
}

/// Names of plain containers and bytes.
pub(crate) fn python(module: &str, name: &str) -> Option<Global> {
    use Global::*;
    Some(match (module, name) {
        ("collections", "OrderedDict") => OrderedDictionary,
        ("collections", "Counter") => Dictionary,
        ("collections", "defaultdict") => DefaultDict,
        ("builtins" | "__builtin__", "set") => Set,
        ("builtins" | "__builtin__", "bytes") => Bytes,
        ("builtins" | "__builtin__", "bytearray") => Bytearray,
        ("builtins" | "__builtin__", "dict" | "list" | "tuple" | "int" | "float" | "bool" | "str") => Class,
        ("_codecs", "encode") => Encode,
        _ => return None,
    })
}

/// Names that arrays are made of, by NumPy 1 and 2.
pub(crate) fn numpy(module: &str, name: &str) -> Option<Global> {
    use Global::*;
    Some(match (module, name) {
        ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => ReconstructArray,
        ("numpy", "ndarray") => Class,
        ("numpy", "dtype") => NumpyDType,
        _ => return None,
    })
}

/// Names that PyTorch's tensors are made of.
pub(crate) fn torch(module: &str, name: &str) -> Option<Global> {
    use Global::*;
    Some(match (module, name) {
        ("torch", "Size") => Size,
        ("torch", "device") => Device,
        ("torch", "Tensor") | ("torch.nn.parameter", "Parameter") => Class,
        ("torch._utils", "_rebuild_tensor") => RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v2") => RebuildTensorV2,
        ("torch._utils", "_rebuild_tensor_v3") => RebuildTensorV3,
        ("torch._utils", "_rebuild_parameter") => RebuildParameter,
        ("torch._utils", "_rebuild_parameter_with_state") => RebuildParameterWithState,
        ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor") => RebuildOnDevice,
        ("torch._tensor", "_rebuild_from_type_v2") => RebuildFromType,
        ("torch.storage", "UntypedStorage") | ("torch", "UntypedStorage") => Storage(Elements::Untyped),
        ("torch" | "torch.cuda", class) if class.ends_with("Storage") => Storage(storage_elements(class)?),
        ("torch", name) => DType(dtype_elements(name)?),
        _ => return None,
    })
}

fn storage_elements(class: &str) -> Option<Elements> {
    Some(Elements::Known(match class {
        "FloatStorage" => DType::F32,
        "DoubleStorage" => DType::F64,
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "LongStorage" => DType::I64,
        "IntStorage" => DType::I32,
        "ShortStorage" => DType::I16,
        "CharStorage" => DType::I8,
        "ByteStorage" => DType::U8,
        "BoolStorage" => DType::Bool,
        "ComplexFloatStorage" => DType::C64,
        "ComplexDoubleStorage" => DType::C128,
        other => return unknown(other),
    }))
}

fn dtype_elements(name: &str) -> Option<Elements> {
    match DType::ALL.into_iter().find(|d| d.name() == name) {
        Some(dtype) => Some(Elements::Known(dtype)),
        None => unknown(name),
    }
}

/// PyTorch's element types that we have no dtype for.
fn unknown(name: &str) -> Option<Elements> {
    const NAMES: [&str; 9] = [
        "QInt8Storage",
        "QUInt8Storage",
        "QInt32Storage",
        "QUInt4x2Storage",
        "QUInt2x4Storage",
        "float4_e2m1fn_x2",
        "qint8",
        "quint8",
        "qint32",
    ];
    NAMES.into_iter().find(|&n| n == name).map(Elements::Unknown)
}
