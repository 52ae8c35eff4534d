//! Archives of PyTorch's `torch.export` (`.pt2`): a graph of aten ops as JSON, and weights, as a program.

use crate::Model;
use crate::model::quoted;
use crate::onnx::{from_raw, identifier};
use rushlight_core::{DType, Error, Result};
use rushlight_io::records::Records;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use serde_json::Value;
use std::collections::HashMap;

const SUFFIX: &str = "/models/model.json";

/// The archive's folder, if it is of this kind.
pub(crate) fn root(archive: &Records) -> Option<String> {
    archive.names().find_map(|n| n.strip_suffix(SUFFIX)).map(str::to_string)
}

fn damaged(what: &str) -> Error {
    Error::io(format!("the .pt2 archive is damaged: {what}"))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value[name].as_array().ok_or_else(|| damaged(&format!("it has no list '{name}'")))
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    value[name].as_str().ok_or_else(|| damaged(&format!("it has no text '{name}'")))
}

/// A dtype by the format's number.
fn dtype(number: Option<i64>) -> Result<DType> {
    Ok(match number.ok_or_else(|| damaged("a dtype is not a number"))? {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        12 => DType::Bool,
        13 => DType::BF16,
        28 => DType::U16,
        other => return Err(Error::dtype(format!("dtype number {other} of a .pt2 archive is not supported"))),
    })
}

fn sizes(value: &Value) -> Result<Vec<usize>> {
    let size = |v: &Value| v["as_int"].as_u64().map(|n| n as usize);
    let all = value.as_array().map(|all| all.iter().map(size).collect::<Option<Vec<_>>>());
    all.flatten().ok_or_else(|| damaged("sizes of a weight"))
}

/// Reads the tensors of a configuration file.
fn tensors(archive: &Records, root: &str, kind: &str, out: &mut StateDict) -> Result<()> {
    let config = format!("{root}/data/{kind}/model_{kind}_config.json");
    if !archive.names().any(|n| n == config) {
        return Ok(());
    }
    let config: Value = serde_json::from_str(&archive.text(&config)?).map_err(|e| damaged(&e.to_string()))?;
    let entries = config["config"].as_object().ok_or_else(|| damaged("no configuration of weights"))?;
    let mut storages: HashMap<String, Tensor> = HashMap::new();
    for (name, entry) in entries {
        if entry["use_pickle"].as_bool() == Some(true) {
            return Err(Error::unsupported(format!("the pickled weight '{name}' of a .pt2 archive")));
        }
        let (path, meta) = (text(entry, "path_name")?, &entry["tensor_meta"]);
        let (dtype, shape) = (dtype(meta["dtype"].as_i64())?, sizes(&meta["sizes"])?);
        if !storages.contains_key(path) {
            let bytes = archive.bytes(&format!("{root}/data/{kind}/{path}"))?;
            let count = bytes.len() / dtype.size().max(1);
            storages.insert(path.to_string(), from_raw(&bytes[..count * dtype.size()], &[count], dtype)?);
        }
        let (strides, offset) =
            (sizes(&meta["strides"])?, meta["storage_offset"]["as_int"].as_u64().unwrap_or(0) as usize);
        out.insert(name.clone(), strided(&storages[path], &shape, &strides, offset)?);
        if entry["is_param"].as_bool() == Some(true) && dtype.is_float() {
            let made = out[name].detach().requires_grad_(true)?;
            out.insert(name.clone(), made);
        }
    }
    Ok(())
}

/// A tensor of a storage's elements.
fn strided(storage: &Tensor, shape: &[usize], strides: &[usize], offset: usize) -> Result<Tensor> {
    let outside = || damaged("a weight reaches past the end of its file");
    if shape.len() != strides.len() {
        return Err(damaged("sizes and strides of a weight differ"));
    }
    let count = shape.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).ok_or_else(outside)?;
    if count == 0 {
        return Tensor::zeros(shape)?.to_dtype(storage.dtype());
    }
    let last = shape.iter().zip(strides).try_fold(offset, |at, (&n, &s)| at.checked_add((n - 1).checked_mul(s)?));
    if last.is_none_or(|last| last >= storage.numel()) {
        return Err(outside());
    }
    let ints = |all: &[usize]| crate::IValue::list(all.iter().map(|&n| crate::IValue::Int(n as i64)));
    let args = vec![storage.into(), ints(shape), ints(strides), crate::IValue::Int(offset as i64)];
    crate::ops::call("as_strided", args)?.to_tensor()?.contiguous()
}

