//! What is drawn of a program: its ops with their shapes, weights and modules.

use crate::export::sizes::{Known, solve};
use crate::script::ast::{Expr, Function, Stmt, Target};
use crate::{IValue, Model, inline};
use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::StateDict;
use std::collections::HashMap;

/// What kind of box a node is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Input,
    Output,
    /// With weights.
    Weighted,
    /// Moves no numbers, or only moves them.
    View,
    Plain,
}

/// An input, an op or the output.
pub(super) struct Node {
    pub class: Class,
    pub name: String,
    /// The module that the op's weights belong to.
    pub module: String,
    /// The box it is drawn in; empty for none.
    pub group: String,
    weights: Vec<String>,
    pub shape: String,
    /// The line of the program.
    pub source: String,
    /// Whether it is a branch or a loop.
    is_block: bool,
    /// The nodes whose results it reads, in order.
    pub reads: Vec<usize>,
}

impl Node {
    /// The lines of its box with their classes.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let detail = match (self.module.is_empty(), self.weights.is_empty()) {
            (true, true) => String::new(),
            (true, false) => self.weights.join(", "),
            (false, _) => format!("{}: {}", self.module, self.weights.join(", ")),
        };
        let mut lines = vec![("op", super::cut(&self.name, 30))];
        lines.extend(
            [("module", detail), ("shape", self.shape.clone())]
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(class, text)| (class, super::cut(&text, 40))),
        );
        lines
    }
}

/// The graph.
pub(super) struct Drawn {
    pub nodes: Vec<Node>,
    /// Why something is missing.
    pub note: Option<String>,
}

/// Names of ops that give integers.
const INTEGERS: [&str; 8] = ["size", "dim", "len", "numel", "int", "dtype", "device", "sym_size"];
const VIEWS: [&str; 22] = [
    "reshape",
    "view",
    "transpose",
    "permute",
    "narrow",
    "slice",
    "select",
    "expand",
    "unsqueeze",
    "squeeze",
    "flatten",
    "split",
    "chunk",
    "unbind",
    "contiguous",
    "clone",
    "to",
    "cat",
    "stack",
    "t",
    "index_select",
    "alias",
];

/// What an expression reads.
#[derive(Default)]
struct Reads {
    locals: Vec<usize>,
    weights: Vec<String>,
    /// Names of the calls, the outermost first.
    calls: Vec<String>,
}

fn read(expr: &Expr, found: &mut Reads) {
    match expr {
        Expr::Literal(_) | Expr::Path(_) => {}
        Expr::Local(slot) => found.locals.push(*slot),
        Expr::Attribute(inner, _) | Expr::Cast(_, inner) => read(inner, found),
        Expr::List(items) | Expr::Tuple(items) => items.iter().for_each(|e| read(e, found)),
        Expr::Op(name, items, _) => {
            found.calls.push((*name).into());
            items.iter().for_each(|e| read(e, found));
        }
        Expr::Dict(entries) => entries.iter().for_each(|(k, v)| {
            read(k, found);
            read(v, found);
        }),
        Expr::Index(a, b) => {
            found.calls.push("getitem".into());
            read(a, found);
            read(b, found);
        }
        Expr::Choice(parts) => parts.iter().for_each(|e| read(e, found)),
        Expr::Logic(_, parts) => parts.iter().for_each(|e| read(e, found)),
        Expr::Call(call) => {
            match (&call.target, &call.args[..]) {
                (Expr::Path(path), [Expr::Literal(IValue::Str(name))]) if path == "weight" => {
                    found.weights.push(name.to_string());
                    return;
                }
                (Expr::Path(path), _) => found.calls.push(path.clone()),
                (Expr::Attribute(object, name), _) => {
                    found.calls.push(name.clone());
                    read(object, found);
                }
                (target, _) => read(target, found),
            }
            call.args.iter().for_each(|e| read(e, found));
            call.keywords.iter().for_each(|(_, e)| read(e, found));
        }
    }
}

