//! The protocol buffers of ONNX files, as far as models need them. Unknown fields are skipped.

use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use std::path::Path;

/// Fields of a message: numbers, or bytes.
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn damaged(what: &str) -> Error {
    Error::io(format!("the ONNX file is damaged: {what}"))
}

/// Reads a message field by field.
pub(super) struct Message<'a>(pub(super) &'a [u8]);

impl<'a> Message<'a> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or_else(|| damaged("it ends early"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damaged("a number is too long"))
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or_else(|| damaged("it ends early"))?;
        self.0 = tail;
        Ok(head)
    }

    /// The next field and its number.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Field<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Number(self.take(8)?.iter().rev().fold(0, |x, &b| x << 8 | u64::from(b))),
            2 => {
                let n = usize::try_from(self.varint()?).map_err(|_| damaged("a length is too large"))?;
                Field::Bytes(self.take(n)?)
            }
            5 => Field::Number(self.take(4)?.iter().rev().fold(0, |x, &b| x << 8 | u64::from(b))),
            _ => return Err(damaged("a field of unknown kind")),
        };
        Ok(Some((key >> 3, field)))
    }
}

impl<'a> Field<'a> {
    fn number(&self) -> Result<u64> {
        match self {
            Field::Number(n) => Ok(*n),
            Field::Bytes(_) => Err(damaged("bytes where a number should be")),
        }
    }

    pub(super) fn bytes(&self) -> Result<&'a [u8]> {
        match self {
            Field::Bytes(b) => Ok(b),
            Field::Number(_) => Err(damaged("a number where bytes should be")),
        }
    }

    fn text(&self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| damaged("a name that is not UTF-8"))
    }

    /// Numbers of a repeated field: packed, or one.
    fn varints(&self, out: &mut Vec<i64>) -> Result<()> {
        match self {
            Field::Number(n) => out.push(*n as i64),
            Field::Bytes(bytes) => {
                let mut message = Message(bytes);
                while !message.0.is_empty() {
                    out.push(message.varint()? as i64);
                }
            }
        }
        Ok(())
    }

    fn floats(&self, out: &mut Vec<f32>) -> Result<()> {
        match self {
            Field::Number(n) => out.push(f32::from_bits(*n as u32)),
            Field::Bytes(bytes) => {
                out.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
            }
        }
        Ok(())
    }
}

/// The dtype of ONNX's number.
pub(super) fn dtype(number: i64) -> Result<DType> {
    Ok(match number {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        other => return Err(Error::dtype(format!("ONNX's element type {other} is not supported"))),
    })
}

/// An attribute's value.
pub(super) enum Attribute {
    Int(i64),
    Float(f32),
    Str(String),
    Tensor(Tensor),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strs(Vec<String>),
    Graph(Box<Graph>),
}

/// A node.
#[derive(Default)]
pub(super) struct Node {
    pub op: String,
    pub domain: String,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<(String, Attribute)>,
}

/// A graph's input or output: its name, element type and sizes, numbers or names.
#[derive(Default)]
pub(super) struct ValueInfo {
    pub name: String,
    pub dtype: i64,
    pub shape: Option<Vec<String>>,
}

/// A graph.
#[derive(Default)]
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    pub weights: Vec<(String, Tensor)>,
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
}

/// A model: its graph and the version of the standard operators.
pub(super) fn model(bytes: &[u8], folder: Option<&Path>) -> Result<(Graph, i64)> {
    let (mut found, mut opset) = (None, 0);
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match number {
            7 => found = Some(graph(field.bytes()?, folder, 0)?),
            8 => {
                let (mut domain, mut version) = (String::new(), 0);
                let mut inner = Message(field.bytes()?);
                while let Some((number, field)) = inner.next()? {
                    match number {
                        1 => domain = field.text()?,
                        2 => version = field.number()? as i64,
                        _ => {}
                    }
                }
                if domain.is_empty() || domain == "ai.onnx" {
                    opset = version;
                }
            }
            _ => {}
        }
    }
    found.map(|g| (g, opset)).ok_or_else(|| Error::io("the file is not an ONNX model: it has no graph"))
}

/// Most graphs inside each other.
const MAX_DEPTH: usize = 40;

