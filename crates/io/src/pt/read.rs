//! From a `.pt` archive to values.

use crate::LoadOptions;
use crate::pickle::globals::{self, Elements, Global};
use crate::pickle::machine::{self, Arena, Object, Ref, Reply, World, corrupt};
use crate::pickle::value::{Containers, dims, size, value};
use crate::source::{self, ByteOrder, Source};
use crate::zip::{Archive, Entry, Method};
use rushlight_core::{DType, Device, Error, Result, Storage};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Value;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// How files of PyTorch before 1.6 begin: a pickled number.
const LEGACY: [u8; 4] = [0x80, 0x02, 0x8a, 0x0a];

/// The value of a file, and the ids of its tensors that are parameters.
pub(crate) fn load(source: &Source, options: &LoadOptions) -> Result<(Value, HashSet<usize>)> {
    let bytes = source.bytes();
    if bytes.starts_with(&LEGACY) || bytes.get(257..262) == Some(b"ustar") {
        return Err(Error::unsupported(
            "the file has the format of PyTorch before 1.6. Convert it in Python: torch.save(torch.load(path), new_path)",
        ));
    }
    if !bytes.starts_with(b"PK") {
        return Err(Error::io("the file is not a zip archive, as torch.save writes"));
    }
    let archive = Archive::open(source)?;
    let root = match archive.entries.keys().find_map(|name| name.strip_suffix("/data.pkl")) {
        Some(root) => root.to_string(),
        None => return Err(Error::io("the archive has no record 'data.pkl': it was not written by torch.save")),
    };
    if archive.entries.contains_key(&format!("{root}/constants.pkl")) {
        return Err(Error::unsupported(
            "the file is a TorchScript archive. Save its tensors in Python: torch.save(torch.jit.load(path).state_dict(), new_path)",
        ));
    }
    if options.verify {
        for (name, entry) in &archive.entries {
            if crc32fast::hash(&bytes[entry.data.clone()]) != entry.crc {
                return Err(Error::io(format!("record '{name}' does not match its checksum: the file is damaged")));
            }
        }
    }
    let order = byte_order(&archive, &root, bytes)?;
    let pickle = stored("data.pkl", bytes, archive.get(&format!("{root}/data.pkl"))?)?;
    let (storages, containers) = (HashMap::new(), Containers::of(pickle));
    let parameters = HashSet::new();
    let mut reader = Reader {
        source,
        archive: &archive,
        folder: format!("{root}/data"),
        order,
        storages,
        containers,
        parameters,
        gpus: options.gpus,
        classes: None,
    };
    let (arena, result) = machine::run(pickle, &mut reader)?;
    Ok((value(&arena, result, pickle.len())?, reader.parameters))
}

fn byte_order(archive: &Archive, root: &str, bytes: &[u8]) -> Result<ByteOrder> {
    match archive.entries.get(&format!("{root}/byteorder")) {
        None => Ok(ByteOrder::Little),
        Some(entry) => match stored("byteorder", bytes, entry)? {
            b"little" => Ok(ByteOrder::Little),
            b"big" => Ok(ByteOrder::Big),
            _ => Err(Error::io("record 'byteorder' is neither 'little' nor 'big'")),
        },
    }
}

/// Runs a pickle of a TorchScript archive: `data` or `constants`, whose storages are in the folder of that
/// name. Gives the objects,
/// the result, and the names of the classes.
pub(crate) fn script(source: &Source, archive: &Archive, root: &str, part: &str) -> Result<(Arena, Ref, Vec<String>)> {
    let bytes = source.bytes();
    let pickle = stored(part, bytes, archive.get(&format!("{root}/{part}.pkl"))?)?;
    let mut reader = Reader {
        source,
        archive,
        folder: format!("{root}/{part}"),
        order: byte_order(archive, root, bytes)?,
        storages: HashMap::new(),
        containers: Containers::of(pickle),
        parameters: HashSet::new(),
        gpus: (Device::Cpu, 0),
        classes: Some(RefCell::default()),
    };
    let (arena, result) = machine::run(pickle, &mut reader)?;
    Ok((arena, result, reader.classes.map(RefCell::into_inner).unwrap_or_default()))
}

