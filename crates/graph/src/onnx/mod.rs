//! ONNX files as programs: a node becomes a call of `onnx.…`, an initializer a weight.

mod control;
pub(crate) mod ops;
mod ops_model;
mod ops_more;
mod ops_nn;
mod ops_quant;
mod ops_shape;
pub mod out;
mod proto;
mod resize;

use crate::Model;
use crate::model::quoted;
use crate::ops::Args;
pub(crate) use proto::from_raw;
use proto::{Attribute, Graph, Node};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Reads an ONNX file. External data lie beside it.
pub fn load(path: impl AsRef<Path>) -> Result<Model> {
    let path = path.as_ref();
    from_bytes(&std::fs::read(path)?, path.parent())
}

/// Reads an ONNX model in memory; external data lie in `folder`.
pub fn from_bytes(bytes: &[u8], folder: Option<&Path>) -> Result<Model> {
    let (graph, opset) = proto::model(bytes, folder)?;
    let (text, weights) = Builder { opset, ..Builder::default() }.program(graph)?;
    Model::from_text(&text, weights)
}

/// A tensor of an ONNX `TensorProto`, as the files of inputs and outputs of its tests are.
pub fn tensor(bytes: &[u8]) -> Result<Tensor> {
    proto::tensor(bytes, None).map(|(_, tensor)| tensor)
}

/// Attributes without an effect here: facts that other inputs repeat, and settings of training or of precision.
const WITHOUT_EFFECT: [&str; 14] = [
    "kernel_shape",
    "hidden_size",
    "pads",
    "auto_pad",
    "momentum",
    "spatial",
    "is_test",
    "consumed_inputs",
    "stash_type",
    "saturate",
    "round_mode",
    "seed",
    "ratio",
    "output_padding",
];