fn graph(bytes: &[u8], folder: Option<&Path>, depth: usize) -> Result<Graph> {
    if depth > MAX_DEPTH {
        return Err(damaged("graphs are nested too deeply"));
    }
    let mut out = Graph::default();
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match number {
            1 => out.nodes.push(node(field.bytes()?, folder, depth)?),
            5 => out.weights.push(tensor(field.bytes()?, folder)?),
            11 => out.inputs.push(value_info(field.bytes()?)?),
            12 => out.outputs.push(value_info(field.bytes()?)?),
            15 => return Err(Error::unsupported("sparse weights of an ONNX model")),
            _ => {}
        }
    }
    Ok(out)
}

fn node(bytes: &[u8], folder: Option<&Path>, depth: usize) -> Result<Node> {
    let mut out = Node::default();
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match number {
            1 => out.inputs.push(field.text()?),
            2 => out.outputs.push(field.text()?),
            4 => out.op = field.text()?,
            5 => out.attributes.extend(attribute(field.bytes()?, folder, depth)?),
            7 => out.domain = field.text()?,
            _ => {}
        }
    }
    Ok(out)
}

fn attribute(bytes: &[u8], folder: Option<&Path>, depth: usize) -> Result<Option<(String, Attribute)>> {
    let (mut name, mut kind, mut float, mut int) = (String::new(), 0, 0f32, 0i64);
    let mut body = None;
    let (mut text, mut found, mut floats, mut ints, mut texts) =
        (String::new(), None, Vec::new(), Vec::new(), Vec::new());
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match number {
            1 => name = field.text()?,
            2 => float = f32::from_bits(field.number()? as u32),
            3 => int = field.number()? as i64,
            4 => text = String::from_utf8_lossy(field.bytes()?).into_owned(),
            5 => found = Some(tensor(field.bytes()?, folder)?.1),
            6 => body = Some(graph(field.bytes()?, folder, depth + 1)?),
            11 => return Err(Error::unsupported("a list of graphs as an attribute of an ONNX operator")),
            7 => field.floats(&mut floats)?,
            8 => field.varints(&mut ints)?,
            9 => texts.push(String::from_utf8_lossy(field.bytes()?).into_owned()),
            20 => kind = field.number()?,
            _ => {}
        }
    }
    if let (5, Some(graph)) = (kind, body) {
        return Ok(Some((name, Attribute::Graph(Box::new(graph)))));
    }
    let value = match (kind, found) {
        (1, _) => Attribute::Float(float),
        (2, _) => Attribute::Int(int),
        (3, _) => Attribute::Str(text),
        (4, Some(tensor)) => Attribute::Tensor(tensor),
        (6, _) => Attribute::Floats(floats),
        (7, _) => Attribute::Ints(ints),
        (8, _) => Attribute::Strs(texts),
        (0, None) => return Ok(None),
        _ => return Err(Error::unsupported(format!("attribute '{name}' of kind {kind} in an ONNX node"))),
    };
    Ok(Some((name, value)))
}

