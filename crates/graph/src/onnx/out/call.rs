//! Calls of ops: runs them on the examples, folds constants, and hands the rest to the mappings.

use super::graph::{Exporter, Val, dynamic};
use super::{nn, pointwise, recurrent, reduce, shape};
use crate::ivalue::IValue;
use crate::ops::{self, Args, bind};
use crate::value::Value;
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::Tensor;
use std::rc::Rc;

/// A call with its arguments by name.
pub(super) struct Call {
    /// The op without its namespace and without the mark of in-place ops.
    pub name: String,
    pub params: Vec<(String, Val)>,
    pub out: Val,
}

impl Call {
    /// An argument that is not `None`.
    pub(super) fn get(&self, name: &str) -> Option<&Val> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, v)| v).filter(|v| !v.is_none())
    }

    pub(super) fn need(&self, name: &str) -> Result<&Val> {
        self.get(name).ok_or_else(|| Error::value(format!("argument '{name}' is missing")))
    }

    /// The first argument, whatever its name.
    pub(super) fn first(&self) -> Result<&Val> {
        self.params.first().map(|(_, v)| v).ok_or_else(|| Error::value("an op without arguments"))
    }

    /// The tensors of the first argument.
    pub(super) fn input(&self) -> Result<Rc<[Tensor]>> {
        tensor(self.first()?)
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<Rc<[Tensor]>>> {
        self.get(name).map(tensor).transpose()
    }

    /// An argument that must be the same on all examples.
    fn fixed(&self, name: &str) -> Result<Option<IValue>> {
        match self.get(name) {
            Some(v) if v.has_dynamic() => Err(dynamic(&format!("the argument '{name}'"))),
            Some(v) => Ok(Some(v.on(0))),
            None => Ok(None),
        }
    }

    pub(super) fn int(&self, name: &str, otherwise: i64) -> Result<i64> {
        self.fixed(name)?.map_or(Ok(otherwise), |v| v.to_int())
    }

    pub(super) fn float(&self, name: &str, otherwise: f64) -> Result<f64> {
        self.fixed(name)?.map_or(Ok(otherwise), |v| v.to_float())
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        self.fixed(name)?.map_or(Ok(false), |v| v.truth())
    }

    pub(super) fn text(&self, name: &str, otherwise: &str) -> Result<String> {
        match self.fixed(name)? {
            Some(IValue::Str(s)) => Ok(s.to_string()),
            _ => Ok(otherwise.to_string()),
        }
    }

    /// Integers that must be the same on all examples; a single one counts `repeat` times.
    pub(super) fn ints(&self, name: &str, repeat: usize) -> Result<Option<Vec<i64>>> {
        let Some(value) = self.fixed(name)? else { return Ok(None) };
        let list = value.ints()?;
        Ok(match &list[..] {
            [] if repeat > 0 => None,
            &[one] if repeat > 1 => Some(vec![one; repeat]),
            _ => Some(list),
        })
    }

    /// Integers that may be dynamic.
    pub(super) fn sizes(&self, name: &str) -> Result<Vec<Val>> {
        let value = self.need(name)?;
        Ok(value.items().unwrap_or_else(|| vec![value.clone()]))
    }

    /// A dimension, counted from the front.
    pub(super) fn dim(&self, name: &str, otherwise: i64, rank: usize) -> Result<usize> {
        wrap(self.int(name, otherwise)?, rank)
    }

    /// The first result.
    pub(super) fn result(&self) -> Result<Rc<[Tensor]>> {
        let mut all = Vec::new();
        self.out.tensors(&mut all);
        all.into_iter().next().ok_or_else(|| Error::value("an op without a tensor as its result"))
    }

    pub(super) fn dtype(&self) -> Result<DType> {
        Ok(self.result()?[0].dtype())
    }

    /// The error for a form that has no mapping.
    pub(super) fn refuse<T>(&self, what: &str) -> Result<T> {
        Err(Error::unsupported(format!("ONNX: {} with {what}", self.name)))
    }
}