fn stored<'a>(name: &str, bytes: &'a [u8], entry: &Entry) -> Result<&'a [u8]> {
    if entry.method != Method::Stored {
        return Err(Error::unsupported(format!(
            "record '{name}' is compressed, which torch.save never does; rewrite the archive without compression"
        )));
    }
    Ok(&bytes[entry.data.clone()])
}

/// A storage of the file, looked into by any number of tensors.
pub(crate) struct LoadedStorage {
    key: String,
    elements: Elements,
    /// Where its bytes are.
    data: std::ops::Range<usize>,
    /// Where its elements go.
    device: Device,
    /// Made by the first tensor, which settles the dtype.
    made: OnceCell<(DType, Arc<Storage>)>,
}

struct Reader<'a> {
    source: &'a Source,
    archive: &'a Archive,
    /// Where the records of storages are.
    folder: String,
    order: ByteOrder,
    storages: HashMap<String, Rc<LoadedStorage>>,
    containers: Containers,
    /// Ids of tensors that are parameters.
    parameters: HashSet<usize>,
    gpus: (Device, usize),
    /// Names of classes, in archives that may have them.
    classes: Option<RefCell<Vec<String>>>,
}

/// The device here for a tensor that was saved on the device of this name: `cuda` (NVIDIA's and AMD's), `hip` or `xpu`,
/// perhaps with a number.
fn here(saved_on: &str, (first, count): (Device, usize)) -> Device {
    let (kind, index) = saved_on.split_once(':').unwrap_or((saved_on, "0"));
    let index = index.parse().ok().filter(|&index| index < count && matches!(kind, "cuda" | "hip" | "xpu"));
    match (first, index) {
        (Device::Cuda(_), Some(index)) => Device::Cuda(index),
        (Device::Xpu(_), Some(index)) => Device::Xpu(index),
        _ => Device::Cpu,
    }
}

