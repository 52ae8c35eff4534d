//! `.metadata`: PyTorch's pickled dataclasses, read and written without running any of their code.

use super::metadata::{Chunk, Entry, Metadata, Place, Step};
use crate::pickle::globals::{self, CheckpointClass, Elements, Global};
use crate::pickle::machine::{self, Arena, Object, Ref, Reply, World, corrupt};
use crate::pickle::value::{Containers, dims, size};
use rushlight_core::{DType, Dims, Error, Result};
use std::collections::HashMap;

/// The names in a pickle of metadata.
struct Reader(Containers);

impl World for Reader {
    fn find(&self, module: &str, name: &str) -> Option<Global> {
        globals::python(module, name)
            .or_else(|| globals::checkpoint(module, name))
            .or_else(|| globals::torch(module, name).filter(|global| matches!(global, Global::Size | Global::DType(_))))
    }

    fn persistent(&mut self, _: &Arena, _: Ref) -> Result<Object> {
        Err(corrupt("a reference to something outside of the pickle"))
    }

    fn call(&mut self, arena: &Arena, function: Global, args: &[Ref]) -> Result<Reply> {
        Ok(match (function, args) {
            (Global::Size, &[sizes]) if matches!(arena.get(sizes), Object::Tuple(_)) => Reply::Same(sizes),
            // Layouts, memory formats and paths do not matter to a reader.
            (Global::Checkpoint(CheckpointClass::Ignored), _) => Reply::New(Object::None),
            (Global::Checkpoint(class), []) => Reply::New(Object::Instance(class, None)),
            _ => return self.0.call(arena, function, args),
        })
    }

    fn build(&mut self, arena: &Arena, target: Ref, state: Ref) -> Result<Reply> {
        match *arena.get(target) {
            Object::Instance(class, _) => Ok(Reply::New(Object::Instance(class, Some(state)))),
            Object::Dict(_) | Object::OrderedDict(_) | Object::None => Ok(Reply::Same(target)),
            ref other => Err(corrupt(format_args!("it sets the state of {}", other.kind()))),
        }
    }
}

