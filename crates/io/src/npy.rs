//! NumPy's `.npy` files: one array.
//!
//! ```
//! # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_io as io; }
//! use rushlight::io::npy;
//! use rushlight::Tensor;
//! let path = std::env::temp_dir().join(format!("rushlight-doc-{}.npy", std::process::id()));
//! npy::save(&Tensor::new([[1i64, 2], [3, 4]])?, &path)?;
//! assert_eq!(npy::load(&path)?.shape(), [2, 2]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), rushlight_core::Error>(())
//! ```

use crate::source::{self, ByteOrder, Source};
use crate::{LoadOptions, sink};
use rushlight_core::{DType, Dims, Error, Result, layout};
use rushlight_tensor::Tensor;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Headers of numbers are some hundred bytes; NumPy itself reads ten thousand.
const MAX_HEADER: usize = 1 << 16;

/// Reads a file written by `numpy.save` or [`save`]. The tensor is a view of the read bytes, with strides if the array
/// is in Fortran order; big-endian and bool arrays are copied.
pub fn load(path: impl AsRef<Path>) -> Result<Tensor> {
    load_with(path, &LoadOptions::default())
}

/// Reads a file; see [`load`].
pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Tensor> {
    let path = path.as_ref();
    Source::open(path, options.mmap)
        .and_then(|source| load_source(&source))
        .map_err(|e| e.within(&format!("npy::load '{}'", path.display())))
}

/// Reads the contents of a file that are already in memory.
pub fn from_bytes(bytes: &[u8]) -> Result<Tensor> {
    Source::from_bytes(bytes).and_then(|source| load_source(&source)).map_err(|e| e.within("npy::from_bytes"))
}

pub(crate) fn load_source(source: &Source) -> Result<Tensor> {
    parse(source, 0..source.len())
}

/// Reads an array that takes up `place` of a file.
pub(crate) fn parse(source: &Source, place: Range<usize>) -> Result<Tensor> {
    let bytes = &source.bytes()[place.clone()];
    let short = || Error::io("the array is cut short");
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| Error::io("it is not a .npy file: it does not begin with \\x93NUMPY"))?;
    let (&[major, _minor], rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(n, rest)| (usize::from(u16::from_le_bytes(*n)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest)),
        other => return Err(Error::unsupported(format!("version {other} of the .npy format; 1 to 3 are read"))),
    }
    .ok_or_else(short)?;
    let text = rest.get(..length).filter(|_| length <= MAX_HEADER);
    let text = text.ok_or_else(|| Error::io(format!("a header of {length} bytes")))?;
    let text = std::str::from_utf8(text).map_err(|_| Error::io("the header is not text"))?;
    let header = Header::parse(text)?;

    source::check_shape(&header.shape)?;
    let numel = layout::checked_numel(&header.shape)?;
    let start = place.end - (rest.len() - length);
    let need = numel.checked_mul(header.dtype.size()).filter(|&n| n <= place.end - start);
    let need = need.ok_or_else(|| {
        Error::io(format!(
            "an array of shape {:?} and dtype {} needs more than the {} bytes there are",
            &header.shape[..],
            header.dtype,
            place.end - start
        ))
    })?;
    let strides = strides(&header.shape, header.fortran_order);
    let storage = source.storage(start..start + need, header.dtype, header.order)?;
    source::tensor(&storage, &header.shape, &strides, 0, header.dtype)
}

/// The strides of an array that fills its memory, in C's order or Fortran's.
pub(crate) fn strides(shape: &[usize], fortran_order: bool) -> Dims {
    if !fortran_order {
        return layout::contiguous_strides(shape);
    }
    let reversed: Dims = shape.iter().rev().copied().collect();
    layout::contiguous_strides(&reversed).into_iter().rev().collect()
}

struct Header {
    dtype: DType,
    order: ByteOrder,
    fortran_order: bool,
    shape: Dims,
}

impl Header {
    /// Reads the Python dictionary `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
    fn parse(text: &str) -> Result<Self> {
        let mut words = Words(text.trim_end());
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        words.expect("{")?;
        while !words.accept("}") {
            let key = words.quoted()?;
            words.expect(":")?;
            match key {
                "descr" => descr = Some(words.descr()?),
                "fortran_order" => fortran_order = Some(words.truth()?),
                "shape" => shape = Some(words.tuple()?),
                other => return Err(words.fail(format_args!("the key '{other}'"))),
            }
            if !words.accept(",") {
                words.expect("}")?;
                break;
            }
        }
        match (descr, fortran_order, shape) {
            (Some((dtype, order)), Some(fortran_order), Some(shape)) if words.0.trim().is_empty() => {
                Ok(Self { dtype, order, fortran_order, shape })
            }
            _ => Err(words.fail("something missing or left over")),
        }
    }
}