fn value_info(bytes: &[u8]) -> Result<ValueInfo> {
    let mut out = ValueInfo::default();
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match number {
            1 => out.name = field.text()?,
            2 => {
                let mut ty = Message(field.bytes()?);
                while let Some((number, field)) = ty.next()? {
                    match number {
                        1 => {}
                        // Sizes of an optional tensor are not checked.
                        9 => continue,
                        _ => return Err(Error::unsupported("ONNX's sequences and maps")),
                    }
                    let mut inner = Message(field.bytes()?);
                    while let Some((number, field)) = inner.next()? {
                        match number {
                            1 => out.dtype = field.number()? as i64,
                            2 => out.shape = Some(shape(field.bytes()?)?),
                            _ => {}
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(out)
}

fn shape(bytes: &[u8]) -> Result<Vec<String>> {
    let mut out = Vec::new();
    let mut message = Message(bytes);
    while let Some((_, field)) = message.next()? {
        let mut size = String::new();
        let mut inner = Message(field.bytes()?);
        while let Some((number, field)) = inner.next()? {
            match number {
                1 => size = field.number()?.to_string(),
                2 => size = field.text()?,
                _ => {}
            }
        }
        out.push(size);
    }
    Ok(out)
}

/// A tensor with its name.
pub(super) fn tensor(bytes: &[u8], folder: Option<&Path>) -> Result<(String, Tensor)> {
    let (mut name, mut dims, mut kind, mut raw) = (String::new(), Vec::new(), 0, None::<Vec<u8>>);
    let (mut floats, mut ints, mut doubles) = (Vec::new(), Vec::new(), Vec::new());
    let mut external = Vec::new();
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match number {
            1 => field.varints(&mut dims)?,
            2 => kind = field.number()? as i64,
            4 => field.floats(&mut floats)?,
            5 | 7 | 11 => field.varints(&mut ints)?,
            8 => name = field.text()?,
            9 => raw = Some(field.bytes()?.to_vec()),
            10 => match field {
                Field::Bytes(b) => doubles.extend(
                    b.chunks_exact(8).map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])),
                ),
                Field::Number(n) => doubles.push(f64::from_bits(n)),
            },
            13 => external.push(entry(field.bytes()?)?),
            _ => {}
        }
    }
    if !external.is_empty() {
        raw = Some(outside(&external, folder)?);
    }
    let dtype = dtype(kind)?;
    let shape =
        dims.iter().map(|&n| usize::try_from(n).map_err(|_| damaged("a negative size"))).collect::<Result<Vec<_>>>()?;
    let count =
        shape.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).ok_or_else(|| damaged("sizes are too large"))?;
    let made = if let Some(raw) = raw {
        if raw.len() / dtype.size().max(1) < count {
            return Err(damaged(&format!("tensor '{name}' has too few bytes")));
        }
        from_raw(&raw[..count * dtype.size()], &shape, dtype)?
    } else if count == 0 {
        Tensor::zeros(&shape[..])?.to_dtype(dtype)?
    } else {
        let flat = match dtype {
            DType::F32 => Tensor::new_with(&floats[..], DType::F32)?,
            DType::F64 => Tensor::new_with(&doubles[..], DType::F64)?,
            // Half floats are bits in integers.
            DType::F16 | DType::BF16 => {
                let bits: Vec<u8> = ints.iter().flat_map(|&i| (i as u16).to_le_bytes()).collect();
                from_raw(&bits, &[ints.len()], dtype)?
            }
            _ => Tensor::new_with(&ints[..], DType::I64)?.to_dtype(dtype)?,
        };
        if flat.numel() != count {
            return Err(damaged(&format!("tensor '{name}' has {} elements for sizes {shape:?}", flat.numel())));
        }
        flat.reshape(&shape[..])?
    };
    Ok((name, made))
}

fn entry(bytes: &[u8]) -> Result<(String, String)> {
    let mut out = (String::new(), String::new());
    let mut message = Message(bytes);
    while let Some((number, field)) = message.next()? {
        match number {
            1 => out.0 = field.text()?,
            2 => out.1 = field.text()?,
            _ => {}
        }
    }
    Ok(out)
}

/// Bytes of a file beside the model. Only files in its folder are read.
fn outside(entries: &[(String, String)], folder: Option<&Path>) -> Result<Vec<u8>> {
    let get = |key: &str| entries.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    let location = get("location").ok_or_else(|| damaged("external data without a file"))?;
    let plain = Path::new(location).components().all(|c| matches!(c, std::path::Component::Normal(_)));
    let (Some(folder), true) = (folder, plain) else {
        return Err(Error::io(format!("external data in '{}', which is not beside the model", location)));
    };
    let number = |key: &str| get(key).map(|v| v.parse::<usize>().map_err(|_| damaged("external data"))).transpose();
    let bytes = std::fs::read(folder.join(location))?;
    let start = number("offset")?.unwrap_or(0);
    let end = match number("length")? {
        Some(n) => start.checked_add(n).ok_or_else(|| damaged("external data"))?,
        None => bytes.len(),
    };
    bytes.get(start..end).map(<[u8]>::to_vec).ok_or_else(|| damaged("external data reach past the end of their file"))
}

/// A tensor of little-endian bytes, read as a safetensors file of one tensor.
pub(crate) fn from_raw(raw: &[u8], shape: &[usize], dtype: DType) -> Result<Tensor> {
    let name = match dtype {
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U8 => "U8",
        DType::U16 => "U16",
        DType::U32 => "U32",
        DType::U64 => "U64",
        DType::Bool => "BOOL",
        other => return Err(Error::dtype(format!("{other} in an ONNX file"))),
    };
    let mut header =
        format!("{{\"t\":{{\"dtype\":\"{name}\",\"shape\":{shape:?},\"data_offsets\":[0,{}]}}}}", raw.len());
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(raw);
    rushlight_io::safetensors::SafeTensors::from_bytes(&bytes)?.tensor("t")
}