/// A dimension counted from the front.
pub(super) fn wrap(dim: i64, rank: usize) -> Result<usize> {
    let at = if dim < 0 { dim + rank.max(1) as i64 } else { dim };
    usize::try_from(at).ok().filter(|&d| d <= rank).ok_or_else(|| Error::value(format!("dimension {dim} of {rank}")))
}

pub(super) fn tensor(value: &Val) -> Result<Rc<[Tensor]>> {
    match value {
        Val::Tensor(all) => Ok(all.clone()),
        other => Err(Error::value(format!("expected a tensor, got {}", other.on(0).kind()))),
    }
}

/// Parameters of aten's forms, which differ from those of the Python functions.
fn aten(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "batch_norm" => &["input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"],
        "instance_norm" => {
            &["input", "weight", "bias", "running_mean", "running_var", "use_input_stats", "momentum", "eps"]
        }
        "layer_norm" => &["input", "normalized_shape", "weight", "bias", "eps"],
        "group_norm" => &["input", "num_groups", "weight", "bias", "eps"],
        "embedding" => &["weight", "input", "padding_idx"],
        "_convolution" | "convolution" => {
            &["input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups"]
        }
        "softmax" | "_softmax" | "log_softmax" | "_log_softmax" => &["input", "dim", "dtype"],
        "slice" => &["input", "dim", "start", "end", "step"],
        "index" | "index_put" | "index_put_" => &["input", "indices", "values", "accumulate"],
        "to" | "_to_copy" | "type_as" => &["input"],
        "split_with_sizes" => &["input", "split_size_or_sections", "dim"],
        "constant_pad_nd" => &["input", "pad", "value"],
        "detach" | "detach_" | "alias" | "lift_fresh" | "lift_fresh_copy" | "numpy_T" => &["input"],
        "einsum" => &["equation", "operands"],
        "expand" => &["input", "size"],
        "tensor" | "scalar_tensor" => &["data", "dtype"],
        _ => return None,
    })
}

fn from_default(value: &Value) -> Val {
    Val::Plain(match value {
        Value::Scalar(Scalar::Bool(b)) => IValue::Bool(*b),
        Value::Scalar(Scalar::Float(x)) => IValue::Float(*x),
        Value::Scalar(s) => IValue::Int(s.to_i64()),
        Value::Ints(list) => return Val::list(list.iter().map(|&i| Val::int(i))),
        Value::Str(s) => s.as_str().into(),
        Value::DType(d) => IValue::DType(*d),
        _ => IValue::None,
    })
}

/// Arguments by the names of the parameters.
fn named(path: &str, bare: &str, args: &[Val], keywords: &[(String, Val)]) -> Result<Vec<(String, Val)>> {
    let is_aten = path.starts_with("torch.") || path.starts_with("ops.aten.");
    let plain = keywords.is_empty() || bare != "layer_norm";
    if let (true, true, Some(names)) = (is_aten, plain, aten(bare)) {
        let list = names.iter().map(|n| n.to_string()).zip(args.iter().cloned());
        return Ok(list.chain(keywords.iter().cloned()).collect());
    }
    let row = ops::resolve(path)?.row;
    let given = Args {
        list: args.iter().map(|v| v.on(0)).collect(),
        keywords: keywords.iter().map(|(n, v)| (n.clone(), v.on(0))).collect(),
        asked: Default::default(),
    };
    let Some(found) = row.and_then(|row| bind::parameters(row, &given)) else {
        let list = args.iter().enumerate().map(|(i, v)| (i.to_string(), v.clone()));
        return Ok(list.chain(keywords.iter().cloned()).collect());
    };
    Ok(found
        .into_iter()
        .map(|parameter| {
            let value = match parameter.source {
                bind::Source::At(i) => args[i].clone(),
                bind::Source::Rest(i) => Val::list(args[i..].iter().cloned()),
                bind::Source::Keyword(i) => keywords[i].1.clone(),
                bind::Source::Default(value) => from_default(&value),
            };
            (parameter.name.to_string(), value)
        })
        .collect())
}

/// Ops that make tensors of sizes.
const FACTORIES: [&str; 10] =
    ["arange", "zeros", "ones", "full", "empty", "eye", "linspace", "tensor", "scalar_tensor", "NumToTensor"];

