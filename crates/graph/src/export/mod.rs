//! Programs of Rust modules: a run of the module's forward, recorded op by op.
//!
//! The tensor layer announces its ops under the names of the op table ([`rushlight_tensor::announce`]); [`record`]
//! notes them. Rust's sizes are plain integers, so sizes with names come from more runs: the module runs on inputs of
//! three sizes, and [`sizes`] finds, for each integer that differs, the expression of sizes that gives it on all three.
//! The program is compared with the module on all of them.

mod record;
pub(crate) mod sizes;

use crate::model::quoted;
use crate::{IValue, Model};
use record::{Part, Recorder, Source, Step};
use rushlight_core::{DType, Error, Result};
use rushlight_nn::{Forward, Module};
use rushlight_tensor::Tensor;
use rushlight_tensor::announce::listen;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::StateDict;
use sizes::Known;
use std::cell::RefCell;
use std::rc::Rc;

/// Records the ops that a module's forward runs on an input: the model as a program, which runs without the module.
///
/// Sizes are those of the input; [`Export`] makes some of them free, gives inputs names and takes several.
///
/// ```
/// # mod rushlight {
/// #     pub use rushlight_tensor::*;
/// #     pub use rushlight_graph as graph;
/// #     pub use rushlight_graph::export;
/// #     pub use rushlight_nn as nn;
/// # }
/// use rushlight::nn::{Forward, Linear, ReLU, Sequential};
/// use rushlight::{Tensor, export};
/// let net = Sequential::from((Linear::new(4, 8)?, ReLU, Linear::new(8, 2)?));
/// let x = Tensor::randn([3, 4])?;
/// let model = export(&net, &x)?;
/// assert!(model.text()?.contains("nn.functional.linear(input, weight(\"0.weight\"), weight(\"0.bias\"))"));
/// assert_eq!(model.forward(&[x.clone().into()])?.to_tensor()?.to_vec::<f32>()?, net.forward(&x)?.to_vec::<f32>()?);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn export(model: &impl Forward, input: &Tensor) -> Result<Model> {
    Export::of(model).input("input", input).run(model)
}

/// An export with options: several inputs, names, sizes that may change.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_graph as graph; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Embedding, Linear, Sequential};
/// use rushlight::{Tensor, graph::Export};
/// let net = Sequential::from((Embedding::new(50, 16)?, Linear::new(16, 50)?));
/// let tokens = Tensor::zeros([2, 8])?.to_dtype(rushlight_core::DType::I64)?;
/// let model = Export::of(&net).input("tokens", &tokens).dynamic(0, "batch").dynamic(1, "length").run(&net)?;
/// assert!(model.text()?.contains("def forward(tokens: int64[batch, length]):"));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Export {
    weights: StateDict,
    inputs: Vec<Input>,
    fault: Option<Error>,
}

struct Input {
    name: String,
    example: Tensor,
    /// The names of the sizes that may change.
    dims: Vec<Option<String>>,
}

/// What an exported function returns: tensors, and tuples and vectors of them.
pub trait Outputs {
    /// As a value of a program.
    fn into_value(self) -> IValue;
}

impl<T: Into<IValue>> Outputs for T {
    fn into_value(self) -> IValue {
        self.into()
    }
}

impl Outputs for Vec<Tensor> {
    fn into_value(self) -> IValue {
        IValue::list(self.into_iter().map(IValue::from))
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Outputs),*> Outputs for ($($name,)*) {
            #[allow(non_snake_case)]
            fn into_value(self) -> IValue {
                let ($($name,)*) = self;
                IValue::tuple([$($name.into_value()),*])
            }
        }
    )*};
}

tuples! { (A B) (A B C) (A B C D) }