impl World for Reader<'_> {
    fn find(&self, module: &str, name: &str) -> Option<Global> {
        if let Some(classes) = &self.classes {
            match (module, name) {
                ("torch.jit._pickle", "restore_type_tag") => return Some(Global::First),
                ("torch.jit._pickle", name) if name.starts_with("build_") && name.ends_with("list") => {
                    return Some(Global::First);
                }
                (module, name) if module == "__torch__" || module.starts_with("__torch__.") => {
                    let (mut classes, full) = (classes.borrow_mut(), format!("{module}.{name}"));
                    let at = classes.iter().position(|c| *c == full).unwrap_or_else(|| {
                        classes.push(full);
                        classes.len() - 1
                    });
                    return Some(Global::Script(at as u32));
                }
                _ => {}
            }
        }
        globals::python(module, name).or_else(|| globals::torch(module, name))
    }

    fn build(&mut self, arena: &Arena, target: Ref, state: Ref) -> Result<Reply> {
        match *arena.get(target) {
            Object::Script(class, None) => Ok(Reply::New(Object::Script(class, Some(state)))),
            Object::Dict(_) | Object::OrderedDict(_) | Object::Tensor(_) => Ok(Reply::Same(target)),
            ref other => Err(corrupt(format_args!("it sets the state of {}", other.kind()))),
        }
    }

    fn persistent(&mut self, arena: &Arena, id: Ref) -> Result<Object> {
        let fail = || corrupt("a reference to something that is not a storage");
        let Object::Tuple(id) = arena.get(id) else { return Err(fail()) };
        let &[tag, class, key, location, numel] = &id[..] else { return Err(fail()) };
        let (Object::Str(tag), &Object::Global(Global::Storage(elements)), Object::Str(key)) =
            (arena.get(tag), arena.get(class), arena.get(key))
        else {
            return Err(fail());
        };
        if &**tag != "storage" {
            return Err(fail());
        }
        let device = match arena.get(location) {
            Object::Str(name) => here(name, self.gpus),
            _ => Device::Cpu,
        };
        let numel = size(arena, numel)?;
        let width = match elements {
            Elements::Known(dtype) => dtype.size(),
            Elements::Untyped => 1,
            Elements::Unknown(name) => return Err(unknown_dtype(name)),
        };
        if !self.storages.contains_key(&**key) {
            let name = format!("{}/{key}", self.folder);
            let entry = self.archive.get(&name)?;
            stored(&name, self.source.bytes(), entry)?;
            let loaded = LoadedStorage {
                key: key.to_string(),
                elements,
                data: entry.data.clone(),
                device,
                made: OnceCell::new(),
            };
            self.storages.insert(key.to_string(), Rc::new(loaded));
        }
        let loaded = self.storages.get(&**key).ok_or_else(fail)?;
        if numel.checked_mul(width).is_none_or(|bytes| bytes > loaded.data.len()) {
            return Err(Error::io(format!(
                "storage '{key}' should have {numel} elements of {width} bytes, but its record has {} bytes",
                loaded.data.len()
            )));
        }
        if loaded.elements == elements {
            return Ok(Object::Storage(loaded.clone()));
        }
        if loaded.data.is_empty() {
            // PyTorch shares the one empty storage between dtypes.
            let empty = LoadedStorage {
                key: key.to_string(),
                elements,
                data: loaded.data.clone(),
                device,
                made: OnceCell::new(),
            };
            return Ok(Object::Storage(Rc::new(empty)));
        }
        Err(Error::unsupported(format!("storage '{key}' is used with two dtypes")))
    }

    fn call(&mut self, arena: &Arena, function: Global, args: &[Ref]) -> Result<Reply> {
        use Global::*;
        let object = match (function, args) {
            (Script(class), []) => Object::Script(class, None),
            (First, &[first] | &[first, _]) => return Ok(Reply::Same(first)),
            (Size, &[sizes]) if matches!(arena.get(sizes), Object::Tuple(_)) => return Ok(Reply::Same(sizes)),
            (Device, &[name] | &[name, _]) if matches!(arena.get(name), Object::Str(_)) => self.device(arena, args)?,
            (RebuildTensor, &[storage, offset, sizes, strides]) => {
                self.tensor(arena, storage, offset, sizes, strides, None, false)?
            }
            (RebuildTensorV2, &[storage, offset, sizes, strides, grad, _hooks, ref metadata @ ..]) => {
                no_metadata(arena, metadata)?;
                self.tensor(arena, storage, offset, sizes, strides, None, truth(arena, grad)?)?
            }
            (RebuildTensorV3, &[storage, offset, sizes, strides, grad, _hooks, dtype, ref metadata @ ..]) => {
                no_metadata(arena, metadata)?;
                let dtype = dtype_of(arena, dtype)?;
                self.tensor(arena, storage, offset, sizes, strides, Some(dtype), truth(arena, grad)?)?
            }
            (RebuildParameter, &[data, grad, _hooks]) | (RebuildParameterWithState, &[data, grad, _hooks, _]) => {
                let grad = truth(arena, grad)?;
                let parameter = tensor_of(arena, data)?.detach().requires_grad_(grad)?;
                self.parameters.insert(parameter.id());
                Object::Tensor(parameter)
            }
            (RebuildOnDevice, &[data, dtype, _device, grad]) => {
                let (data, dtype) = (tensor_of(arena, data)?, dtype_of(arena, dtype)?);
                if data.dtype() != dtype {
                    return Err(Error::unsupported(format!("a {} tensor that should be {dtype}", data.dtype())));
                }
                Object::Tensor(data.detach().requires_grad_(truth(arena, grad)?)?)
            }
            (RebuildFromType, &[inner, class, args, _state]) => {
                match (arena.get(inner), arena.get(class), arena.get(args)) {
                    (&Object::Global(inner), &Object::Global(Class), Object::Tuple(args))
                        if inner != RebuildFromType =>
                    {
                        return self.call(arena, inner, args);
                    }
                    _ => return Err(corrupt("a tensor of a class of its own")),
                }
            }
            (function, args) => return self.containers.call(arena, function, args),
        };
        Ok(Reply::New(object))
    }
}