/// Ops whose results are random: an exported constant would hide that.
const RANDOM: [&str; 12] = [
    "rand",
    "randn",
    "randint",
    "randperm",
    "bernoulli",
    "multinomial",
    "normal",
    "uniform_",
    "normal_",
    "bernoulli_",
    "rand_like",
    "randn_like",
];

/// Ops that read the value of a tensor.
const READS: [&str; 9] =
    ["item", "Int", "IntImplicit", "Float", "FloatImplicit", "Bool", "ScalarImplicit", "tolist", "equal"];

fn bare_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Calls an op.
pub(super) fn call(x: &mut Exporter, path: &str, args: Vec<Val>, keywords: Vec<(String, Val)>) -> Result<Val> {
    run(x, path, args, keywords).map_err(|e| e.within(path))
}

fn run(x: &mut Exporter, path: &str, args: Vec<Val>, keywords: Vec<(String, Val)>) -> Result<Val> {
    let bare = bare_name(path);
    if let Some(found) = question(x, bare, &args)? {
        return Ok(found);
    }
    let mut tensors = Vec::new();
    args.iter().chain(keywords.iter().map(|(_, v)| v)).for_each(|v| v.tensors(&mut tensors));
    let is_dynamic = args.iter().chain(keywords.iter().map(|(_, v)| v)).any(Val::has_dynamic);
    if tensors.is_empty() && !FACTORIES.contains(&bare) {
        return plain(x, path, bare, &args, &keywords);
    }
    if RANDOM.contains(&bare) {
        return Err(Error::unsupported(format!("ONNX: '{bare}', whose result is random")));
    }
    let mut computed = is_dynamic;
    for all in &tensors {
        computed |= x.computed(&all[0])?.is_some();
    }
    let is_onnx = path.starts_with("onnx.");
    let params = if is_onnx { Vec::new() } else { named(path, bare, &args, &keywords)? };
    let on = |name: &str| params.iter().any(|(n, v)| n == name && matches!(v, Val::Plain(IValue::Bool(true))));
    let in_place = bare.ends_with('_') && !bare.ends_with("__") || on("inplace");
    let training = match bare {
        _ if bare.contains("dropout") => on("training") || on("train"),
        "batch_norm" => on("training") || !params.iter().any(|(n, v)| n == "running_mean" && !v.is_none()),
        _ => false,
    };
    if training {
        return Err(Error::unsupported(format!(
            "ONNX: '{bare}' in training mode; call model.eval() before the export"
        )));
    }
    if let (true, Some(target)) = (in_place, tensors.first())
        && x.is_weight(&target[0])
    {
        return Err(Error::unsupported("ONNX: an op that changes a weight in place"));
    }
    let op = ops::resolve(path)?;
    let results = (0..x.examples)
        .map(|e| {
            let list = args.iter().map(|v| v.on(e)).collect();
            op.call(list, keywords.iter().map(|(n, v)| (n.clone(), v.on(e))).collect())
        })
        .collect::<Result<Vec<_>>>()?;
    let out = Val::join(&results, bare)?;
    if !computed {
        if let (true, Some(target)) = (in_place, tensors.first()) {
            x.forget_constant(&target[0]);
        }
        return Ok(out);
    }
    let mut made = Vec::new();
    out.tensors(&mut made);
    if made.is_empty() {
        if READS.contains(&bare) {
            return Err(Error::unsupported("ONNX: the value of a tensor as a number of the program"));
        }
        return Ok(out);
    }
    if is_onnx {
        let names = super::node(x, &path[5..], &args, &keywords, made.len())?;
        made.iter().zip(&names).for_each(|(t, name)| x.register(&t[0], name));
        return Ok(out);
    }
    // The op returned its input.
    if !in_place && made.len() == 1 && tensors.iter().any(|t| t[0].id() == made[0][0].id()) {
        return Ok(out);
    }
    let name = if in_place && !on("inplace") { bare.trim_end_matches('_') } else { bare };
    let call = Call { name: name.to_string(), params, out: out.clone() };
    let families = [pointwise::emit, shape::emit, reduce::emit, nn::emit, recurrent::emit];
    let mut names = None;
    for emit in families {
        names = emit(x, &call)?;
        if names.is_some() {
            break;
        }
    }
    let names = names.ok_or_else(|| Error::unsupported(format!("ONNX has no mapping for the op '{path}'")))?;
    if names.len() != made.len() {
        return Err(Error::unsupported(format!("ONNX: all {} results of '{path}'", made.len())));
    }
    for (tensor, name) in made.iter().zip(&names) {
        if in_place { x.register_changed(&tensor[0], name) } else { x.register(&tensor[0], name) }
    }
    Ok(out)
}