/// An error for an attribute that the operator did not ask for: it must not be ignored silently.
pub(crate) fn check_attributes(args: &Args) -> Result<()> {
    let asked = args.asked.borrow();
    let known = |name: &str| name.starts_with('_') || asked.iter().any(|n| n == name) || WITHOUT_EFFECT.contains(&name);
    match args.keywords.iter().find(|(name, _)| !known(name)) {
        Some((name, _)) => Err(Error::unsupported(format!("the attribute '{name}' of this operator"))),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Builder {
    /// Expressions of values.
    names: HashMap<String, String>,
    weights: StateDict,
    opset: i64,
    /// Number of variables so far.
    count: usize,
}

/// A name as a variable.
pub(crate) fn identifier(name: &str, at: usize) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let taken =
        ["if", "for", "in", "is", "and", "or", "not", "while", "return", "None", "True", "False", "weight", "pass"];
    match plain.chars().next() {
        Some(c) if !c.is_ascii_digit() && !taken.contains(&plain.as_str()) => plain,
        _ => format!("v{at}_{plain}"),
    }
}

impl Builder {
    fn program(mut self, graph: Graph) -> Result<(String, StateDict)> {
        // Running statistics are state, not parameters.
        let is_norm = |node: &&Node| node.op == "BatchNormalization";
        let statistics: HashSet<String> =
            graph.nodes.iter().filter(is_norm).flat_map(|n| n.inputs.iter().skip(3).cloned()).collect();
        for (name, tensor) in graph.weights {
            self.names.insert(name.clone(), format!("weight({})", quoted(&name)));
            // Floats are parameters: an imported model trains. Exporters write numbers as tensors without dimensions.
            let is_float = tensor.dtype().is_float() && !tensor.dtype().is_carried();
            let tensor = if is_float && tensor.rank() > 0 && !statistics.contains(&name) {
                tensor.requires_grad_(true)?
            } else {
                tensor
            };
            self.weights.insert(name, tensor);
        }
        let mut params = Vec::new();
        for (at, input) in graph.inputs.iter().enumerate() {
            if self.names.contains_key(&input.name) {
                continue;
            }
            let mut name = identifier(&input.name, at);
            while self.names.values().any(|n| *n == name) {
                name.push('_');
            }
            let ty = match (&input.shape, proto::dtype(input.dtype)) {
                (Some(dims), Ok(dtype)) => {
                    let size = |(d, s): (usize, &String)| match s.parse::<u64>() {
                        Ok(n) => n.to_string(),
                        Err(_) if s.is_empty() => format!("{name}_{d}"),
                        Err(_) => identifier(s, d),
                    };
                    format!("{dtype}[{}]", dims.iter().enumerate().map(size).collect::<Vec<_>>().join(", "))
                }
                _ => "Tensor".to_string(),
            };
            params.push(format!("{name}: {ty}"));
            self.names.insert(input.name.clone(), name);
        }
        let mut lines = control::Lines::new();
        for node in &graph.nodes {
            self.node(node, &mut lines)?;
        }
        let lines = lines.text;
        let outputs = graph.outputs.iter().map(|o| self.value(&o.name)).collect::<Result<Vec<_>>>()?;
        let outputs = if outputs.len() == 1 { outputs[0].clone() } else { format!("({})", outputs.join(", ")) };
        Ok((format!("def forward({}):\n{lines}  return {outputs}\n", params.join(", ")), self.weights))
    }

    fn value(&self, name: &str) -> Result<String> {
        if name.is_empty() {
            return Ok("None".to_string());
        }
        self.names
            .get(name)
            .cloned()
            .ok_or_else(|| Error::value(format!("an ONNX node reads '{name}', which nothing makes")))
    }

    fn node(&mut self, node: &Node, lines: &mut control::Lines) -> Result<()> {
        if matches!(node.domain.as_str(), "" | "ai.onnx") && self.control(node, lines)? {
            return Ok(());
        }
        if !matches!(node.domain.as_str(), "" | "ai.onnx") || ops::find(&node.op).is_none() {
            return Err(Error::unsupported(format!("ONNX's operator '{}.{}'", node.domain, node.op)));
        }
        let mut args = node.inputs.iter().map(|i| self.value(i)).collect::<Result<Vec<_>>>()?;
        for (name, value) in &node.attributes {
            args.push(format!("{name}={}", self.attribute(value)?));
        }
        if self.opset < 13 && matches!(node.op.as_str(), "Softmax" | "LogSoftmax" | "Hardmax") {
            args.push("_flat=True".to_string());
        }
        let outputs = node.outputs.iter().rposition(|o| !o.is_empty()).map_or(0, |at| at + 1);
        let mut targets = Vec::new();
        for output in &node.outputs[..outputs] {
            let name = format!("v{}", self.count);
            self.count += 1;
            self.names.insert(output.clone(), name.clone());
            targets.push(name);
        }
        if outputs > 1 || node.op == "Split" {
            args.push(format!("_outputs={outputs}"));
        }
        let comma = if outputs > 1 || node.op == "Split" { "," } else { "" };
        lines.push(&format!("{}{comma} = onnx.{}({})", targets.join(", "), node.op, args.join(", ")));
        Ok(())
    }

    fn attribute(&mut self, value: &Attribute) -> Result<String> {
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        let float = |x: f32| match f64::from(x) {
            x if x.is_nan() => "nan".to_string(),
            x if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.to_string(),
            x => format!("{x:?}"),
        };
        Ok(match value {
            Attribute::Int(i) => i.to_string(),
            Attribute::Float(x) => float(*x),
            Attribute::Str(s) => quoted(s),
            Attribute::Ints(v) => list(v.iter().map(ToString::to_string).collect()),
            Attribute::Floats(v) => list(v.iter().map(|&x| float(x)).collect()),
            Attribute::Strs(v) => list(v.iter().map(|s| quoted(s)).collect()),
            Attribute::Tensor(tensor) => {
                let name = format!("constants.{}", self.weights.len());
                self.weights.insert(name.clone(), tensor.clone());
                format!("weight({})", quoted(&name))
            }
            Attribute::Graph(_) => return Err(Error::unsupported("a graph as an attribute of this ONNX operator")),
        })
    }
}
