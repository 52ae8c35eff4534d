//! Ops of other libraries: `TORCH_LIBRARY` of C++ registers them, and programs, C++ and Python call them by name.
//!
//! An op has a schema in PyTorch's words and kernels by dispatch key. A call takes the kernel of `Autograd` if there is
//! one, unless the thread is below autograd; then that of the tensors' device; then one for all devices.

use crate::ivalue::IValue;
use rushlight_core::sync::lock;
use rushlight_core::{Device, Error, Result};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

/// A function over values.
pub type Kernel = Arc<dyn Fn(Vec<IValue>) -> Result<IValue> + Send + Sync>;

/// One parameter of a schema.
#[derive(Clone)]
pub struct Parameter {
    /// The type's text, for example `Tensor?` or `int[2]`.
    pub ty: String,
    /// The name.
    pub name: String,
    /// The value if the argument is left out.
    pub default: Option<IValue>,
    /// Whether it must be passed by name.
    pub keyword_only: bool,
}

/// An op.
#[derive(Clone)]
pub struct Op {
    /// The schema, with the namespace.
    pub schema: String,
    /// Its parameters.
    pub parameters: Arc<[Parameter]>,
    kernels: BTreeMap<String, Kernel>,
}

static OPS: LazyLock<Mutex<BTreeMap<String, Op>>> = LazyLock::new(Default::default);

thread_local! {
    static BELOW_AUTOGRAD: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether this thread's calls skip kernels of `Autograd`; returns the previous state.
pub fn set_below_autograd(below: bool) -> bool {
    BELOW_AUTOGRAD.replace(below)
}

/// Splits a text at commas outside brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut quote) = (Vec::new(), 0usize, 0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|p| !p.is_empty());
    parts
}

/// The value of a default's text.
fn literal(text: &str) -> Option<IValue> {
    Some(match text {
        "None" => IValue::None,
        "True" | "true" => IValue::Bool(true),
        "False" | "false" => IValue::Bool(false),
        "Mean" => IValue::Int(1),
        "contiguous_format" => IValue::Int(0),
        _ => {
            if let Some(items) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                return split(items).into_iter().map(literal).collect::<Option<Vec<_>>>().map(IValue::list);
            }
            let quoted = |q: char| text.strip_prefix(q).and_then(|t| t.strip_suffix(q));
            if let Some(inner) = quoted('"').or_else(|| quoted('\'')) {
                return Some(IValue::from(inner));
            }
            match text.parse::<i64>() {
                Ok(i) => IValue::Int(i),
                Err(_) => IValue::Float(text.parse::<f64>().ok()?),
            }
        }
    })
}

/// The name and the parameters of a schema.
fn parse(schema: &str) -> Result<(String, Vec<Parameter>)> {
    let malformed = || Error::value(format!("malformed schema '{schema}'; expected name(Type argument, ...) -> Type"));
    let open = schema.find('(').ok_or_else(malformed)?;
    let name = schema[..open].trim().to_string();
    let arrow = schema.rfind("->").ok_or_else(malformed)?;
    let arguments = schema[open + 1..arrow].trim().strip_suffix(')').ok_or_else(malformed)?;
    let (mut parameters, mut keyword_only) = (Vec::new(), false);
    for part in split(arguments) {
        if part == "*" {
            keyword_only = true;
            continue;
        }
        let (declared, default) = match part.split_once('=') {
            Some((declared, default)) => (declared.trim(), Some(literal(default.trim()).ok_or_else(malformed)?)),
            None => (part, None),
        };
        let (ty, name) = declared.rsplit_once(' ').ok_or_else(malformed)?;
        parameters.push(Parameter { ty: plain_type(ty.trim()), name: name.to_string(), default, keyword_only });
    }
    if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "_:.".contains(c)) {
        return Err(malformed());
    }
    Ok((name, parameters))
}

/// A type without its annotation of aliases: `Tensor(a!)?` is `Tensor?`.
fn plain_type(ty: &str) -> String {
    match (ty.find('('), ty.find(')')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &ty[..open], &ty[close + 1..]),
        _ => ty.to_string(),
    }
}

