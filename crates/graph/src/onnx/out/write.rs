//! Writes ONNX's protocol buffers.

use super::super::proto::Attribute;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use std::borrow::Cow;

/// Largest message that readers of protocol buffers accept.
const MAX_BYTES: usize = (1 << 31) - 1;

/// A message under construction.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn int(&mut self, field: u64, value: i64) {
        self.varint(field << 3);
        self.varint(value as u64);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }
}

/// A node of the graph.
pub(super) struct Node {
    pub op: Cow<'static, str>,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<(Cow<'static, str>, Attribute)>,
}

/// An input or output of the graph; sizes are numbers or names.
pub(super) struct Info {
    pub name: String,
    pub dtype: DType,
    pub sizes: Vec<String>,
}

/// A graph with its weights.
#[derive(Default)]
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    pub weights: Vec<(String, Tensor)>,
    pub inputs: Vec<Info>,
    pub outputs: Vec<Info>,
}

/// ONNX's number of a dtype.
pub(super) fn number(dtype: DType) -> Result<i64> {
    Ok(match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
        other => return Err(Error::dtype(format!("{other} in an ONNX file"))),
    })
}

/// The elements of a tensor as little-endian bytes.
fn raw(tensor: &Tensor) -> Result<Vec<u8>> {
    let plain = StateDict::from_iter([("t".to_string(), tensor.detach().contiguous()?)]);
    let mut bytes = Vec::new();
    rushlight_io::safetensors::write(&plain, &Default::default(), &mut bytes)?;
    let header = bytes.first_chunk::<8>().map_or(0, |n| u64::from_le_bytes(*n) as usize);
    Ok(bytes.split_off((8 + header).min(bytes.len())))
}

fn tensor(name: &str, tensor: &Tensor) -> Result<Message> {
    let mut out = Message::default();
    tensor.shape().iter().for_each(|&n| out.int(1, n as i64));
    out.int(2, number(tensor.dtype())?);
    if !name.is_empty() {
        out.text(8, name);
    }
    out.bytes(9, &raw(tensor)?);
    Ok(out)
}

fn attribute(name: &str, value: &Attribute) -> Result<Message> {
    let mut out = Message::default();
    out.text(1, name);
    let kind = match value {
        Attribute::Float(x) => {
            out.float(2, *x);
            1
        }
        Attribute::Int(i) => {
            out.int(3, *i);
            2
        }
        Attribute::Str(s) => {
            out.text(4, s);
            3
        }
        Attribute::Tensor(t) => {
            out.message(5, &tensor("", t)?);
            4
        }
        Attribute::Floats(all) => {
            all.iter().for_each(|&x| out.float(7, x));
            6
        }
        Attribute::Ints(all) => {
            all.iter().for_each(|&i| out.int(8, i));
            7
        }
        Attribute::Strs(all) => {
            all.iter().for_each(|s| out.text(9, s));
            8
        }
        Attribute::Graph(_) => return Err(Error::unsupported("ONNX: a graph as an attribute")),
    };
    out.int(20, kind);
    Ok(out)
}

fn info(value: &Info) -> Result<Message> {
    let mut shape = Message::default();
    for size in &value.sizes {
        let mut dim = Message::default();
        match size.parse::<i64>() {
            Ok(n) => dim.int(1, n),
            Err(_) => dim.text(2, size),
        }
        shape.message(1, &dim);
    }
    let mut tensor = Message::default();
    tensor.int(1, number(value.dtype)?);
    tensor.message(2, &shape);
    let mut ty = Message::default();
    ty.message(1, &tensor);
    let mut out = Message::default();
    out.text(1, &value.name);
    out.message(2, &ty);
    Ok(out)
}

/// The bytes of a model file.
pub(super) fn model(graph: &Graph, opset: i64) -> Result<Vec<u8>> {
    let mut inner = Message::default();
    for (at, node) in graph.nodes.iter().enumerate() {
        let mut out = Message::default();
        node.inputs.iter().for_each(|name| out.text(1, name));
        node.outputs.iter().for_each(|name| out.text(2, name));
        out.text(3, &format!("{}_{at}", node.op));
        out.text(4, &node.op);
        for (name, value) in &node.attributes {
            out.message(5, &attribute(name, value)?);
        }
        inner.message(1, &out);
    }
    inner.text(2, "main");
    for (name, weight) in &graph.weights {
        inner.message(5, &tensor(name, weight)?);
    }
    for value in &graph.inputs {
        inner.message(11, &info(value)?);
    }
    for value in &graph.outputs {
        inner.message(12, &info(value)?);
    }
    let mut out = Message::default();
    // Versions of the file format that came with the operators' versions.
    out.int(
        1,
        if opset < 19 {
            8
        } else if opset < 21 {
            9
        } else {
            10
        },
    );
    out.text(2, "rushlight");
    out.text(3, env!("CARGO_PKG_VERSION"));
    out.message(7, &inner);
    let mut version = Message::default();
    version.text(1, "");
    version.int(2, opset);
    out.message(8, &version);
    if out.0.len() > MAX_BYTES {
        return Err(Error::unsupported(
            "an ONNX file over 2 GiB, which needs external data; use a .rlm file, or export the model in half precision",
        ));
    }
    Ok(out.0)
}