/// The variables that a statement sets, and its expressions.
fn parts<'a>(stmt: &'a Stmt, sets: &mut Vec<usize>, values: &mut Vec<&'a Expr>) {
    fn target<'a>(of: &'a Target, sets: &mut Vec<usize>, values: &mut Vec<&'a Expr>) {
        match of {
            Target::Local(slot) => sets.push(*slot),
            Target::Tuple(all) => all.iter().for_each(|t| target(t, sets, values)),
            Target::Attribute(object, _) => values.push(object),
            Target::Index(object, index) => values.extend([object, index]),
        }
    }
    match stmt {
        Stmt::Assign(to, value) => {
            target(to, sets, values);
            values.push(value);
        }
        Stmt::Expr(value) | Stmt::Return(value) | Stmt::Raise(value) => values.push(value),
        Stmt::If(condition, then, otherwise) => {
            values.push(condition);
            then.iter().chain(otherwise).for_each(|(stmt, _)| parts(stmt, sets, values));
        }
        Stmt::For(to, over, body) => {
            target(to, sets, values);
            values.push(over);
            body.iter().for_each(|(stmt, _)| parts(stmt, sets, values));
        }
        Stmt::While(condition, body) => {
            values.push(condition);
            body.iter().for_each(|(stmt, _)| parts(stmt, sets, values));
        }
        Stmt::Break | Stmt::Continue => {}
    }
}

/// Which weight of a model a program's weight is: one function made of several has names of its own.
struct Names<'a> {
    program: &'a StateDict,
    known: HashMap<(usize, usize, Vec<usize>), String>,
}

impl<'a> Names<'a> {
    fn new(model: &Model, program: &'a Model) -> Self {
        let known = model.state_dict().iter().map(|(name, t)| (Self::place(t), name.clone())).collect();
        Self { program: program.unit.weights(), known }
    }

    fn place(t: &Tensor) -> (usize, usize, Vec<usize>) {
        (t.storage().ptr() as usize, t.layout().offset(), t.shape().to_vec())
    }

    /// The module that a weight belongs to; `None` for a constant.
    fn of(&self, weight: &str) -> Option<String> {
        let name = self.known.get(&Self::place(self.program.get(weight)?))?;
        Some(name.rsplit_once('.').map_or("", |(module, _)| module).to_string())
    }
}

/// The box of a module: the block of a numbered list that it is in, else its first part.
fn group_of(module: &str) -> String {
    let parts: Vec<&str> = module.split('.').collect();
    match parts.iter().position(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit())) {
        // A number is a layer of its own only where it has parts.
        Some(at) if at + 1 < parts.len() => parts[..=at].join("."),
        Some(at) => parts[..at].join("."),
        None if parts.len() > 1 => parts[0].into(),
        None => String::new(),
    }
}

/// The graph of a model.
pub(super) fn of(model: &Model) -> Result<Drawn> {
    let flat = if model.root.is_some() || model.unit.functions().count() != 1 { inline::flat(model) } else { None };
    let plain = flat.as_ref().unwrap_or(model);
    if plain.root.is_some() {
        return Err(Error::unsupported(
            "a picture of this module: its program has loops of unknown length or objects, which have no form as one function",
        ));
    }
    let function = plain.entry("forward")?.clone();
    let (shapes, note) = match no_grad(|| shapes(plain, &function)) {
        Ok(shapes) => (shapes, None),
        Err(e) => (HashMap::new(), Some(format!("Shapes are not shown: {e}"))),
    };
    let lines = lines(plain);
    let names = Names::new(model, plain);
    let mut nodes: Vec<Node> = Vec::new();
    // The node that made each variable.
    let mut made: HashMap<usize, usize> = HashMap::new();
    for (slot, param) in function.params.iter().enumerate() {
        made.insert(slot, nodes.len());
        let dims = param.ty.as_ref().and_then(|ty| ty.args.as_ref());
        let shape = dims.map(|dims| dims.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", "));
        nodes.push(Node {
            class: Class::Input,
            name: param.name.clone(),
            module: String::new(),
            group: String::new(),
            weights: Vec::new(),
            shape: shape.map_or(String::new(), |shape| format!("[{shape}]")),
            source: param.ty.as_ref().map_or(param.name.clone(), |ty| format!("{}: {}", param.name, ty.name)),
            is_block: false,
            reads: Vec::new(),
        });
    }
    for (at, (stmt, _)) in function.body.iter().enumerate() {
        let (mut sets, mut values, mut found) = (Vec::new(), Vec::new(), Reads::default());
        parts(stmt, &mut sets, &mut values);
        values.iter().for_each(|value| read(value, &mut found));
        let full = found.calls.first().cloned().unwrap_or_default();
        let short = full.rsplit('.').next().unwrap_or_default().to_string();
        let is_return = matches!(stmt, Stmt::Return(_));
        let is_block = matches!(stmt, Stmt::If(..) | Stmt::For(..) | Stmt::While(..));
        if !is_return && !is_block && (INTEGERS.contains(&short.as_str()) || full.is_empty()) {
            // Variables that are another one, or parts of it, have its node.
            if let Some(&from) = found.locals.first().and_then(|slot| made.get(slot)).filter(|_| full.is_empty()) {
                made.extend(sets.iter().map(|slot| (*slot, from)));
            }
            continue;
        }
        let mut reads: Vec<usize> = found.locals.iter().filter_map(|slot| made.get(slot).copied()).collect();
        reads.dedup();
        let state = plain.unit.weights();
        let weight = |name: &String| state.get(name).map(|t| times(t.shape()));
        let module = found.weights.iter().find_map(|name| names.of(name));
        let is_weighted = module.is_some();
        let shape = sets.iter().filter_map(|slot| shapes.get(slot)).cloned().collect::<Vec<_>>().join(" ");
        let number = nodes.len();
        nodes.push(Node {
            class: match is_return {
                true => Class::Output,
                false if is_weighted => Class::Weighted,
                false if VIEWS.contains(&short.as_str()) => Class::View,
                false => Class::Plain,
            },
            name: match stmt {
                Stmt::Return(_) => "output".into(),
                Stmt::If(..) => "if".into(),
                Stmt::For(..) => "for".into(),
                Stmt::While(..) => "while".into(),
                _ => short,
            },
            module: module.unwrap_or_default(),
            group: String::new(),
            weights: found.weights.iter().filter_map(weight).collect(),
            shape,
            source: lines.get(at).cloned().unwrap_or(full),
            is_block,
            reads,
        });
        // An op that works in place makes what it changed.
        if sets.is_empty() || nodes[number].name.ends_with('_') {
            made.extend(found.locals.first().map(|slot| (*slot, number)));
        }
        made.extend(sets.iter().map(|slot| (*slot, number)));
    }
    assign_groups(&mut nodes);
    Ok(Drawn { nodes: reaching(nodes), note })
}