/// Whether programs can have this as a name.
fn is_name(name: &str) -> bool {
    let reserved = name.starts_with(['v', 'c']) && name.len() > 1 && name[1..].bytes().all(|b| b.is_ascii_digit());
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain && !reserved && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Runs on inputs of some sizes.
struct Run {
    inputs: Vec<Tensor>,
    recorded: Recorder,
    outputs: IValue,
    returned: Part,
}

impl Export {
    /// An export of a module, whose parameters and buffers have their names in the program.
    pub fn of(module: &dyn Module) -> Self {
        let mut weights = StateDict::new();
        for (name, tensor) in module.named_parameters().into_iter().chain(module.named_buffers()) {
            weights.insert(name, tensor);
        }
        Self { weights, inputs: Vec::new(), fault: None }
    }

    /// One more input: its name and an example.
    pub fn input(mut self, name: &str, example: &Tensor) -> Self {
        if !is_name(name) || self.inputs.iter().any(|i| i.name == name) {
            self.refuse(format!(
                "'{name}' is no name for an input: it must be new, of letters, digits and _, and not v0 or c0"
            ));
        }
        self.inputs.push(Input { name: name.into(), example: example.clone(), dims: vec![None; example.rank()] });
        self
    }

    /// Gives a dimension of the last input a name: its size may differ from the example's. Dimensions of one name have
    /// one size. The model also runs on other sizes of it, made of the example by repeating entries or leaving some
    /// out.
    pub fn dynamic(mut self, dim: usize, name: &str) -> Self {
        match self.inputs.last_mut().and_then(|input| input.dims.get_mut(dim)) {
            Some(slot) if is_name(name) => *slot = Some(name.into()),
            Some(_) => {
                self.refuse(format!("'{name}' is no name for a size: it takes letters, digits and _, and not v0 or c0"))
            }
            None => self.refuse(format!("dynamic({dim}, \"{name}\"): the last input has no such dimension")),
        }
        self
    }

    fn refuse(&mut self, message: String) {
        self.fault.get_or_insert(Error::value(format!("export: {message}")));
    }

    /// Records a module of one input.
    pub fn run(self, model: &impl Forward) -> Result<Model> {
        if self.inputs.len() != 1 {
            return Err(Error::value(format!(
                "export: forward takes one input, {} were given; use with()",
                self.inputs.len()
            )));
        }
        self.with(|inputs| match inputs {
            [input] => model.forward(input),
            _ => Err(Error::value("export: forward takes one input")),
        })
    }

    /// Records a function of the inputs, in their order: `.with(|x| model.forward(&x[0], &x[1]))`.
    pub fn with<O: Outputs>(self, f: impl Fn(&[Tensor]) -> Result<O>) -> Result<Model> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if rushlight_tensor::autocast_dtype().is_some() {
            return Err(Error::unsupported(
                "export: autocast is on; export outside of it, or convert the model with to()",
            ));
        }
        let symbols = self.symbols()?;
        let own: Vec<usize> = symbols.iter().map(|(_, n)| (*n).max(2)).collect();
        let first = self.record(&symbols, &own, &f)?;
        let mut runs = vec![first];
        if !symbols.is_empty() {
            runs.extend(self.others(&symbols, &own, &f)?);
        }
        let model = self.assemble(&symbols, &runs)?;
        no_grad(|| runs.iter().try_for_each(|run| check(&model, run)))?;
        let first = &runs[0];
        if !first.recorded.is_random {
            // Other elements: nothing of the example's has become a constant.
            no_grad(|| {
                let inputs = first.inputs.iter().map(moved).collect::<Result<Vec<_>>>()?;
                let given = inputs.iter().map(Tensor::copy).collect::<Result<Vec<_>>>()?;
                let outputs = f(&given)?.into_value();
                compare(&model, &inputs, &outputs, false)
            })?;
        }
        Ok(model)
    }

    /// Names of sizes, with the examples' sizes.
    fn symbols(&self) -> Result<Vec<(String, usize)>> {
        let mut found: Vec<(String, usize)> = Vec::new();
        for input in &self.inputs {
            for (name, &size) in input.dims.iter().zip(input.example.shape()) {
                let Some(name) = name else { continue };
                match found.iter().find(|(known, _)| known == name) {
                    Some((_, known)) if *known != size => {
                        return Err(Error::shape(format!(
                            "export: '{name}' is {known} in one example and {size} in another"
                        )));
                    }
                    Some(_) => {}
                    None if size == 0 => {
                        return Err(Error::shape(format!(
                            "export: '{name}' is 0 in the example; give it some entries"
                        )));
                    }
                    None => found.push((name.clone(), size)),
                }
            }
        }
        Ok(found)
    }

    /// Runs on two more sizes: larger ones, multiples for models that divide sizes, smaller ones for models with a
    /// largest size.
    fn others<O: Outputs>(
        &self,
        symbols: &[(String, usize)],
        own: &[usize],
        f: &impl Fn(&[Tensor]) -> Result<O>,
    ) -> Result<Vec<Run>> {
        let each = |make: &dyn Fn(usize, usize) -> Option<usize>| -> Option<Vec<usize>> {
            own.iter().enumerate().map(|(i, &n)| make(i, n)).collect()
        };
        let ways = [
            [each(&|i, n| Some(n + 1 + i)), each(&|i, n| Some(n + 3 + 2 * i))],
            [each(&|i, n| n.checked_mul(2 + i)), each(&|i, n| n.checked_mul(3 + 2 * i))],
            [
                each(&|i, n| n.checked_sub(1 + i).filter(|&n| n > 1)),
                each(&|i, n| n.checked_sub(3 + 2 * i).filter(|&n| n > 1)),
            ],
        ];
        let mut failed = None;
        for sizes in &ways {
            let [Some(a), Some(b)] = sizes else { continue };
            let both = self.record(symbols, a, f).and_then(|first| Ok(vec![first, self.record(symbols, b, f)?]));
            match both {
                Ok(runs) => return Ok(runs),
                Err(e) => _ = failed.get_or_insert(e),
            }
        }
        let names: Vec<&str> = symbols.iter().map(|(name, _)| name.as_str()).collect();
        let failed = failed.unwrap_or_else(|| Error::value("no other sizes were tried"));
        Err(failed.within(&format!("export: the model does not run on other sizes of {}", names.join(", "))))
    }

    /// Runs `f` on inputs of the given sizes.
    fn record<O: Outputs>(
        &self,
        symbols: &[(String, usize)],
        sizes: &[usize],
        f: &impl Fn(&[Tensor]) -> Result<O>,
    ) -> Result<Run> {
        let size = |name: &Option<String>, own: usize| {
            let at = name.as_ref().and_then(|name| symbols.iter().position(|(known, _)| known == name));
            at.map_or(own, |at| sizes[at])
        };
        let mut inputs = Vec::new();
        for input in &self.inputs {
            // Another tensor, so that one given twice stays two inputs.
            let mut example = input.example.detach().copy()?;
            for (dim, name) in input.dims.iter().enumerate() {
                let (have, want) = (example.shape()[dim], size(name, example.shape()[dim]));
                if have != want {
                    let places: Vec<i64> = (0..want).map(|i| (i % have) as i64).collect();
                    let places = Tensor::new(&places[..])?.to(example.device())?;
                    example = example.index_select(dim as isize, &places)?;
                }
            }
            inputs.push(example);
        }
        // The function may change what it is given.
        let given = inputs.iter().map(Tensor::copy).collect::<Result<Vec<_>>>()?;
        let recorder = Rc::new(RefCell::new(Recorder::new(&self.weights, &given)));
        let outputs = no_grad(|| listen(recorder.clone(), || f(&given)));
        let mut recorded = std::mem::take(&mut *recorder.borrow_mut());
        if let Some(fault) = recorded.fault.take() {
            return Err(fault);
        }
        let outputs = outputs?.into_value();
        let returned = recorded.value(&outputs)?;
        Ok(Run { inputs, recorded, outputs, returned })
    }

    /// The program that all runs are runs of.
    fn assemble(&self, symbols: &[(String, usize)], runs: &[Run]) -> Result<Model> {
        let names = symbols.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let mut writer = Writer { export: self, names, sizes: self.sizes(symbols, runs), constants: Vec::new() };
        let mut weights = StateDict::new();
        let lines = writer.constants(runs, &mut weights)?;
        let mut text = String::new();
        for input in &self.inputs {
            let dims = input.dims.iter().zip(input.example.shape());
            let dims: Vec<String> = dims.map(|(name, n)| name.clone().unwrap_or_else(|| n.to_string())).collect();
            let comma = if text.is_empty() { "" } else { ", " };
            text.push_str(&format!("{comma}{}: {}[{}]", input.name, input.example.dtype().name(), dims.join(", ")));
        }
        text = format!("def forward({text}):\n");
        lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        if runs.iter().any(|run| run.recorded.steps.len() != runs[0].recorded.steps.len()) {
            return Err(writer.depends("the number of ops"));
        }
        for at in 0..runs[0].recorded.steps.len() {
            let steps: Vec<&Step> = runs.iter().map(|run| &run.recorded.steps[at]).collect();
            text.push_str(&format!("  {}\n", writer.step(&steps)?));
        }
        let returned: Vec<&Part> = runs.iter().map(|run| &run.returned).collect();
        text.push_str(&format!("  return {}\n", writer.merge("return", &returned, &writer.sizes)?));
        for (name, tensor) in &self.weights {
            if text.contains(&format!("weight({})", quoted(name))) {
                weights.insert(name.clone(), tensor.clone());
            }
        }
        Model::from_text(&text, weights)
    }

    /// The sizes with names, as expressions.
    fn sizes(&self, symbols: &[(String, usize)], runs: &[Run]) -> Vec<Known> {
        let mut found = Vec::new();
        for (symbol, _) in symbols {
            let place =
                self.inputs.iter().enumerate().find_map(|(i, input)| {
                    Some((i, input.dims.iter().position(|name| name.as_ref() == Some(symbol))?))
                });
            if let Some((i, dim)) = place {
                let values = runs.iter().map(|run| run.inputs[i].shape()[dim] as i64).collect();
                found.push(Known { values, text: format!("torch.size({}, {dim})", self.inputs[i].name) });
            }
        }
        found
    }
}

