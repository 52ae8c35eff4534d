//! The JSON header: eight bytes of length, then an object of tensors by name.

use super::{Metadata, dtype_of, is_nameless, name_of};
use crate::source;
use indexmap::IndexMap;
use rushlight_core::{DType, Error, Result, layout};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The format's own limit.
const MAX_HEADER: usize = 100_000_000;

/// Tensors start at multiples of this, so that a mapped file has them aligned for vectors.
const ALIGN: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) tensors: IndexMap<String, TensorInfo>,
    pub(super) metadata: Metadata,
}

/// A tensor's byte range, counted from the end of the header.
#[derive(Debug)]
pub(super) struct TensorInfo {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    pub(super) begin: usize,
    pub(super) end: usize,
}

impl Header {
    /// Reads and checks the header of a file in memory; gives it and where the tensors' bytes begin.
    pub(super) fn read(file: &[u8]) -> Result<(Self, usize)> {
        let end = Self::end(file, file.len())?;
        Ok((Self::parse(&file[8..end], file.len() - end)?, end))
    }

    /// Where the header of a file of `len` bytes ends, from the first bytes of the file.
    pub(super) fn end(start: &[u8], len: usize) -> Result<usize> {
        let length = start
            .first_chunk::<8>()
            .ok_or_else(|| Error::io(format!("the file has {len} bytes: too short for a header")))?;
        let length = u64::from_le_bytes(*length);
        usize::try_from(length)
            .ok()
            .filter(|&n| n <= MAX_HEADER && n <= len - 8)
            .map(|n| 8 + n)
            .ok_or_else(|| Error::io(format!("a header of {length} bytes does not fit the file of {len} bytes")))
    }

    /// Parses and checks the header's JSON; `bytes` follow it in the file.
    pub(super) fn parse(json: &[u8], bytes: usize) -> Result<Self> {
        let mut parser = serde_json::Deserializer::from_slice(json);
        let header = HeaderSeed
            .deserialize(&mut parser)
            .and_then(|header| parser.end().map(|()| header))
            .map_err(|e| Error::io(format!("the header is not what safetensors writes: {e}")))?;
        header.check(bytes)?;
        Ok(header)
    }

    /// Every tensor has the bytes its shape needs, and together they are all bytes of the file, each once.
    fn check(&self, bytes: usize) -> Result<()> {
        let mut order: Vec<(&String, &TensorInfo)> = self.tensors.iter().collect();
        order.sort_by_key(|(_, info)| (info.begin, info.end));
        let mut position = 0;
        for (name, info) in order {
            if info.begin != position || info.end < info.begin {
                return Err(Error::io(format!(
                    "tensor '{name}' is at bytes {}..{}, but should start at {position}: tensors overlap or leave gaps",
                    info.begin, info.end
                )));
            }
            position = info.end;
            source::check_shape(&info.shape).map_err(|e| e.within(&format!("tensor '{name}'")))?;
            if let Some(dtype) = dtype_of(&info.dtype) {
                let need = layout::checked_numel(&info.shape)?.checked_mul(dtype.size());
                if need != Some(info.end - info.begin) {
                    return Err(Error::io(format!(
                        "tensor '{name}' of shape {:?} and dtype {} has {} bytes in the file",
                        info.shape,
                        info.dtype,
                        info.end - info.begin
                    )));
                }
            }
        }
        if position != bytes {
            return Err(Error::io(format!(
                "the tensors need {position} bytes, but the file has {bytes} of them: it was cut short or damaged"
            )));
        }
        Ok(())
    }
}

struct HeaderSeed;

impl<'de> DeserializeSeed<'de> for HeaderSeed {
    type Value = Header;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Header, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                header.metadata = map.next_value()?;
            } else {
                let info = map.next_value_seed(InfoSeed)?;
                if header.tensors.contains_key(&name) {
                    return Err(A::Error::custom(format_args!("tensor '{name}' appears twice")));
                }
                header.tensors.insert(name, info);
            }
        }
        Ok(header)
    }
}

struct InfoSeed;

impl<'de> DeserializeSeed<'de> for InfoSeed {
    type Value = TensorInfo;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<TensorInfo, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for InfoSeed {
    type Value = TensorInfo;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorInfo, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "dtype" => dtype = Some(map.next_value::<String>()?),
                "shape" => shape = Some(map.next_value::<Vec<usize>>()?),
                "data_offsets" => offsets = Some(map.next_value::<(usize, usize)>()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let missing = |field| A::Error::custom(format_args!("a tensor without '{field}'"));
        let (begin, end) = offsets.ok_or_else(|| missing("data_offsets"))?;
        Ok(TensorInfo {
            dtype: dtype.ok_or_else(|| missing("dtype"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
            begin,
            end,
        })
    }
}

/// The header of tensors whose bytes will follow in `order`, padded so that they start aligned; and where each one's
/// bytes begin after it.
pub(super) fn encode(
    tensors: &[(&str, DType, &[usize])],
    order: &[usize],
    metadata: &Metadata,
) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut places = vec![(0, 0); tensors.len()];
    let mut position = 0usize;
    for &i in order {
        let begin = position;
        position += tensors[i].2.iter().product::<usize>() * tensors[i].1.size();
        places[i] = (begin, position);
    }
    let mut out = vec![0; 8];
    out.push(b'{');
    if !metadata.is_empty() {
        out.extend(b"\"__metadata__\":{");
        for (i, (key, value)) in metadata.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            out.extend(format!("{comma}{}:{}", quote(key), quote(value)).bytes());
        }
        out.push(b'}');
    }
    for (&(name, dtype, shape), &(begin, end)) in tensors.iter().zip(&places) {
        if name == "__metadata__" {
            return Err(Error::value("'__metadata__' cannot be the name of a tensor in this format"));
        }
        if is_nameless(dtype) {
            return Err(Error::dtype(format!(
                "safetensors has no {}; save its view_as_real, or convert with to_dtype(DType::C64)",
                dtype
            )));
        }
        let comma = if out.len() > 9 { "," } else { "" };
        let (name, dtype) = (quote(name), name_of(dtype));
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        let shape = shape.join(",");
        out.extend(
            format!("{comma}{name}:{{\"dtype\":\"{dtype}\",\"shape\":[{shape}],\"data_offsets\":[{begin},{end}]}}")
                .bytes(),
        );
    }
    out.push(b'}');
    out.resize(out.len().next_multiple_of(ALIGN), b' ');
    let length = out.len() - 8;
    if length > MAX_HEADER {
        return Err(Error::value(format!(
            "names and metadata make a header of {length} bytes; the format allows {MAX_HEADER}"
        )));
    }
    out[..8].copy_from_slice(&(length as u64).to_le_bytes());
    Ok((out, places.into_iter().map(|(begin, _)| begin).collect()))
}

/// Text as JSON spells it.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