/// Reads `.metadata`.
pub(super) fn read(pickle: &[u8]) -> Result<Metadata> {
    let (arena, root) = machine::run(pickle, &mut Reader(Containers::of(pickle)))?;
    let arena = &arena;
    let fields = instance(arena, root, CheckpointClass::Metadata)?;
    let mut places: HashMap<(String, Dims), Place> = HashMap::new();
    for &(index, info) in dict(arena, field(arena, fields, "storage_data")?)? {
        let key = instance(arena, index, CheckpointClass::MetadataIndex)?;
        let name = text(arena, field(arena, key, "fqn")?)?;
        let offsets = match optional(arena, key, "offset").map(|r| (r, arena.get(r))) {
            None | Some((_, Object::None)) => Dims::new(),
            Some((r, _)) => dims(arena, r)?,
        };
        let info = instance(arena, info, CheckpointClass::StorageInfo)?;
        let is_plain = match optional(arena, info, "transform_descriptors").map(|r| arena.get(r)) {
            None | Some(Object::None) => true,
            Some(Object::Tuple(list)) => list.is_empty(),
            Some(Object::List(list)) => list.is_empty(),
            Some(_) => false,
        };
        if !is_plain {
            return Err(Error::unsupported(format!("'{name}' was written through an extension, such as compression")));
        }
        let file = text(arena, field(arena, info, "relative_path")?)?;
        // A name that leaves the folder would read any file.
        if file.is_empty() || file.contains(['/', '\\', '\0']) || file == ".." {
            return Err(corrupt("a file outside of the checkpoint's folder"));
        }
        let number = |name: &str| size(arena, field(arena, info, name)?).map(|n| n as u64);
        let place = Place { file, offset: number("offset")?, length: number("length")? };
        places.insert((name, offsets), place);
    }
    let mut metadata = Metadata::default();
    for &(name, entry) in dict(arena, field(arena, fields, "state_dict_metadata")?)? {
        let name = text(arena, name)?;
        let entry = match arena.get(entry) {
            Object::Instance(CheckpointClass::Bytes, _) => Entry::Bytes(places.remove(&(name.clone(), Dims::new()))),
            Object::Instance(CheckpointClass::Tensor, _) => {
                let fields = instance(arena, entry, CheckpointClass::Tensor)?;
                let (dtype, requires_grad) = properties(arena, field(arena, fields, "properties")?, &name)?;
                let Object::List(list) = arena.get(field(arena, fields, "chunks")?) else {
                    return Err(corrupt("a tensor without a list of parts"));
                };
                let whole = dims(arena, field(arena, fields, "size")?)?;
                crate::source::check_shape(&whole)?;
                let mut chunks = Vec::with_capacity(list.len());
                for &chunk in list {
                    let chunk = instance(arena, chunk, CheckpointClass::Chunk)?;
                    let offsets = dims(arena, field(arena, chunk, "offsets")?)?;
                    let sizes = dims(arena, field(arena, chunk, "sizes")?)?;
                    let fits = offsets.len() == whole.len()
                        && sizes.len() == whole.len()
                        && (0..whole.len()).all(|i| offsets[i].checked_add(sizes[i]).is_some_and(|n| n <= whole[i]));
                    if !fits {
                        return Err(corrupt(format_args!("'{name}' has a part outside of it")));
                    }
                    let place = places.get(&(name.clone(), offsets.clone())).cloned();
                    chunks.push(Chunk { offsets, sizes, place });
                }
                Entry::Tensor { dtype, size: whole, requires_grad, chunks }
            }
            other => return Err(corrupt(format_args!("{} as the entry '{name}'", other.kind()))),
        };
        metadata.insert(&name, entry)?;
    }
    if let Some(planner) = optional(arena, fields, "planner_data")
        && let Object::Dict(paths) = arena.get(planner)
    {
        for &(name, path) in paths {
            let Object::Tuple(steps) = arena.get(path) else { return Err(corrupt("a path that is no tuple")) };
            let steps = steps.iter().map(|&step| match arena.get(step) {
                Object::Str(key) => Ok(Step::Key(key.to_string())),
                &Object::Int(i) => Ok(Step::Index(i)),
                other => Err(corrupt(format_args!("{} in a path", other.kind()))),
            });
            metadata.paths.push((text(arena, name)?, steps.collect::<Result<_>>()?));
        }
    }
    Ok(metadata)
}

type Fields = [(Ref, Ref)];

fn instance(arena: &Arena, r: Ref, class: CheckpointClass) -> Result<&Fields> {
    match arena.get(r) {
        Object::Instance(found, Some(state)) if *found == class => dict(arena, *state),
        other => Err(corrupt(format_args!("{} where {class:?} is expected", other.kind()))),
    }
}

fn dict(arena: &Arena, r: Ref) -> Result<&Fields> {
    match arena.get(r) {
        Object::Dict(entries) => Ok(entries),
        other => Err(corrupt(format_args!("{} where a dictionary is expected", other.kind()))),
    }
}

fn optional(arena: &Arena, fields: &Fields, name: &str) -> Option<Ref> {
    let is_it = |&&(key, _): &&(Ref, Ref)| matches!(arena.get(key), Object::Str(text) if &**text == name);
    fields.iter().find(is_it).map(|&(_, value)| value)
}

fn field(arena: &Arena, fields: &Fields, name: &str) -> Result<Ref> {
    optional(arena, fields, name).ok_or_else(|| corrupt(format_args!("no field '{name}'")))
}

fn text(arena: &Arena, r: Ref) -> Result<String> {
    match arena.get(r) {
        Object::Str(text) => Ok(text.to_string()),
        other => Err(corrupt(format_args!("{} as a name", other.kind()))),
    }
}