/// Writes the steps of all runs as one.
struct Writer<'a> {
    export: &'a Export,
    /// The names of sizes, for errors.
    names: String,
    sizes: Vec<Known>,
    /// The expression of each constant.
    constants: Vec<String>,
}

impl Writer<'_> {
    fn depends(&self, what: &str) -> Error {
        Error::unsupported(format!(
            "export: {what} depends on the sizes {}; keep a dimension fixed, or write the model without sizes of it",
            self.names
        ))
    }

    fn source(&self, source: &Source) -> String {
        match source {
            Source::Input(number) => self.export.inputs[*number].name.clone(),
            Source::Result(number) => format!("v{number}"),
            Source::Weight(name) => format!("weight({})", quoted(name)),
            Source::Constant(number) => self.constants.get(*number).cloned().unwrap_or_default(),
        }
    }

    /// Lines for the constants that are made or copied in each run, and the weights that the others are.
    fn constants(&mut self, runs: &[Run], weights: &mut StateDict) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let first = &runs[0].recorded;
        if runs.iter().any(|run| run.recorded.constants.len() != first.constants.len()) {
            return Err(self.depends("the number of constants"));
        }
        for number in 0..first.constants.len() {
            let all: Vec<&Tensor> = runs.iter().map(|run| &run.recorded.constants[number]).collect();
            let mut equal = true;
            for other in &all[1..] {
                equal &= same(all[0], other)?;
            }
            let name = format!("constants.{number}");
            let stored = format!("weight({})", quoted(&name));
            let made = if equal {
                weights.insert(name, all[0].clone());
                first.changed.contains(&number).then(|| format!("torch.clone({stored})"))
            } else {
                let made = pattern(&all, &self.sizes)?;
                Some(made.ok_or_else(|| {
                    self.depends(&format!("a tensor of shape {:?} that is made without the inputs", all[0].shape()))
                })?)
            };
            self.constants.push(match made {
                Some(made) => {
                    lines.push(format!("c{number} = {made}"));
                    format!("c{number}")
                }
                None => stored,
            });
        }
        Ok(lines)
    }

    /// One op of all runs as a line.
    fn step(&self, steps: &[&Step]) -> Result<String> {
        let first = steps[0];
        let alike = |other: &&Step| {
            other.name == first.name
                && other.results == first.results
                && other.target == first.target
                && other.args.len() == first.args.len()
                && other.keywords.len() == first.keywords.len()
        };
        if let Some(other) = steps.iter().find(|other| !alike(other)) {
            return Err(self.depends(&format!("which op runs ({} or {})", first.name, other.name)));
        }
        let mut sizes: Vec<Known> = Vec::new();
        for (i, (source, shape)) in first.shapes.iter().enumerate() {
            for dim in 0..shape.len() {
                let size = |step: &&Step| step.shapes.get(i).and_then(|(_, shape)| shape.get(dim)).map(|&n| n as i64);
                let Some(values) = steps.iter().map(size).collect::<Option<Vec<i64>>>() else { continue };
                if values.iter().any(|v| *v != values[0]) {
                    sizes.push(Known { values, text: format!("torch.size({}, {dim})", self.source(source)) });
                }
            }
        }
        sizes.extend(self.sizes.iter().cloned());
        let mut parts = Vec::new();
        for at in 0..first.args.len() {
            let parts_of: Vec<&Part> = steps.iter().map(|step| &step.args[at]).collect();
            parts.push(self.merge(&first.name, &parts_of, &sizes)?);
        }
        for (at, (key, _)) in first.keywords.iter().enumerate() {
            let parts_of: Vec<&Part> = steps.iter().map(|step| &step.keywords[at].1).collect();
            parts.push(format!("{key}={}", self.merge(&first.name, &parts_of, &sizes)?));
        }
        let call = format!("{}({})", first.name, parts.join(", "));
        Ok(match (&first.target, &first.results[..]) {
            (Some(target), _) => format!("_ = Tensor.copy_({}, {call})", self.source(target)),
            (None, []) => format!("_ = {call}"),
            (None, [one]) if !first.is_several => format!("v{one} = {call}"),
            (None, several) => {
                format!("{}, = {call}", several.iter().map(|n| format!("v{n}")).collect::<Vec<_>>().join(", "))
            }
        })
    }

    /// An argument of all runs as text.
    fn merge(&self, op: &str, parts: &[&Part], sizes: &[Known]) -> Result<String> {
        let differs = || self.depends(&format!("an argument of {op}"));
        match parts[0] {
            Part::Source(first) => {
                let same = parts.iter().all(|part| matches!(part, Part::Source(other) if other == first));
                if same { Ok(self.source(first)) } else { Err(differs()) }
            }
            Part::Plain(first) => {
                let same = parts.iter().all(|part| matches!(part, Part::Plain(other) if other == first));
                if same { Ok(first.clone()) } else { Err(differs()) }
            }
            Part::Int(first) => {
                let int = |part: &&Part| if let Part::Int(i) = part { Some(*i) } else { None };
                let values = parts.iter().map(int).collect::<Option<Vec<i64>>>().ok_or_else(differs)?;
                if values.iter().all(|v| v == first) {
                    return Ok(first.to_string());
                }
                sizes::solve(&values, sizes).ok_or_else(|| {
                    self.depends(&format!(
                        "an integer of {op} ({values:?} on the sizes tried), in a way that was not recognised,"
                    ))
                })
            }
            Part::List(first) | Part::Tuple(first) => {
                let list = |part: &&Part| match (parts[0], part) {
                    (Part::List(_), Part::List(all)) | (Part::Tuple(_), Part::Tuple(all)) => Some(all.clone()),
                    _ => None,
                };
                let all = parts.iter().map(list).collect::<Option<Vec<_>>>().ok_or_else(differs)?;
                if all.iter().any(|list| list.len() != first.len()) {
                    return Err(differs());
                }
                let mut texts: Vec<Result<String>> = (0..first.len())
                    .map(|i| self.merge(op, &all.iter().map(|list| &list[i]).collect::<Vec<_>>(), sizes))
                    .collect();
                // One size of a shape follows from the others.
                if let ("torch.reshape", 1) = (op, texts.iter().filter(|text| text.is_err()).count()) {
                    texts.iter_mut().filter(|text| text.is_err()).for_each(|text| *text = Ok("-1".into()));
                }
                let texts = texts.into_iter().collect::<Result<Vec<_>>>()?;
                Ok(match (parts[0], &texts[..]) {
                    (Part::List(_), _) => format!("[{}]", texts.join(", ")),
                    (_, [one]) => format!("({one},)"),
                    _ => format!("({})", texts.join(", ")),
                })
            }
        }
    }
}