/// Reads an archive.
pub(crate) fn load(archive: &Records, root: &str) -> Result<Model> {
    let mut weights = StateDict::new();
    tensors(archive, root, "weights", &mut weights)?;
    tensors(archive, root, "constants", &mut weights)?;
    let graph: Value =
        serde_json::from_str(&archive.text(&format!("{root}{SUFFIX}"))?).map_err(|e| damaged(&e.to_string()))?;
    let text = Writer::default().program(&graph["graph_module"], &weights)?;
    Model::from_text(&text, weights)
}

#[derive(Default)]
struct Writer {
    /// Expressions of the graph's values.
    names: HashMap<String, String>,
}

impl Writer {
    fn variable(&mut self, name: &str) -> String {
        let mut made = identifier(name, self.names.len());
        while self.names.values().any(|n| *n == made) {
            made.push('_');
        }
        self.names.insert(name.to_string(), made.clone());
        made
    }

    fn value(&self, name: &str) -> Result<String> {
        self.names.get(name).cloned().ok_or_else(|| damaged(&format!("it reads '{name}', which nothing makes")))
    }

    fn program(mut self, module: &Value, weights: &StateDict) -> Result<String> {
        let (graph, signature) = (&module["graph"], &module["signature"]);
        let mut params = Vec::new();
        for spec in list(signature, "input_specs")? {
            let Some((kind, spec)) = spec.as_object().and_then(|o| o.iter().next()) else {
                return Err(damaged("an input without a kind"));
            };
            let stored = match kind.as_str() {
                "parameter" => Some("parameter_name"),
                "buffer" => Some("buffer_name"),
                "tensor_constant" => Some("tensor_constant_name"),
                "user_input" => None,
                "constant_input" => continue,
                other => return Err(Error::unsupported(format!("an input of kind '{other}' in a .pt2 archive"))),
            };
            match stored {
                Some(field) => {
                    let (name, weight) = (text(&spec["arg"], "name")?, text(spec, field)?);
                    if !weights.contains_key(weight) {
                        return Err(damaged(&format!("it has no weight '{weight}'")));
                    }
                    self.names.insert(name.to_string(), format!("weight({})", quoted(weight)));
                }
                None => match spec["arg"]["as_tensor"]["name"].as_str() {
                    Some(name) => {
                        let made = self.variable(name);
                        params.push(format!("{made}: {}", self.ty(&graph["tensor_values"][name], &made)?));
                    }
                    None => return Err(Error::unsupported("inputs of a .pt2 archive that are not tensors")),
                },
            }
        }
        let mut lines = String::new();
        for node in list(graph, "nodes")? {
            if let Some(line) = self.node(node)? {
                lines.push_str(&format!("  {line}\n"));
            }
        }
        let mut outputs = Vec::new();
        let all = list(graph, "outputs")?;
        for (at, (spec, output)) in list(signature, "output_specs")?.iter().zip(all).enumerate() {
            let Some((kind, spec)) = spec.as_object().and_then(|o| o.iter().next()) else {
                return Err(damaged("an output without a kind"));
            };
            // New contents of buffers and inputs are copied there when everything is computed.
            let (place, contents) = match kind.as_str() {
                "user_output" => {
                    outputs.push(self.argument(output)?);
                    continue;
                }
                "buffer_mutation" => {
                    let name = text(spec, "buffer_name")?;
                    if !weights.contains_key(name) {
                        return Err(damaged(&format!("it has no weight '{name}'")));
                    }
                    (format!("weight({})", quoted(name)), format!("torch.detach({})", self.argument(output)?))
                }
                "user_input_mutation" => (self.value(text(spec, "user_input_name")?)?, self.argument(output)?),
                other => {
                    return Err(Error::unsupported(format!(
                        "an output of kind '{other}' in a .pt2 archive; torch.jit.trace of the model with its example \
                         inputs, saved by torch.jit.save, is read"
                    )));
                }
            };
            lines.push_str(&format!("  changed_{at} = torch.copy_({place}, {contents})\n"));
        }
        let shape = &module["module_call_graph"][0]["signature"]["out_spec"];
        let tree = shape.as_str().and_then(|s| serde_json::from_str::<Value>(s).ok());
        let mut rest = outputs.iter();
        let result = match tree.as_ref().and_then(|t| t.get(1)).and_then(|t| nested(t, &mut rest, 0)) {
            Some(result) if rest.next().is_none() => result,
            _ => format!("({},)", outputs.join(", ")),
        };
        Ok(format!("def forward({}):\n{lines}  return {result}\n", params.join(", ")))
    }