/// The inputs, and what the output depends on or what runs for its effect.
fn reaching(nodes: Vec<Node>) -> Vec<Node> {
    let effect = |n: &Node| matches!(n.class, Class::Input | Class::Output) || n.name.ends_with('_') || n.is_block;
    let mut kept: Vec<bool> = nodes.iter().map(effect).collect();
    for i in (0..nodes.len()).rev() {
        if kept[i] {
            nodes[i].reads.iter().for_each(|&from| kept[from] = true);
        }
    }
    let places: Vec<usize> =
        kept.iter().scan(0, |next, &kept| Some(std::mem::replace(next, *next + usize::from(kept)))).collect();
    let left = nodes.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(node, _)| node);
    left.map(|node| Node { reads: node.reads.iter().map(|&from| places[from]).collect(), ..node }).collect()
}

fn times(shape: &[usize]) -> String {
    if shape.is_empty() { "1".into() } else { shape.iter().map(usize::to_string).collect::<Vec<_>>().join("×") }
}

/// Ops without weights are in the box of the ops with weights before and after them, if that is one.
fn assign_groups(nodes: &mut [Node]) {
    let own: Vec<Option<String>> = nodes.iter().map(|n| (!n.module.is_empty()).then(|| group_of(&n.module))).collect();
    for i in 0..nodes.len() {
        if matches!(nodes[i].class, Class::Input | Class::Output) {
            continue;
        }
        let before = own[..=i].iter().rev().flatten().next();
        let after = own[i..].iter().flatten().next();
        nodes[i].group = match (before, after) {
            (Some(a), Some(b)) if a == b => a.clone(),
            _ => String::new(),
        };
    }
}

/// The statements of a straight program as text, without their indentation.
fn lines(model: &Model) -> Vec<String> {
    let mut found = Vec::new();
    for (_, source) in &model.unit.sources {
        let body = source.lines().skip_while(|line| !line.starts_with("def forward")).skip(1);
        found.extend(
            body.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).map(|line| line.trim().to_string()),
        );
    }
    found
}