impl Reader<'_> {
    fn device(&mut self, arena: &Arena, args: &[Ref]) -> Result<Object> {
        let name = match arena.get(args[0]) {
            Object::Str(name) if name.len() <= 32 => name,
            _ => return Err(corrupt("a device without a name")),
        };
        Ok(Object::Str(match args.get(1) {
            Some(&index) => format!("{name}:{}", size(arena, index)?).into(),
            None => name.clone(),
        }))
    }

    fn tensor(
        &mut self,
        arena: &Arena,
        storage: Ref,
        offset: Ref,
        sizes: Ref,
        strides: Ref,
        dtype: Option<DType>,
        requires_grad: bool,
    ) -> Result<Object> {
        let Object::Storage(loaded) = arena.get(storage) else {
            return Err(corrupt(format_args!("a tensor over {}", arena.get(storage).kind())));
        };
        let dtype = match (dtype, loaded.elements) {
            (Some(dtype), Elements::Untyped) => dtype,
            (None, Elements::Untyped) => DType::U8,
            (None, Elements::Known(dtype)) => dtype,
            (Some(dtype), Elements::Known(have)) if dtype == have => dtype,
            _ => return Err(Error::unsupported(format!("storage '{}' is used with two dtypes", loaded.key))),
        };
        let (made_as, memory) = match loaded.made.get() {
            Some(made) => made,
            None => {
                let whole = loaded.data.len() / dtype.size() * dtype.size();
                let range = loaded.data.start..loaded.data.start + whole;
                let mut memory = self.source.storage(range, dtype, self.order)?;
                if !loaded.device.is_cpu() {
                    let all = source::tensor(&memory, &[whole / dtype.size()], &[1], 0, dtype)?;
                    memory = all.to(loaded.device)?.storage().clone();
                }
                loaded.made.get_or_init(|| (dtype, memory))
            }
        };
        if *made_as != dtype {
            return Err(Error::unsupported(format!("storage '{}' is used with two dtypes", loaded.key)));
        }
        let tensor = source::tensor(memory, &dims(arena, sizes)?, &dims(arena, strides)?, size(arena, offset)?, dtype)
            .map_err(|e| e.within(&format!("a tensor over storage '{}'", loaded.key)))?;
        Ok(Object::Tensor(if requires_grad { tensor.requires_grad_(true)? } else { tensor }))
    }
}

fn truth(arena: &Arena, r: Ref) -> Result<bool> {
    match arena.get(r) {
        &Object::Bool(b) => Ok(b),
        other => Err(corrupt(format_args!("{} as a truth value", other.kind()))),
    }
}

fn tensor_of(arena: &Arena, r: Ref) -> Result<&Tensor> {
    match arena.get(r) {
        Object::Tensor(tensor) => Ok(tensor),
        other => Err(corrupt(format_args!("a parameter made of {}", other.kind()))),
    }
}

fn dtype_of(arena: &Arena, r: Ref) -> Result<DType> {
    match arena.get(r) {
        &Object::Global(Global::DType(Elements::Known(dtype))) => Ok(dtype),
        &Object::Global(Global::DType(Elements::Unknown(name))) => Err(unknown_dtype(name)),
        other => Err(corrupt(format_args!("{} as a dtype", other.kind()))),
    }
}

fn no_metadata(arena: &Arena, metadata: &[Ref]) -> Result<()> {
    match metadata.first().map(|&r| arena.get(r)) {
        None | Some(Object::None) => Ok(()),
        Some(Object::Dict(entries)) if entries.is_empty() => Ok(()),
        Some(Object::OrderedDict(dict)) if dict.entries.is_empty() => Ok(()),
        _ => Err(Error::unsupported("a tensor with a pending conjugation or negation; save tensor.resolve_neg()")),
    }
}

fn unknown_dtype(name: &str) -> Error {
    Error::dtype(format!(
        "the file holds a tensor of '{name}', a dtype that is not supported; convert it before saving"
    ))
}

#[cfg(test)]
mod tests {
    use super::here;
    use rushlight_core::Device;

    #[test]
    fn tensors_come_to_the_gpu_of_the_same_number() {
        let (amd, intel) = ((Device::Cuda(0), 2), (Device::Xpu(0), 2));
        assert_eq!(["cuda", "cuda:1", "xpu:1", "hip:0"].map(|on| here(on, amd)), [0, 1, 1, 0].map(Device::Cuda));
        assert_eq!(["cuda:1", "xpu"].map(|on| here(on, intel)), [1, 0].map(Device::Xpu));
        for elsewhere in ["cpu", "cuda:2", "cuda:x", "mps", "meta", ""] {
            assert_eq!(here(elsewhere, amd), Device::Cpu, "{elsewhere}");
        }
        assert_eq!(here("cuda:0", (Device::Cpu, 0)), Device::Cpu);
    }
}