/// Questions about sizes.
fn question(x: &mut Exporter, bare: &str, args: &[Val]) -> Result<Option<Val>> {
    let Some(Val::Tensor(all)) = args.first() else {
        return Ok(match (bare, args.first().and_then(Val::items)) {
            ("len", Some(items)) => Some(Val::int(items.len() as i64)),
            _ => None,
        });
    };
    Ok(match (bare, args.get(1)) {
        ("size" | "shape", None) => Some(Val::list(x.shape_of(all)?)),
        ("size" | "sym_size", Some(dim)) => Some(x.size_of(all, wrap(dim.on(0).to_int()?, all[0].rank())?)?),
        ("len", None) => Some(x.size_of(all, 0)?),
        ("numel" | "sym_numel", None) => {
            let mut total = Val::int(1);
            for size in x.shape_of(all)? {
                total = x.combine("Mul", &total, &size)?;
            }
            Some(total)
        }
        _ => None,
    })
}

/// An op on plain values and sizes.
fn plain(x: &mut Exporter, path: &str, bare: &str, args: &[Val], keywords: &[(String, Val)]) -> Result<Val> {
    match (bare, args) {
        ("int" | "Int", [Val::Int(..)]) => return Ok(args[0].clone()),
        ("add", [a, b]) if a.items().is_some() && b.items().is_some() => {
            let all = a.items().into_iter().chain(b.items()).flatten();
            return Ok(if let Val::List(_) = a { Val::list(all) } else { Val::Tuple(all.collect()) });
        }
        ("slice", [list, ..]) if list.items().is_some() => {
            let items = list.items().unwrap_or_default();
            let places = Val::list((0..items.len()).map(|i| Val::int(i as i64)));
            let mut given: Vec<IValue> = args.iter().map(|v| v.on(0)).collect();
            given[0] = places.on(0);
            let kept = ops::resolve(path)?.call(given, Vec::new())?.ints()?;
            return Ok(Val::list(kept.into_iter().filter_map(|i| items.get(i as usize).cloned())));
        }
        ("list", [list]) if list.items().is_some() => return Ok(Val::list(list.items().unwrap_or_default())),
        _ => {}
    }
    let op = ops::resolve(path)?;
    let results = (0..x.examples)
        .map(|e| {
            let list = args.iter().map(|v| v.on(e)).collect();
            op.call(list, keywords.iter().map(|(n, v)| (n.clone(), v.on(e))).collect())
        })
        .collect::<Result<Vec<_>>>()?;
    let joined = Val::join(&results, bare)?;
    let Val::Int(values, None) = joined else { return Ok(joined) };
    let node = match bare {
        "add" => "Add",
        "sub" => "Sub",
        "mul" => "Mul",
        "floordiv" | "floor_divide" => "Div",
        "remainder" | "mod" => "Mod",
        "neg" => "Neg",
        "min" => "Min",
        "max" => "Max",
        _ => return Err(dynamic(&format!("the result of {bare}"))),
    };
    // ONNX divides integers towards zero, Python downwards.
    let at = |v: &Val| (0..x.examples).all(|e| v.on(e).to_int().is_ok_and(|i| i >= 0));
    if node == "Div" && !args.iter().all(at) {
        return Err(Error::unsupported("ONNX: // of a negative dynamic size"));
    }
    let operands = match args {
        [one] if one.items().is_some() => one.items().unwrap_or_default(),
        _ => args.to_vec(),
    };
    x.arithmetic(node, &operands, values)
}