/// The dtype of a tensor's properties and whether it needs gradients.
fn properties(arena: &Arena, r: Ref, name: &str) -> Result<(DType, bool)> {
    let Object::Instance(CheckpointClass::Properties, Some(state)) = arena.get(r) else {
        return Err(corrupt(format_args!("'{name}' has no properties")));
    };
    let Object::Tuple(items) = arena.get(*state) else { return Err(corrupt("properties that are no tuple")) };
    let dtype = match items.first().map(|&r| arena.get(r)) {
        Some(&Object::Global(Global::DType(Elements::Known(dtype)))) => dtype,
        Some(&Object::Global(Global::DType(Elements::Unknown(unknown)))) => {
            return Err(Error::dtype(format!("'{name}' is of '{unknown}', a dtype that is not supported")));
        }
        _ => return Err(corrupt(format_args!("'{name}' has no dtype"))),
    };
    Ok((dtype, matches!(items.get(2).map(|&r| arena.get(r)), Some(Object::Bool(true)))))
}

const MODULE: &str = "torch.distributed.checkpoint.metadata";

/// Writes `.metadata` as PyTorch reads it.
pub(super) fn write(metadata: &Metadata) -> Result<Vec<u8>> {
    let mut out = Writer::default();
    out.bytes.extend([0x80, 4]);
    out.new_object(MODULE, "Metadata");
    out.fields(5, |out, i| match i {
        0 => {
            out.text("state_dict_metadata")?;
            out.bytes.extend(b"}(");
            for (name, entry) in &metadata.entries {
                out.text(name)?;
                out.entry(entry)?;
            }
            out.bytes.push(b'u');
            Ok(())
        }
        1 => {
            out.text("planner_data")?;
            out.bytes.extend(b"}(");
            for (name, path) in &metadata.paths {
                out.text(name)?;
                out.bytes.push(b'(');
                for step in path {
                    match step {
                        Step::Key(key) => out.text(key)?,
                        Step::Index(i) => out.int(*i),
                    }
                }
                out.bytes.push(b't');
            }
            out.bytes.push(b'u');
            Ok(())
        }
        2 => {
            out.text("storage_data")?;
            out.bytes.extend(b"}(");
            for (name, entry) in &metadata.entries {
                match entry {
                    Entry::Bytes(place) => out.place(name, None, place.as_ref())?,
                    Entry::Tensor { chunks, .. } => {
                        for (i, chunk) in chunks.iter().enumerate() {
                            out.place(name, Some((i, &chunk.offsets)), chunk.place.as_ref())?;
                        }
                    }
                }
            }
            out.bytes.push(b'u');
            Ok(())
        }
        3 => {
            out.text("storage_meta")?;
            out.bytes.push(b'N');
            Ok(())
        }
        _ => {
            out.text("version")?;
            out.text("1.0.0")
        }
    })?;
    out.bytes.push(b'.');
    Ok(out.bytes)
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    /// Places in the memo of text and of names.
    memo: HashMap<String, u32>,
}

impl Writer {
    /// Recalls a value written before; says whether it was.
    fn recall(&mut self, key: &str) -> bool {
        let Some(&slot) = self.memo.get(key) else { return false };
        self.bytes.push(b'j');
        self.bytes.extend(slot.to_le_bytes());
        true
    }

    fn memoize(&mut self, key: String) {
        let slot = self.memo.len() as u32;
        self.bytes.push(b'r');
        self.bytes.extend(slot.to_le_bytes());
        self.memo.insert(key, slot);
    }

    fn text(&mut self, text: &str) -> Result<()> {
        let key = format!("text {text}");
        if !self.recall(&key) {
            let n = u32::try_from(text.len()).map_err(|_| Error::value("a name of more than 4 GiB"))?;
            self.bytes.push(b'X');
            self.bytes.extend(n.to_le_bytes());
            self.bytes.extend(text.as_bytes());
            self.memoize(key);
        }
        Ok(())
    }