/// The name of an op, whose overload is `default` unless it has another.
fn key(name: &str) -> String {
    name.strip_suffix(".default").unwrap_or(name).to_string()
}

/// Defines an op by its schema, `namespace::name(Tensor x, int n=1) -> Tensor`.
pub fn define(schema: &str) -> Result<()> {
    let (name, parameters) = parse(schema)?;
    if !name.contains("::") {
        return Err(Error::value(format!("the op '{name}' has no namespace")));
    }
    let mut ops = lock(&OPS);
    match ops.get(&key(&name)) {
        Some(known) if known.schema.is_empty() => {}
        // A library that is loaded again.
        Some(known) if known.schema == schema => return Ok(()),
        Some(known) => {
            return Err(Error::value(format!("{name} is defined already, as {}", known.schema)));
        }
        None => {}
    }
    // Kernels may come before the definition.
    let kernels = ops.remove(&key(&name)).map(|known| known.kernels).unwrap_or_default();
    ops.insert(key(&name), Op { schema: schema.to_string(), parameters: parameters.into(), kernels });
    Ok(())
}

/// Keys of kernels; devices' kernels by the devices' names.
fn dispatch_key(key: &str) -> Result<&'static str> {
    Ok(match key {
        "CPU" => "cpu",
        "CUDA" => "cuda",
        "XPU" => "xpu",
        "Meta" => "meta",
        "Autograd" => "autograd",
        "AutogradCPU" => "autograd cpu",
        "AutogradCUDA" => "autograd cuda",
        "AutogradXPU" => "autograd xpu",
        "CompositeImplicitAutograd" | "CompositeExplicitAutograd" | "CatchAll" | "" => "all",
        other => {
            return Err(Error::unsupported(format!(
                "kernels for the dispatch key {other}; those are CPU, CUDA, XPU, Meta, Autograd and CompositeImplicitAutograd"
            )));
        }
    })
}

/// Gives an op a kernel for a dispatch key.
pub fn implement(name: &str, dispatch: &str, kernel: Kernel) -> Result<()> {
    let dispatch = dispatch_key(dispatch)?;
    let mut ops = lock(&OPS);
    let empty = || Op { schema: String::new(), parameters: Vec::new().into(), kernels: BTreeMap::new() };
    ops.entry(key(name)).or_insert_with(empty).kernels.insert(dispatch.to_string(), kernel);
    Ok(())
}

/// An op by name: `namespace::name` or `namespace::name.overload`.
pub fn find(name: &str) -> Option<Op> {
    lock(&OPS).get(&key(name)).filter(|op| !op.schema.is_empty()).cloned()
}

/// The schemas of all ops.
pub fn schemas() -> Vec<String> {
    lock(&OPS).values().filter(|op| !op.schema.is_empty()).map(|op| op.schema.clone()).collect()
}

/// A value as a parameter's type has it: PyTorch takes integers for floats and tuples for lists.
fn coerce(value: IValue, ty: &str) -> Result<IValue> {
    if let Some(inner) = ty.strip_suffix('?') {
        return if matches!(value, IValue::None) { Ok(value) } else { coerce(value, inner) };
    }
    if let Some(open) = ty.rfind('[') {
        let inner = &ty[..open];
        let items = match &value {
            IValue::List(_) | IValue::Tuple(_) => value.items()?,
            // int[2] takes one number for both.
            one if ty[open + 1..].len() > 1 => {
                let count = ty[open + 1..].trim_end_matches(']').parse().unwrap_or(1);
                vec![one.clone(); count]
            }
            other => return Err(Error::value(format!("expected {ty}, got {}", other.kind()))),
        };
        return Ok(IValue::list(items.into_iter().map(|v| coerce(v, inner)).collect::<Result<Vec<_>>>()?));
    }
    let fits = match ty {
        "Tensor" => matches!(value, IValue::Tensor(_)),
        "float" => return value.to_float().map(IValue::Float).map_err(|_| wrong(ty, &value)),
        "int" | "SymInt" => match value {
            IValue::Bool(_) | IValue::Int(_) => return value.to_int().map(IValue::Int),
            _ => false,
        },
        "bool" => matches!(value, IValue::Bool(_)),
        "str" => matches!(value, IValue::Str(_)),
        "Scalar" | "number" => matches!(value, IValue::Bool(_) | IValue::Int(_) | IValue::Float(_)),
        "ScalarType" => matches!(value, IValue::DType(_) | IValue::Int(_)),
        "Device" => matches!(value, IValue::Device(_) | IValue::Str(_)),
        _ => true,
    };
    if fits { Ok(value) } else { Err(wrong(ty, &value)) }
}