/// The header's text, word by word.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn fail(&self, what: impl std::fmt::Display) -> Error {
        Error::io(format!("the header is not what numpy.save writes: {what}"))
    }

    fn accept(&mut self, word: &str) -> bool {
        match self.0.trim_start().strip_prefix(word) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        if self.accept(word) { Ok(()) } else { Err(self.fail(format_args!("no '{word}' where one should be"))) }
    }

    fn quoted(&mut self) -> Result<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let parts = quote.and_then(|q| text.get(1..)?.split_once(q));
        let (inside, rest) = parts.ok_or_else(|| self.fail("no string where one should be"))?;
        self.0 = rest;
        Ok(inside)
    }

    fn truth(&mut self) -> Result<bool> {
        match (self.accept("True"), self.accept("False")) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            _ => Err(self.fail("'fortran_order' is neither True nor False")),
        }
    }

    fn tuple(&mut self) -> Result<Dims> {
        self.expect("(")?;
        let mut dims = Dims::new();
        while !self.accept(")") {
            let text = self.0.trim_start();
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let size = text[..digits].parse().map_err(|_| self.fail("'shape' has something that is not a size"))?;
            dims.push(size);
            self.0 = &text[digits..];
            // Python 2 wrote long integers with a letter.
            self.accept("L");
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(dims)
    }

    fn descr(&mut self) -> Result<(DType, ByteOrder)> {
        if self.0.trim_start().starts_with(['[', '(']) {
            return Err(unsupported("structures"));
        }
        element_type(self.quoted()?)
    }
}

fn unsupported(what: &str) -> Error {
    Error::dtype(format!(
        "arrays of {what} are not supported; convert with array.astype to float16/32/64, int8/16/32/64, uint8/16/32/64 or bool"
    ))
}

/// Parses NumPy's name of a dtype, such as `<f4`.
pub(crate) fn element_type(descr: &str) -> Result<(DType, ByteOrder)> {
    let (order, code) = match descr.as_bytes().split_first() {
        Some((b'<' | b'|' | b'=', _)) => (ByteOrder::Little, &descr[1..]),
        Some((b'>', _)) => (ByteOrder::Big, &descr[1..]),
        _ => (ByteOrder::Little, descr),
    };
    let dtype = DType::ALL.into_iter().find(|&d| type_code(d) == Some(code));
    let dtype = dtype.ok_or_else(|| unsupported(&format!("dtype '{}'", descr.chars().take(40).collect::<String>())))?;
    Ok((dtype, order))
}

/// NumPy's letter and size for a dtype, if it has it.
fn type_code(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::F16 => "f2",
        DType::I64 => "i8",
        DType::I32 => "i4",
        DType::I16 => "i2",
        DType::I8 => "i1",
        DType::U8 => "u1",
        DType::Bool => "b1",
        DType::U16 => "u2",
        DType::U32 => "u4",
        DType::U64 => "u8",
        DType::C64 => "c8",
        DType::C128 => "c16",
        // `complex32`, `bfloat16` and 8-bit floats.
        _ => return None,
    })
}

/// Everything before the elements, a multiple of 64 bytes.
pub(crate) fn header(tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let code = type_code(dtype).ok_or_else(|| {
        Error::dtype(format!("NumPy has no {dtype}; convert with to_dtype(DType::F32), or use safetensors"))
    })?;
    let order = if dtype.size() == 1 { '|' } else { '<' };
    let shape = match tensor.shape() {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    let mut dict = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape}, }}");
    let prefix = MAGIC.len() + 4;
    let total = (prefix + dict.len() + 1).next_multiple_of(64);
    while prefix + dict.len() + 1 < total {
        dict.push(' ');
    }
    dict.push('\n');
    let length = u16::try_from(dict.len()).map_err(|_| Error::value("a tensor of too many dimensions for .npy"))?;
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend(length.to_le_bytes());
    out.extend(dict.bytes());
    Ok(out)
}

/// Writes a tensor as `numpy.save` does, to a temporary file that then replaces `path`. `bfloat16` and 8-bit floats,
/// which NumPy lacks, are an error.
pub fn save(tensor: &Tensor, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    sink::save(path, |out| write(tensor, out)).map_err(|e| e.within(&format!("npy::save '{}'", path.display())))
}

/// Writes a tensor as `numpy.save` does, to anything that takes bytes in order.
pub fn write(tensor: &Tensor, out: &mut impl Write) -> Result<()> {
    out.write_all(&header(tensor)?)?;
    let (tensor, range) = sink::contiguous(tensor)?;
    sink::write(tensor.storage(), range, out)?;
    Ok(out.flush()?)
}