    /// The type of an input, with names for sizes that may change.
    fn ty(&self, meta: &Value, name: &str) -> Result<String> {
        let Some(sizes) = meta["sizes"].as_array() else { return Ok("Tensor".into()) };
        let symbol = |text: &str| {
            let inner = text.strip_prefix("Symbol('")?.split('\'').next()?;
            (text.matches("Symbol(").count() == 1 && text.ends_with(')')).then(|| identifier(inner, 0))
        };
        let dims = sizes.iter().enumerate().map(|(d, size)| match size["as_int"].as_u64() {
            Some(n) => n.to_string(),
            None => {
                let expression = size["as_expr"]["expr_str"].as_str().unwrap_or("");
                symbol(expression).unwrap_or_else(|| format!("{name}_{d}"))
            }
        });
        Ok(format!("{}[{}]", dtype(meta["dtype"].as_i64())?, dims.collect::<Vec<_>>().join(", ")))
    }

    fn node(&mut self, node: &Value) -> Result<Option<String>> {
        let target = text(node, "target")?;
        let outputs = list(node, "outputs")?;
        let op = match target.strip_prefix("torch.ops.aten.") {
            Some(rest) => format!("torch.{}", rest.split('.').next().unwrap_or(rest)),
            None => match target {
                "_operator.add" => "torch.add".into(),
                "_operator.sub" => "torch.sub".into(),
                "_operator.mul" => "torch.mul".into(),
                "_operator.floordiv" => "torch.floordiv".into(),
                "_operator.mod" => "torch.remainder".into(),
                "_operator.neg" => "torch.neg".into(),
                "_operator.pow" => "torch.pow".into(),
                "_operator.ge" => "torch.ge".into(),
                "_operator.gt" => "torch.gt".into(),
                "_operator.le" => "torch.le".into(),
                "_operator.lt" => "torch.lt".into(),
                "_operator.eq" => "torch.eq".into(),
                "_operator.ne" => "torch.ne".into(),
                "math.trunc" => "int".into(),
                _ if target.contains("higher_order") => {
                    return Err(Error::unsupported(format!(
                        "control flow ('{}') of a .pt2 archive; torch.jit.script of the model, saved by torch.jit.save, \
                         keeps its branches and loops and is read",
                        target.rsplit('.').next().unwrap_or(target)
                    )));
                }
                _ => return Err(Error::unsupported(format!("the op '{target}' of a .pt2 archive"))),
            },
        };
        let bare = op.rsplit('.').next().unwrap_or("");
        if matches!(
            bare,
            "_assert_scalar" | "_assert_tensor_metadata" | "_assert_async" | "sym_constrain_range_for_size"
        ) {
            return Ok(None);
        }
        let mut args = Vec::new();
        for input in list(node, "inputs")? {
            let value = self.argument(&input["arg"])?;
            args.push(match input["kind"].as_i64() {
                Some(2) => format!("{}={value}", text(input, "name")?),
                _ => value,
            });
        }
        let call = format!("{op}({})", args.join(", "));
        let mut made = Vec::new();
        let mut is_list = false;
        for output in outputs {
            let Some((kind, value)) = output.as_object().and_then(|o| o.iter().next()) else {
                return Err(damaged("an output without a kind"));
            };
            let names: Vec<&Value> = match kind.as_str() {
                "as_tensor" => vec![&value["name"]],
                "as_sym_int" | "as_sym_bool" | "as_sym_float" => vec![&value["as_name"]],
                "as_tensors" => {
                    is_list = true;
                    value.as_array().map(|all| all.iter().map(|v| &v["name"]).collect()).unwrap_or_default()
                }
                "as_none" => vec![&Value::Null],
                other => return Err(Error::unsupported(format!("a result of kind '{other}' in a .pt2 archive"))),
            };
            for name in names {
                let unused = format!("unused_{}", self.names.len());
                made.push(self.variable(name.as_str().unwrap_or(&unused)));
            }
        }
        Ok(Some(match (made.len(), is_list) {
            (0, _) => call,
            (1, false) => format!("{} = {call}", made[0]),
            _ => format!("{}, = {call}", made.join(", ")),
        }))
    }