/// Whether two tensors have the same elements.
fn same(a: &Tensor, b: &Tensor) -> Result<bool> {
    Ok(a.dtype() == b.dtype() && a.shape() == b.shape() && numbers(a)? == numbers(b)?)
}

/// The elements as bits, so that NaN equals itself.
fn numbers(t: &Tensor) -> Result<Vec<u64>> {
    if t.dtype().is_int() {
        return Ok(t.to_vec::<i64>()?.into_iter().map(|i| i as u64).collect());
    }
    Ok(t.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect())
}

/// A tensor of each run as an expression: one number, `0, 1, 2, …`, or a triangle of one number in zeros.
fn pattern(all: &[&Tensor], sizes: &[Known]) -> Result<Option<String>> {
    let (dtype, rank) = (all[0].dtype(), all[0].rank());
    if all.iter().any(|t| t.dtype() != dtype || t.rank() != rank || t.numel() == 0) || dtype.is_complex() {
        return Ok(None);
    }
    let device = match all[0].device() {
        rushlight_core::Device::Cpu => String::new(),
        device => format!(", device=torch.device({})", quoted(&device.to_string())),
    };
    let options = format!("dtype=torch.{}{device}", dtype.name());
    let mut shape = Vec::new();
    for dim in 0..rank {
        let values: Vec<i64> = all.iter().map(|t| t.shape()[dim] as i64).collect();
        let size = if values.iter().all(|v| *v == values[0]) {
            Some(values[0].to_string())
        } else {
            sizes::solve(&values, sizes)
        };
        let Some(size) = size else { return Ok(None) };
        shape.push(size);
    }
    let shape = format!("[{}]", shape.join(", "));
    let elements = all.iter().map(|t| t.to_vec::<f64>()).collect::<Result<Vec<_>>>()?;
    let literal = |x: f64| match dtype {
        DType::Bool => if x != 0.0 { "True" } else { "False" }.to_string(),
        d if d.is_float() => record::float(x),
        _ => format!("{}", x as i64),
    };
    let first = elements[0][0];
    if elements.iter().flatten().all(|x| x.to_bits() == first.to_bits()) {
        return Ok(Some(format!("torch.full({shape}, {}, {options})", literal(first))));
    }
    let counts = |x: &Vec<f64>| x.iter().enumerate().all(|(i, &v)| v == i as f64);
    if rank == 1 && dtype != DType::Bool && elements.iter().all(counts) {
        let end = shape.trim_start_matches('[').trim_end_matches(']').to_string();
        return Ok(Some(format!("torch.arange({end}, {options})")));
    }
    if rank == 2 {
        for (name, diagonal) in [("triu", 1i64), ("tril", 0)] {
            let inside = |i: i64, j: i64| if diagonal == 1 { j - i >= 1 } else { j - i <= 0 };
            let mut value = None;
            let fits = all.iter().zip(&elements).all(|(t, x)| {
                let columns = t.shape()[1];
                x.iter().enumerate().all(|(at, &v)| match inside((at / columns) as i64, (at % columns) as i64) {
                    true => *value.get_or_insert(v) == v,
                    false => v == 0.0,
                })
            });
            if let (true, Some(value)) = (fits, value) {
                let full = format!("torch.full({shape}, {}, {options})", literal(value));
                return Ok(Some(format!("torch.{name}({full}, {diagonal})")));
            }
        }
    }
    Ok(None)
}

