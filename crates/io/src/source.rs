//! A mapped or read file, and tensors that are views of it.

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use rushlight_core::sync::lock;
use rushlight_core::{Backend, DType, Dims, Error, Layout, Result, Storage, layout};
use rushlight_tensor::Tensor;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Maximum number of dimensions in a file; NumPy's own limit.
pub(crate) const MAX_RANK: usize = 64;

/// The bytes of a file: mapped, privately and copy-on-write, or read. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Source {
    memory: Arc<MmapRaw>,
    len: usize,
}

/// In which order a file holds the bytes of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl Source {
    /// Opens a file. Without `mmap` its bytes are read now, and later changes of the file do not matter.
    pub(crate) fn open(path: &Path, mmap: bool) -> Result<Self> {
        let (mut file, len) = open(path)?;
        if mmap && len > 0 {
            // SAFETY: the mapping is private: writes through it stay in this process. `LoadOptions::mmap` requires
            // of its callers that the file is not shortened or overwritten in place while it is mapped; our own
            // writers only replace files.
            let map = unsafe { MmapOptions::new().len(len).map_copy(&file)? };
            return Ok(Self { memory: Arc::new(map.into()), len });
        }
        Self::filled(len, |bytes| read_exact(&mut file, bytes))
    }

    /// A copy of bytes that are already in memory.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::filled(bytes.len(), |memory| {
            memory.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Page-aligned memory of `len` bytes, zero at first.
    pub(crate) fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Self> {
        let mut map = MmapMut::map_anon(len.max(1)).map_err(|e| Error::out_of_memory(format!("{len} bytes: {e}")))?;
        fill(&mut map[..len])?;
        Ok(Self { memory: Arc::new(map.into()), len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All bytes, for parsing. Not to be held while tensors over the same bytes are in the hands of a user.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped for as long as `self` lives; tensors that could write to them are handed out
        // after parsing only.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// A storage over `range`, which must hold elements of `dtype`. Without a copy if the bytes are fit to be used
    /// without a copy.
    pub(crate) fn storage(&self, range: Range<usize>, dtype: DType, order: ByteOrder) -> Result<Arc<Storage>> {
        let size = dtype.size();
        if range.start > range.end || range.end > self.len {
            return Err(Error::io(format!("bytes {range:?} are outside of the file, which has {}", self.len)));
        }
        let backend = cpu()?;
        let address = self.memory.as_mut_ptr().wrapping_add(range.start);
        let swap = order == ByteOrder::Big && size > 1;
        if !swap && dtype != DType::Bool && address.addr().is_multiple_of(size) {
            let start = NonNull::new(address).ok_or_else(|| Error::io("the file is mapped at address zero"))?;
            let owner = Box::new(self.memory.clone());
            // SAFETY: the range is within the mapping, which is readable and writable and which `owner` keeps alive.
            return Ok(Arc::new(unsafe { Storage::from_owner(backend, start, range.len(), owner) }));
        }
        let mut rest = &self.bytes()[range.clone()];
        copied(backend, range.len(), |chunk| {
            let (now, later) = rest.split_at(chunk.len());
            chunk.copy_from_slice(now);
            rest = later;
            if swap {
                chunk.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            }
            normalize(chunk, dtype);
            Ok(())
        })
    }
}

/// A file whose bytes are read on demand: a file that is shortened meanwhile gives errors.
pub(crate) struct OpenFile {
    file: Mutex<File>,
    len: usize,
}

impl OpenFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        open(path).map(|(file, len)| Self { file: Mutex::new(file), len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of `range`, which must be small: a header.
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        let mut file = lock(&self.file);
        file.seek(SeekFrom::Start(range.start as u64))?;
        read_exact(&mut file, &mut bytes)?;
        Ok(bytes)
    }

    /// A storage with the bytes of `range`, little-endian elements of `dtype`.
    pub(crate) fn storage(&self, range: Range<usize>, dtype: DType) -> Result<Arc<Storage>> {
        if range.start > range.end || range.end > self.len {
            return Err(Error::io(format!("bytes {range:?} are outside of the file, which has {}", self.len)));
        }
        let mut file = lock(&self.file);
        file.seek(SeekFrom::Start(range.start as u64))?;
        copied(cpu()?, range.len(), |chunk| {
            read_exact(&mut file, chunk)?;
            normalize(chunk, dtype);
            Ok(())
        })
    }
}

/// Opens a regular file; gives it and its length.
fn open(path: &Path) -> Result<(File, usize)> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Error::io("it is not a regular file"));
    }
    let len = usize::try_from(meta.len()).map_err(|_| Error::io("it is larger than memory can address"))?;
    Ok((file, len))
}

fn read_exact(file: &mut File, bytes: &mut [u8]) -> Result<()> {
    file.read_exact(bytes).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => Error::io("the file was shortened while it was open"),
        _ => e.into(),
    })
}

/// Makes every byte of a bool 0 or 1: any other would be undefined behaviour.
fn normalize(bytes: &mut [u8], dtype: DType) {
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
}

/// Memory of the engine with `len` bytes, which `fill` writes chunk by chunk, in order. Chunks end between elements.
fn copied(
    backend: &'static dyn Backend,
    len: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<()>,
) -> Result<Arc<Storage>> {
    /// A multiple of every element size.
    const CHUNK: usize = 1 << 18;
    let storage = backend.alloc(len)?;
    let mut buffer = vec![0u8; len.min(CHUNK)];
    for start in (0..len).step_by(CHUNK) {
        let chunk = &mut buffer[..CHUNK.min(len - start)];
        fill(chunk)?;
        backend.upload(chunk, &storage, start)?;
    }
    Ok(Arc::new(storage))
}

fn cpu() -> Result<&'static dyn Backend> {
    Ok(Tensor::empty_with([0], DType::U8)?.storage().backend())
}

/// A tensor over (part of) a storage. Everything about the layout may come from a hostile file.
pub(crate) fn tensor(
    storage: &Arc<Storage>,
    shape: &[usize],
    strides: &[usize],
    offset: usize,
    dtype: DType,
) -> Result<Tensor> {
    check_shape(shape)?;
    let numel = layout::checked_numel(shape)?;
    let mut strides = Dims::from_slice(strides);
    let mut offset = offset;
    if strides.len() == shape.len() {
        // Strides that no element uses may be anything; ones without meaning must not reach the arithmetic of later
        // views.
        let usual = layout::contiguous_strides(shape);
        let reach = storage.bytes() / dtype.size();
        for ((stride, &size), &plain) in strides.iter_mut().zip(shape).zip(&usual) {
            if numel == 0 || size == 1 && *stride > reach {
                *stride = plain;
            }
        }
    }
    if numel == 0 {
        offset = offset.min(storage.bytes() / dtype.size());
    }
    let layout = Layout::strided(shape, &strides, offset)?;
    // SAFETY: the storage was made by `Source::storage`, or by the engine itself.
    unsafe { Tensor::from_storage(storage.clone(), layout, dtype) }
}

/// Refuses shapes that no valid file has and that views cannot compute with: too many dimensions, or sizes so
/// large that only a zero among them makes them fit.
pub(crate) fn check_shape(shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::io(format!("a tensor of {} dimensions; at most {MAX_RANK} are read", shape.len())));
    }
    let sizes: Dims = shape.iter().copied().filter(|&size| size > 0).collect();
    layout::checked_numel(&sizes).map(drop)
}