    /// An argument as an expression.
    fn argument(&self, value: &Value) -> Result<String> {
        let Some((kind, value)) = value.as_object().and_then(|o| o.iter().next()) else {
            return Err(damaged("an argument without a kind"));
        };
        let all = |each: &dyn Fn(&Value) -> Result<String>| -> Result<String> {
            let items = value.as_array().ok_or_else(|| damaged("an argument is not a list"))?;
            Ok(format!("[{}]", items.iter().map(each).collect::<Result<Vec<_>>>()?.join(", ")))
        };
        let int = |v: &Value| v.as_i64().map(|i| i.to_string()).ok_or_else(|| damaged("an argument is not an integer"));
        let tensor = |v: &Value| self.value(text(v, "name")?);
        let symbol = |v: &Value| match v["as_name"].as_str() {
            Some(name) => self.value(name),
            None => match &v["as_int"] {
                Value::Null => float(&v["as_float"]),
                i => int(i),
            },
        };
        match kind.as_str() {
            "as_none" => Ok("None".into()),
            "as_tensor" => tensor(value),
            "as_tensors" => all(&tensor),
            "as_optional_tensors" => all(&|v| self.argument(v)),
            "as_optional_tensor" => self.argument(value),
            "as_int" => int(value),
            "as_ints" => all(&int),
            "as_sym_int" | "as_sym_float" => symbol(value),
            "as_sym_ints" => all(&symbol),
            "as_float" => float(value),
            "as_floats" => all(&float),
            "as_bool" => Ok(if value.as_bool() == Some(true) { "True" } else { "False" }.into()),
            "as_sym_bool" => match value["as_name"].as_str() {
                Some(name) => self.value(name),
                None => Ok(if value["as_bool"].as_bool() == Some(true) { "True" } else { "False" }.into()),
            },
            "as_bools" => all(&|v| Ok(if v.as_bool() == Some(true) { "True" } else { "False" }.into())),
            "as_string" => Ok(quoted(value.as_str().unwrap_or(""))),
            "as_strings" => all(&|v| Ok(quoted(v.as_str().unwrap_or("")))),
            "as_scalar_type" => Ok(format!("torch.{}", dtype(value.as_i64())?)),
            // There is one layout.
            "as_layout" => Ok("None".into()),
            "as_memory_format" => Ok(match value.as_i64() {
                Some(1) => "torch.contiguous_format",
                Some(2) => "torch.channels_last",
                Some(3) => "torch.channels_last_3d",
                _ => "torch.preserve_format",
            }
            .into()),
            "as_device" => {
                let name = text(value, "type")?;
                let index = value["index"].as_i64().map(|i| format!(":{i}")).unwrap_or_default();
                Ok(format!("torch.device({})", quoted(&format!("{name}{index}"))))
            }
            other => Err(Error::unsupported(format!("an argument of kind '{other}' in a .pt2 archive"))),
        }
    }
}

fn float(value: &Value) -> Result<String> {
    match (value.as_f64(), value.as_str()) {
        (Some(x), _) => Ok(format!("{x:?}")),
        (None, Some("Infinity")) => Ok("inf".into()),
        (None, Some("-Infinity")) => Ok("-inf".into()),
        (None, Some("NaN")) => Ok("nan".into()),
        _ => Err(damaged("an argument is not a number")),
    }
}

/// Outputs in the structure that the model returned: tuples, lists and dictionaries of texts.
fn nested<'a>(spec: &Value, rest: &mut impl Iterator<Item = &'a String>, depth: usize) -> Option<String> {
    if depth > 50 {
        return None;
    }
    let children = spec["children_spec"].as_array()?;
    let Some(kind) = spec["type"].as_str() else { return rest.next().cloned() };
    let items = children.iter().map(|c| nested(c, rest, depth + 1)).collect::<Option<Vec<_>>>()?;
    match kind {
        "builtins.tuple" if items.len() == 1 => Some(format!("({},)", items[0])),
        "builtins.tuple" => Some(format!("({})", items.join(", "))),
        "builtins.list" => Some(format!("[{}]", items.join(", "))),
        "builtins.dict" => {
            let keys: Value = serde_json::from_str(spec["context"].as_str()?).ok()?;
            let keys = keys.as_array()?.iter().map(|k| k.as_str().map(quoted)).collect::<Option<Vec<_>>>()?;
            (keys.len() == items.len()).then(|| {
                let pairs: Vec<String> = keys.iter().zip(&items).map(|(k, v)| format!("{k}: {v}")).collect();
                format!("{{{}}}", pairs.join(", "))
            })
        }
        _ => None,
    }
}