/// The tensor with its entries one place further along each dimension.
fn moved(t: &Tensor) -> Result<Tensor> {
    let dims: Vec<isize> = (0..t.rank() as isize).filter(|&d| t.shape()[d as usize] > 1).collect();
    if dims.is_empty() || t.numel() == 0 { t.copy() } else { t.roll(vec![1; dims.len()], dims) }
}

/// Compares the program with the module on the inputs of a run.
fn check(model: &Model, run: &Run) -> Result<()> {
    compare(model, &run.inputs, &run.outputs, run.recorded.is_random)
}

/// Compares the program with what the module has computed; only the shapes of `random` results.
fn compare(model: &Model, inputs: &[Tensor], outputs: &IValue, random: bool) -> Result<()> {
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
    let inputs = inputs.iter().map(|t| Ok(t.copy()?.into())).collect::<Result<Vec<IValue>>>()?;
    let found =
        model.forward(&inputs).map_err(|e| e.within(&format!("export: the program on inputs of shapes {shapes:?}")))?;
    let (mut expected, mut got) = (Vec::new(), Vec::new());
    outputs.tensors(&mut expected);
    found.tensors(&mut got);
    let differ = |what: String| {
        Error::unsupported(format!(
            "export: the program's results differ from the model's on inputs of shapes {shapes:?}: {what}; does it do the same twice?"
        ))
    };
    if expected.len() != got.len() {
        return Err(differ(format!("{} tensors, not {}", got.len(), expected.len())));
    }
    for (i, (a, b)) in expected.iter().zip(&got).enumerate() {
        if a.shape() != b.shape() || a.dtype() != b.dtype() {
            return Err(differ(format!(
                "output {i} is {}{:?}, not {}{:?}",
                b.dtype(),
                b.shape(),
                a.dtype(),
                a.shape()
            )));
        }
        if random {
            continue;
        }
        let tolerance = match a.dtype() {
            DType::F64 | DType::C128 => 1e-9,
            DType::F32 | DType::C64 => 1e-4,
            d if d.is_float() => 3e-2,
            _ => 0.0,
        };
        let parts = |t: &Tensor| if t.is_complex() { t.view_as_real() } else { Ok(t.clone()) };
        let (a, b) = (parts(a)?.to_vec::<f64>()?, parts(b)?.to_vec::<f64>()?);
        let scale = a.iter().filter(|x| x.is_finite()).fold(1.0f64, |m, x| m.max(x.abs()));
        let far = |(a, b): (&f64, &f64)| !(a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * scale);
        if let Some((a, b)) = a.iter().zip(&b).find(|&pair| far(pair)) {
            return Err(differ(format!("output {i} has {b} where the model gives {a}")));
        }
    }
    Ok(())
}