fn wrong(ty: &str, value: &IValue) -> Error {
    Error::value(format!("expected {ty}, got {}", value.kind()))
}

impl Op {
    /// Arguments in the order of the schema.
    fn bind(&self, name: &str, list: Vec<IValue>, mut keywords: Vec<(String, IValue)>) -> Result<Vec<IValue>> {
        let positional = self.parameters.iter().filter(|p| !p.keyword_only).count();
        if list.len() > positional {
            return Err(Error::value(format!(
                "{name}() expected at most {positional} argument(s) but received {} argument(s). Declaration: {}",
                list.len(),
                self.schema
            )));
        }
        let (mut list, mut values) = (list.into_iter(), Vec::with_capacity(self.parameters.len()));
        for parameter in self.parameters.iter() {
            let given = if parameter.keyword_only { None } else { list.next() };
            let named = keywords.iter().position(|(n, _)| *n == parameter.name).map(|at| keywords.remove(at).1);
            let value = match (given, named) {
                (Some(_), Some(_)) => {
                    return Err(Error::value(format!("{name}() got the argument '{}' twice", parameter.name)));
                }
                (Some(value), None) | (None, Some(value)) => value,
                (None, None) => match &parameter.default {
                    Some(value) => value.clone(),
                    None => {
                        return Err(Error::value(format!(
                            "{name}() is missing value for argument '{}'. Declaration: {}",
                            parameter.name, self.schema
                        )));
                    }
                },
            };
            let wrong = |e: Error| {
                Error::value(format!("{name}(): argument '{}': {e}. Declaration: {}", parameter.name, self.schema))
            };
            values.push(coerce(value, &parameter.ty).map_err(wrong)?);
        }
        match keywords.first() {
            None => Ok(values),
            Some((other, _)) => {
                Err(Error::value(format!("{name}() has no argument '{other}'. Declaration: {}", self.schema)))
            }
        }
    }

    /// The kernel for these arguments.
    fn kernel(&self, name: &str, values: &[IValue]) -> Result<&Kernel> {
        let mut tensors = Vec::new();
        values.iter().for_each(|v| v.tensors(&mut tensors));
        // Tensors of a device count more than numbers on the CPU.
        let device = tensors.iter().map(|t| t.device()).find(|d| *d != Device::Cpu).unwrap_or(Device::Cpu);
        let device = device.to_string();
        let device = device.split(':').next().unwrap_or("cpu");
        if !BELOW_AUTOGRAD.get() && !tensors.is_empty() {
            let own = self.kernels.get(&format!("autograd {device}")).or_else(|| self.kernels.get("autograd"));
            if let Some(kernel) = own {
                return Ok(kernel);
            }
        }
        let found = self.kernels.get(device).or_else(|| self.kernels.get("all"));
        found.ok_or_else(|| {
            let keys: Vec<&str> = self.kernels.keys().map(String::as_str).collect();
            Error::unsupported(format!(
                "Could not run '{name}' with arguments on the device '{device}': it has kernels for {}",
                if keys.is_empty() { "no device".to_string() } else { keys.join(", ") }
            ))
        })
    }
}

/// Calls an op.
pub fn call(name: &str, list: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
    let op = find(name).ok_or_else(|| {
        Error::unsupported(format!("there is no op {name}; load the library that defines it (torch.ops.load_library)"))
    })?;
    let values = op.bind(name, list, keywords)?;
    // A kernel may touch memory without the engine's knowledge.
    rushlight_tensor::compile::break_graph("it calls an op of another library");
    op.kernel(name, &values)?(values)
}