/// The shapes of a straight program's variables, with the names of sizes. The program runs on meta tensors of three
/// sizes, or, if an op needs elements, on small ones of the CPU.
fn shapes(model: &Model, function: &Function) -> Result<HashMap<usize, String>> {
    let mut assigned = Vec::new();
    for (stmt, _) in &function.body {
        match stmt {
            Stmt::If(..) | Stmt::For(..) | Stmt::While(..) => {
                return Err(Error::unsupported("the program has branches or loops"));
            }
            other => parts(other, &mut assigned, &mut Vec::new()),
        }
    }
    assigned.sort_unstable();
    assigned.dedup();
    let names: Vec<&str> = assigned.iter().map(|slot| function.locals[*slot].as_str()).collect();
    let (text, weights) = model.archive()?;
    let body: Vec<&str> =
        text.lines().filter(|line| !line.starts_with("#: ") && !line.starts_with("  return ")).collect();
    let text = format!("{}\n  return ({},)\n", body.join("\n"), names.join(", "));
    let mut failed = None;
    for (device, bases) in [(Device::Meta, &[5, 8, 16, 32, 64, 224][..]), (Device::Cpu, &[5, 8, 16, 32])] {
        let to = |t: &Tensor| {
            if device == Device::Meta { Tensor::empty_with(t.shape(), (t.dtype(), device)) } else { t.to(device) }
        };
        let weights: StateDict = weights.iter().map(|(n, t)| Ok((n.clone(), to(t)?))).collect::<Result<_>>()?;
        let model = Model::from_text(&text, weights)?;
        for &base in bases {
            let runs: Result<Vec<_>> = (0..3).map(|which| run(&model, function, device, base, which)).collect();
            match runs {
                Ok(runs) => {
                    return Ok(assigned.iter().copied().zip(merge(&runs)).filter(|(_, s)| !s.is_empty()).collect());
                }
                Err(e) => _ = failed.get_or_insert(e),
            }
        }
    }
    Err(failed.unwrap_or_else(|| Error::value("the program does not run")))
}

/// The sizes with names, and the shapes of all variables.
type Shapes = (Vec<(String, i64)>, Vec<Option<Vec<i64>>>);

fn run(model: &Model, function: &Function, device: Device, base: usize, which: usize) -> Result<Shapes> {
    let mut sizes: Vec<(String, i64)> = Vec::new();
    let mut inputs = Vec::new();
    for param in &function.params {
        let Some((name, dims)) = param.ty.as_ref().and_then(|ty| Some((&ty.name, ty.args.as_ref()?))) else {
            return Err(Error::unsupported("the program does not say the sizes of its inputs"));
        };
        let dtype = DType::ALL.into_iter().find(|d| d.name() == name);
        let dtype = dtype.ok_or_else(|| Error::unsupported(format!("an input is '{name}'")))?;
        let mut shape = Vec::new();
        for dim in dims {
            shape.push(match dim.name.parse::<usize>() {
                Ok(n) => n,
                Err(_) => match sizes.iter().find(|(known, _)| *known == dim.name) {
                    Some((_, n)) => *n as usize,
                    None => {
                        let n = base + [0, 1 + sizes.len(), 3 + 2 * sizes.len()][which];
                        sizes.push((dim.name.clone(), n as i64));
                        n
                    }
                },
            });
        }
        inputs.push(IValue::Tensor(Tensor::zeros_with(&shape, (dtype, device))?));
    }
    let of = |value: &IValue| match value {
        IValue::Tensor(t) => Some(t.shape().iter().map(|&n| n as i64).collect()),
        _ => None,
    };
    Ok((sizes, model.forward(&inputs)?.items()?.iter().map(of).collect()))
}

/// The shapes of all runs as one text each; empty for a variable that is no tensor.
fn merge(runs: &[Shapes]) -> Vec<String> {
    let known: Vec<Known> = (0..runs[0].0.len())
        .map(|i| Known { values: runs.iter().map(|(sizes, _)| sizes[i].1).collect(), text: runs[0].0[i].0.clone() })
        .collect();
    let size = |values: Vec<i64>| match values.iter().all(|v| *v == values[0]) {
        true => values[0].to_string(),
        false => solve(&values, &known).unwrap_or_else(|| "?".into()),
    };
    (0..runs[0].1.len())
        .map(|at| {
            let Some(shapes) = runs.iter().map(|(_, all)| all.get(at)?.clone()).collect::<Option<Vec<Vec<i64>>>>()
            else {
                return String::new();
            };
            if shapes.iter().any(|shape| shape.len() != shapes[0].len()) {
                return String::new();
            }
            let sizes = (0..shapes[0].len()).map(|dim| size(shapes.iter().map(|shape| shape[dim]).collect()));
            format!("[{}]", sizes.collect::<Vec<_>>().join(", "))
        })
        .collect()
}
