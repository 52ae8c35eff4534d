//! Programs as ONNX files.
//!
//! The program runs on example inputs. Every op on computed values becomes ONNX nodes; ops on constants are folded.
//! With examples of several sizes, sizes that differ between them are dynamic: they are computed by nodes, and a
//! program that depends on them otherwise is refused.

mod call;
mod graph;
mod nn;
mod pointwise;
mod recurrent;
mod reduce;
mod run;
mod shape;
mod write;

use super::proto::Attribute;
use crate::ivalue::IValue;
use crate::script::ast::Type;
use crate::{Model, dtype};
use graph::{Exporter, Val};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// Settings of an export.
#[derive(Clone, Debug)]
pub struct Options {
    /// Version of ONNX's operators: 18 to 23.
    pub opset: i64,
    /// Names of the inputs; the program's if empty.
    pub input_names: Vec<String>,
    /// Names of the outputs; `output_0`, … if empty.
    pub output_names: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { opset: 18, input_names: Vec::new(), output_names: Vec::new() }
    }
}

/// The bytes of an ONNX file of a model. Each example is the list of inputs; sizes that differ between examples are
/// dynamic. Without examples they are made from the program's input types.
pub fn export(model: &Model, examples: &[Vec<IValue>], options: &Options) -> Result<Vec<u8>> {
    if !(18..=23).contains(&options.opset) {
        return Err(Error::unsupported(format!("ONNX opset {}; use 18 to 23", options.opset)));
    }
    if !examples.is_empty() {
        return no_grad(|| build(model, examples, options));
    }
    // The first sizes on which the program runs.
    let count = if is_fixed(model)? { 1 } else { 2 };
    let mut failed = None;
    for base in [5, 8, 16, 32, 64, 224] {
        let mut examples = vec![inputs(model, base, 0)?, inputs(model, base, 1)?];
        examples.truncate(count);
        match no_grad(|| examples.iter().try_for_each(|e| model.forward(e).map(drop))) {
            Ok(()) => return no_grad(|| build(model, &examples, options)),
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    Err(failed.unwrap_or_else(|| Error::value("an export needs example inputs")))
}

/// Writes an ONNX file of a model.
pub fn save(model: &Model, path: impl AsRef<Path>, examples: &[Vec<IValue>], options: &Options) -> Result<()> {
    Ok(std::fs::write(path, export(model, examples, options)?)?)
}

/// Input types of a plain program: dtypes and sizes.
fn types(model: &Model) -> Result<Vec<(String, DType, Vec<String>)>> {
    let unknown = || {
        Error::unsupported("ONNX: the sizes of the inputs are not known; export with example inputs: torch.onnx.export")
    };
    if model.root.is_some() {
        return Err(unknown());
    }
    let entry = model.entry("forward")?;
    let of = |ty: &Option<Type>| match ty {
        Some(Type { name, args: Some(dims) }) => {
            dtype::named(name).map(|d| (d, dims.iter().map(|d| d.name.clone()).collect::<Vec<_>>()))
        }
        _ => None,
    };
    entry.params.iter().map(|p| of(&p.ty).map(|(d, s)| (p.name.clone(), d, s)).ok_or_else(unknown)).collect()
}

fn is_fixed(model: &Model) -> Result<bool> {
    Ok(types(model)?.iter().all(|(_, _, sizes)| sizes.iter().all(|s| s.parse::<u64>().is_ok())))
}

/// Inputs of a program's types. Names of sizes stand for different numbers; `which` chooses the set of numbers.
fn inputs(model: &Model, base: usize, which: usize) -> Result<Vec<IValue>> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    for (_, dtype, sizes) in types(model)? {
        let mut shape = Vec::new();
        for size in &sizes {
            let next = base + if which == 0 { numbers.len() } else { base + 2 * numbers.len() + 1 };
            shape.push(match size.parse::<usize>() {
                Ok(n) => n,
                Err(_) => *numbers.entry(size.clone()).or_insert(next),
            });
        }
        let made = if dtype.is_float() { Tensor::randn(&shape[..])? } else { Tensor::zeros(&shape[..])? };
        out.push(IValue::Tensor(made.to_dtype(dtype)?));
    }
    Ok(out)
}

/// Names of sizes that differ between examples: the program's, or the input's with the dimension.
struct Symbols(Vec<(Vec<usize>, String)>);

/// The size of a dimension if it is the same on all examples.
fn fixed(all: &[Tensor], dim: usize) -> std::result::Result<usize, Vec<usize>> {
    let sizes: Vec<usize> = all.iter().map(|t| t.shape()[dim]).collect();
    if sizes.iter().all(|&n| n == sizes[0]) { Ok(sizes[0]) } else { Err(sizes) }
}

impl Symbols {
    /// The size of an input's dimension: a number or the name it is given.
    fn input(&mut self, all: &[Tensor], dim: usize, name: String) -> String {
        match fixed(all, dim) {
            Ok(size) => size.to_string(),
            Err(sizes) => {
                if !self.0.iter().any(|(_, n)| *n == name) {
                    self.0.push((sizes, name.clone()));
                }
                name
            }
        }
    }

    /// The size of an output's dimension: the name of the one input size that it agrees with, or a name of its own.
    fn output(&self, all: &[Tensor], dim: usize, otherwise: String) -> String {
        match fixed(all, dim) {
            Ok(size) => size.to_string(),
            Err(sizes) => {
                let mut found = self.0.iter().filter(|(s, _)| *s == sizes);
                match (found.next(), found.next()) {
                    (Some((_, name)), None) => name.clone(),
                    _ => otherwise,
                }
            }
        }
    }
}

fn build(model: &Model, examples: &[Vec<IValue>], options: &Options) -> Result<Vec<u8>> {
    let entry = model.entry("forward")?.clone();
    let skipped = usize::from(model.root.is_some());
    let params = entry.params.get(skipped..).unwrap_or_default();
    let count = examples[0].len();
    if examples.iter().any(|e| e.len() != count) || count > params.len() {
        return Err(Error::value(format!("the model takes {} inputs, the examples have {count}", params.len())));
    }
    if !options.input_names.is_empty() && options.input_names.len() != count {
        return Err(Error::value(format!("{} input names for {count} inputs", options.input_names.len())));
    }
    let weights = model.archive()?.1.into_iter();
    let mut out = Exporter::new(weights, examples.len(), options.opset);
    let mut symbols = Symbols(Vec::new());
    let mut args = Vec::new();
    for (at, param) in params.iter().enumerate().take(count) {
        // Other objects than the caller's: an op may change inputs in place.
        let own = |e: &Vec<IValue>| e[at].map(&mut |t: &Tensor| t.detach().copy());
        let value = run::input(&examples.iter().map(own).collect::<Result<Vec<_>>>()?)?;
        if let Val::Tensor(all) = &value {
            let name = options.input_names.get(at).unwrap_or(&param.name).clone();
            let name = out.fresh(&name);
            let dims = param.ty.as_ref().and_then(|t| t.args.clone()).unwrap_or_default();
            let sizes = (0..all[0].rank())
                .map(|d| {
                    let known = dims.get(d).map(|t| t.name.clone()).filter(|n| n.parse::<u64>().is_err());
                    symbols.input(all, d, known.unwrap_or_else(|| format!("{name}_{d}")))
                })
                .collect();
            out.graph.inputs.push(write::Info { name: name.clone(), dtype: all[0].dtype(), sizes });
            out.register(&all[0], &name);
        }
        args.push(value);
    }
    let mut runner = run::Runner::new(&model.unit, out);
    let result = match &model.root {
        Some(root) => runner.method(root.clone(), "forward", args, Vec::new())?,
        None => runner.function(&entry, args, Vec::new())?,
    };
    let mut outputs = Vec::new();
    result.tensors(&mut outputs);
    finish(&mut runner.out, &outputs, &symbols, options)?;
    write::model(&runner.out.graph, options.opset)
}

/// Names the outputs. Each is the output of a node of its own.
fn finish(x: &mut Exporter, outputs: &[Rc<[Tensor]>], symbols: &Symbols, options: &Options) -> Result<()> {
    if outputs.is_empty() {
        return Err(Error::value("the model returns no tensor"));
    }
    if !options.output_names.is_empty() && options.output_names.len() != outputs.len() {
        let (names, count) = (options.output_names.len(), outputs.len());
        return Err(Error::value(format!("{names} output names for {count} outputs")));
    }
    for (at, all) in outputs.iter().enumerate() {
        let given = options.output_names.get(at).cloned();
        let name = given.unwrap_or_else(|| if outputs.len() == 1 { "output".into() } else { format!("output_{at}") });
        let made = x.name(all)?;
        let name = x.fresh(&name);
        x.graph.nodes.push(write::Node {
            op: "Identity".into(),
            inputs: vec![made],
            outputs: vec![name.clone()],
            attributes: Vec::new(),
        });
        let sizes = (0..all[0].rank()).map(|d| symbols.output(all, d, format!("{name}_{d}"))).collect();
        x.graph.outputs.push(write::Info { name, dtype: all[0].dtype(), sizes });
    }
    Ok(())
}

/// A call of an ONNX operator, from a program that was read from an ONNX file.
fn node(x: &mut Exporter, op: &str, args: &[Val], keywords: &[(String, Val)], outputs: usize) -> Result<Vec<String>> {
    let mut inputs = Vec::new();
    for arg in args {
        inputs.push(match arg {
            Val::Tensor(all) => x.name(all)?,
            v if v.is_none() => String::new(),
            other => return Err(Error::unsupported(format!("ONNX: {} as the input of {op}", other.on(0).kind()))),
        });
    }
    while inputs.last().is_some_and(String::is_empty) {
        inputs.pop();
    }
    if keywords.iter().any(|(n, _)| n == "_flat") {
        return Err(Error::unsupported(format!("ONNX: '{op}' of an opset before 13")));
    }
    let mut attributes = Vec::new();
    for (name, value) in keywords.iter().filter(|(n, _)| !n.starts_with('_')) {
        let value = match value.on(0) {
            IValue::Int(i) => Attribute::Int(i),
            IValue::Bool(b) => Attribute::Int(i64::from(b)),
            IValue::Float(v) => Attribute::Float(v as f32),
            IValue::Str(s) => Attribute::Str(s.to_string()),
            IValue::Tensor(t) => Attribute::Tensor(t),
            list => {
                let items = list.items()?;
                match items.first() {
                    Some(IValue::Str(_)) => {
                        Attribute::Strs(items.iter().map(|v| Ok(v.to_str()?.to_string())).collect::<Result<_>>()?)
                    }
                    Some(IValue::Float(_)) => {
                        Attribute::Floats(items.iter().map(|v| Ok(v.to_float()? as f32)).collect::<Result<_>>()?)
                    }
                    _ => Attribute::Ints(items.iter().map(IValue::to_int).collect::<Result<_>>()?),
                }
            }
        };
        attributes.push((name.clone().into(), value));
    }
    let outputs: Vec<String> = (0..outputs).map(|_| x.fresh("")).collect();
    let op = op.to_string().into();
    x.graph.nodes.push(write::Node { op, inputs, outputs: outputs.clone(), attributes });
    Ok(outputs)
}