    fn int(&mut self, i: i64) {
        match u8::try_from(i) {
            Ok(small) => self.bytes.extend([b'K', small]),
            Err(_) => {
                self.bytes.extend([0x8a, 8]);
                self.bytes.extend(i.to_le_bytes());
            }
        }
    }

    fn global(&mut self, module: &str, name: &str) {
        let key = format!("name {module}\n{name}");
        if !self.recall(&key) {
            self.bytes.push(b'c');
            self.bytes.extend(format!("{module}\n{name}\n").bytes());
            self.memoize(key);
        }
    }

    fn new_object(&mut self, module: &str, name: &str) {
        self.global(module, name);
        self.bytes.extend([b')', 0x81]);
    }

    /// A dictionary as the state of the object on the stack.
    fn fields(&mut self, count: usize, mut write: impl FnMut(&mut Self, usize) -> Result<()>) -> Result<()> {
        self.bytes.extend(b"}(");
        (0..count).try_for_each(|i| write(self, i))?;
        self.bytes.extend(b"ub");
        Ok(())
    }

    fn size(&mut self, sizes: &[usize]) {
        self.global("torch", "Size");
        self.bytes.push(b'(');
        sizes.iter().for_each(|&n| self.int(n as i64));
        self.bytes.extend([b't', 0x85, b'R']);
    }

    fn entry(&mut self, entry: &Entry) -> Result<()> {
        let Entry::Tensor { dtype, size, requires_grad, chunks } = entry else {
            self.new_object(MODULE, "BytesStorageMetadata");
            return Ok(());
        };
        self.new_object(MODULE, "TensorStorageMetadata");
        self.fields(3, |out, i| match i {
            0 => {
                out.text("properties")?;
                out.new_object(MODULE, "TensorProperties");
                out.bytes.push(b'(');
                out.global("torch", dtype.name());
                out.global("torch.serialization", "_get_layout");
                out.text("torch.strided")?;
                out.bytes.extend([0x85, b'R', if *requires_grad { 0x88 } else { 0x89 }]);
                out.global(MODULE, "_MEM_FORMAT_ENCODING");
                // Contiguous; not pinned. Five items are read by every version.
                out.bytes.extend([b'K', 0, 0x85, b'R', 0x89, b't', b'b']);
                Ok(())
            }
            1 => {
                out.text("size")?;
                out.size(size);
                Ok(())
            }
            _ => {
                out.text("chunks")?;
                out.bytes.extend(b"](");
                for chunk in chunks {
                    out.new_object(MODULE, "ChunkStorageMetadata");
                    out.fields(2, |out, i| {
                        out.text(["offsets", "sizes"][i])?;
                        out.size(if i == 0 { &chunk.offsets } else { &chunk.sizes });
                        Ok(())
                    })?;
                }
                out.bytes.push(b'e');
                Ok(())
            }
        })
    }

    fn place(&mut self, name: &str, part: Option<(usize, &Dims)>, place: Option<&Place>) -> Result<()> {
        let place = place.ok_or_else(|| Error::value(format!("checkpoint: a part of '{name}' was not written")))?;
        self.new_object(MODULE, "MetadataIndex");
        self.fields(if part.is_some() { 3 } else { 2 }, |out, i| {
            out.text(["fqn", "index", "offset"][i])?;
            match (i, part) {
                (0, _) => out.text(name)?,
                (1, Some((number, _))) => out.int(number as i64),
                (2, Some((_, offsets))) => out.size(offsets),
                _ => out.bytes.push(b'N'),
            }
            Ok(())
        })?;
        self.new_object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
        self.fields(3, |out, i| {
            out.text(["relative_path", "offset", "length"][i])?;
            match i {
                0 => out.text(&place.file)?,
                1 => out.int(place.offset as i64),
                _ => out.int(place.length as i64),
            }
            Ok(())
        })
    }
}
