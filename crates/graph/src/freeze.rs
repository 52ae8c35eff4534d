//! Programs for inference alone: constants folded, batch norms folded into convolutions.

use crate::inline::{self, changes_containers, is_in_place, is_kept};
use crate::ivalue::IValue;
use crate::model::{Model, quoted};
use crate::ops;
use crate::script::ast::*;
use rushlight_core::{DType, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::state::StateDict;
use std::collections::{HashMap, HashSet};

/// A line of the frozen program.
struct Line {
    /// Variables that it sets, and their text on the left side.
    sets: Vec<usize>,
    left: String,
    /// A call with its arguments as text, or any other statement's text.
    op: Option<(String, Vec<String>, Vec<(String, String)>)>,
    text: String,
    /// Variables that it reads.
    reads: Reads,
}

/// Variables that a line reads.
#[derive(Default)]
struct Reads {
    values: Vec<usize>,
    /// Those of whose tensors it only asks for the rank or the sizes.
    sizes: Vec<usize>,
}

/// Whether a function of layers may work in place.
fn is_flagged(path: &str, call: &Call) -> bool {
    let is_true = |e: &Expr| matches!(e, Expr::Literal(IValue::Bool(true)));
    path.starts_with("nn.functional.")
        && (call.args.iter().any(is_true) || call.keywords.iter().any(|(_, e)| is_true(e)))
}

struct Freezer<'a> {
    model: &'a Model,
    function: &'a Function,
    /// Variables that are constants.
    constants: HashMap<usize, IValue>,
    /// Variables that are not: branches set them, or ops change what they hold.
    variables: HashSet<usize>,
    weights: StateDict,
    /// Names of constants by identity.
    names: HashMap<usize, String>,
    count: usize,
}

impl Model {
    /// The program for inference: calls of methods and functions are put in their places, ops on constants are folded,
    /// and batch norms that follow a convolution are folded into its weights. Calls are recorded: those of the same
    /// kind run as one list of the engine's calls, with pointwise chains fused and memory planned. Weights do not train
    /// any more, and only `forward` remains. Modules in training mode, and programs with loops of unknown length or
    /// objects of their own, are returned as they are, without gradients.
    pub fn freeze(&self) -> Result<Model> {
        let (text, weights) = self.archive()?;
        let detached: StateDict = weights.iter().map(|(n, t)| (n.clone(), t.detach())).collect();
        let plain = Model::parse(&text, detached)?;
        let trains = plain.root.as_ref().and_then(|root| root.get("training"));
        if matches!(trains, Some(IValue::Bool(true))) {
            return Ok(plain);
        }
        let flat = match plain.root.is_some() || plain.unit.functions().count() != 1 {
            true => no_grad(|| Ok(inline::flat(&plain)))?,
            false => None,
        };
        let one = match &flat {
            Some(flat) => flat,
            None if plain.root.is_none() && plain.unit.functions().count() == 1 => &plain,
            None => return Ok(plain.recording()),
        };
        let function = one.entry("forward")?.clone();
        match no_grad(|| Freezer::new(one, &function).run())? {
            Some(frozen) => Ok(frozen.recording()),
            None => Ok(flat.unwrap_or(plain).recording()),
        }
    }
}

impl<'a> Freezer<'a> {
    fn new(model: &'a Model, function: &'a Function) -> Self {
        let mut variables = HashSet::new();
        changed(&function.body, &mut variables);
        let (constants, weights, names) = Default::default();
        Self { model, function, constants, variables, weights, names, count: 0 }
    }

    fn run(mut self) -> Result<Option<Model>> {
        let mut lines = Vec::new();
        for (stmt, _) in &self.function.body {
            match self.line(stmt)? {
                Some(Some(line)) => lines.push(line),
                Some(None) => {}
                None => return Ok(None),
            }
        }
        self.fold_norms(&mut lines)?;
        let mut params = Vec::new();
        for param in &self.function.params {
            let default = match &param.default {
                Some(default) => match self.text(default, &mut Reads::default())? {
                    Some(text) => format!("={text}"),
                    None => return Ok(None),
                },
                None => String::new(),
            };
            params.push(format!("{}{}{default}", param.name, typed(&param.ty)));
        }
        let mut text = format!("def forward({}):\n", params.join(", "));
        for line in &lines {
            let right = match &line.op {
                Some((op, args, keywords)) => {
                    let named = keywords.iter().map(|(n, v)| format!("{n}={v}"));
                    format!("{op}({})", args.iter().cloned().chain(named).collect::<Vec<_>>().join(", "))
                }
                None => line.text.clone(),
            };
            text.push_str(&format!("  {}{right}\n", line.left));
        }
        let used: StateDict =
            self.weights.into_iter().filter(|(name, _)| text.contains(&format!("weight({})", quoted(name)))).collect();
        Model::from_text(&text, used).map(Some)
    }

    /// The line of a statement; the inner `None` for one that is folded, the outer for one that is not understood.
    fn line(&mut self, stmt: &Stmt) -> Result<Option<Option<Line>>> {
        let mut reads = Reads::default();
        Ok(Some(Some(match stmt {
            Stmt::Assign(target, value) => {
                let mut sets = Vec::new();
                if !locals(target, &mut sets) {
                    return Ok(None);
                }
                if let Target::Local(slot) = target
                    && !self.variables.contains(slot)
                    && let Some(found) = self.constant(value)?
                {
                    self.constants.insert(*slot, found);
                    return Ok(Some(None));
                }
                sets.iter().for_each(|slot| drop(self.constants.remove(slot)));
                let left = self.left(target, &sets);
                let op = match value {
                    Expr::Call(call) => match &call.target {
                        Expr::Path(path) if !matches!(path.as_str(), "torch.dim" | "torch.size") => {
                            let Some(args) = self.texts(&call.args, &mut reads)? else { return Ok(None) };
                            // An op that changes a constant would change it for all calls.
                            if is_in_place(path) && args.first().is_some_and(|a| a.starts_with("weight(")) {
                                return Ok(None);
                            }
                            let mut keywords = Vec::new();
                            for (name, value) in &call.keywords {
                                let Some(text) = self.text(value, &mut reads)? else { return Ok(None) };
                                keywords.push((name.clone(), text));
                            }
                            Some((path.clone(), args, keywords))
                        }
                        _ => None,
                    },
                    _ => None,
                };
                let text = match &op {
                    Some(_) => String::new(),
                    None => match self.text(value, &mut reads)? {
                        Some(text) => text,
                        None => return Ok(None),
                    },
                };
                Line { sets, left, op, text, reads }
            }
            Stmt::Return(value) => {
                let Some(text) = self.text(value, &mut reads)? else { return Ok(None) };
                Line { sets: Vec::new(), left: "return ".into(), op: None, text, reads }
            }
            _ => {
                let mut sets = Vec::new();
                let Some(text) = self.nested(stmt, 1, &mut sets, &mut reads)? else { return Ok(None) };
                Line { sets, left: String::new(), op: None, text, reads }
            }
        })))
    }

    /// The left side of an assignment to variables.
    fn left(&self, target: &Target, sets: &[usize]) -> String {
        let names: Vec<&str> = sets.iter().map(|&s| self.function.locals[s].as_str()).collect();
        match target {
            Target::Local(_) => format!("{} = ", names[0]),
            _ => format!("{}, = ", names.join(", ")),
        }
    }

    /// A statement that is kept whole, without the indentation of its first line.
    fn nested(
        &mut self,
        stmt: &Stmt,
        indent: usize,
        sets: &mut Vec<usize>,
        reads: &mut Reads,
    ) -> Result<Option<String>> {
        Ok(match stmt {
            Stmt::Assign(target, value) => {
                let mut here = Vec::new();
                if !locals(target, &mut here) {
                    return Ok(None);
                }
                sets.extend(&here);
                self.text(value, reads)?.map(|text| format!("{}{text}", self.left(target, &here)))
            }
            Stmt::Expr(value) => self.text(value, reads)?,
            Stmt::Raise(value) => self.text(value, reads)?.map(|text| format!("raise {text}")),
            Stmt::If(condition, then, otherwise) => {
                let Some(condition) = self.text(condition, reads)? else { return Ok(None) };
                let mut out = format!("if {condition}:");
                for (at, body) in [then, otherwise].into_iter().enumerate() {
                    let pad = "  ".repeat(indent + 1);
                    if at == 1 {
                        if body.is_empty() {
                            break;
                        }
                        out.push_str(&format!("\n{}else:", "  ".repeat(indent)));
                    }
                    if body.is_empty() {
                        out.push_str(&format!("\n{pad}pass"));
                    }
                    for (stmt, _) in body {
                        let Some(text) = self.nested(stmt, indent + 1, sets, reads)? else { return Ok(None) };
                        out.push_str(&format!("\n{pad}{text}"));
                    }
                }
                Some(out)
            }
            _ => None,
        })
    }

    /// The value of an expression of constants.
    fn constant(&self, expr: &Expr) -> Result<Option<IValue>> {
        let all = |items: &[Expr]| items.iter().map(|e| self.constant(e)).collect::<Result<Option<Vec<_>>>>();
        Ok(match expr {
            Expr::Literal(value) => Some(value.clone()),
            Expr::Local(slot) => self.constants.get(slot).cloned(),
            Expr::Path(path) => self.model.unit.path(path).ok(),
            Expr::List(items) => all(items)?.map(IValue::list),
            Expr::Tuple(items) => all(items)?.map(IValue::tuple),
            Expr::Op(name, operands, _) => match all(operands)? {
                Some(values) => Some(ops::resolve(&format!("torch.{name}"))?.call(values, Vec::new())?),
                None => None,
            },
            Expr::Call(call) => match &call.target {
                Expr::Path(path) if path == "weight" => self.model.unit.literal(expr).ok(),
                Expr::Path(path) if !is_kept(path) && !is_flagged(path, call) => {
                    let named = call.keywords.iter().map(|(n, v)| Ok(self.constant(v)?.map(|v| (n.clone(), v))));
                    match (all(&call.args)?, named.collect::<Result<Option<Vec<_>>>>()?) {
                        (Some(args), Some(keywords)) => {
                            let made = ops::resolve(path)?.call(args, keywords)?;
                            // Filled tensors stay ops: they may be large, and they are cheap.
                            let is_large = matches!(&made, IValue::Tensor(t) if t.numel() > 1 << 16);
                            let reads = call.args.iter().any(|e| matches!(e, Expr::Call(_) | Expr::Local(_)));
                            if is_large && !reads { None } else { Some(made) }
                        }
                        _ => None,
                    }
                }
                _ => None,
            },
            _ => None,
        })
    }

    fn weight(&mut self, tensor: &Tensor, like: Option<&str>) -> String {
        if let Some(name) = self.names.get(&tensor.id()) {
            return format!("weight({})", quoted(name));
        }
        let known = self.model.unit.weights.iter().find(|(_, t)| t.id() == tensor.id()).map(|(n, _)| n.clone());
        let mut name = known.or(like.map(str::to_string)).unwrap_or_else(|| format!("folded.{}", self.count));
        while self.weights.contains_key(&name) {
            self.count += 1;
            name = format!("folded.{}", self.count);
        }
        self.count += 1;
        self.weights.insert(name.clone(), tensor.clone());
        self.names.insert(tensor.id(), name.clone());
        format!("weight({})", quoted(&name))
    }

    /// A plain value as text.
    fn literal(&mut self, value: &IValue) -> Result<Option<String>> {
        Ok(Some(match value {
            IValue::Tensor(t) => self.weight(t, None),
            IValue::Str(s) => quoted(s),
            IValue::Float(x) if x.is_nan() => "nan".into(),
            IValue::Float(x) if x.is_infinite() => if *x > 0.0 { "inf" } else { "-inf" }.into(),
            IValue::None | IValue::Bool(_) | IValue::Int(_) | IValue::Float(_) | IValue::DType(_) => value.to_string(),
            IValue::Device(d) => format!("torch.device({})", quoted(&d.to_string())),
            IValue::List(_) | IValue::Tuple(_) => {
                let mut parts = Vec::new();
                for item in value.items()? {
                    let Some(text) = self.literal(&item)? else { return Ok(None) };
                    parts.push(text);
                }
                match value {
                    IValue::List(_) => format!("[{}]", parts.join(", ")),
                    _ => format!("({},)", parts.join(", ")),
                }
            }
            _ => return Ok(None),
        }))
    }

    fn texts(&mut self, items: &[Expr], reads: &mut Reads) -> Result<Option<Vec<String>>> {
        items.iter().map(|e| self.text(e, reads)).collect()
    }

    /// An expression as text; `None` for forms that recorded programs do not have.
    fn text(&mut self, expr: &Expr, reads: &mut Reads) -> Result<Option<String>> {
        if let Some(value) = self.constant(expr)? {
            return self.literal(&value);
        }
        Ok(match expr {
            Expr::Local(slot) => {
                reads.values.push(*slot);
                Some(self.function.locals[*slot].clone())
            }
            Expr::Index(object, index) => match (self.text(object, reads)?, self.text(index, reads)?) {
                (Some(object), Some(index)) => Some(format!("({object})[{index}]")),
                _ => None,
            },
            Expr::Attribute(object, name) => self.text(object, reads)?.map(|object| format!("({object}).{name}")),
            Expr::Cast(ty, value) => self.text(value, reads)?.map(|text| format!("annotate({}, {text})", shown(ty))),
            Expr::List(items) => self.texts(items, reads)?.map(|all| format!("[{}]", all.join(", "))),
            Expr::Tuple(items) => self.texts(items, reads)?.map(|all| format!("({},)", all.join(", "))),
            Expr::Dict(entries) => {
                let mut parts = Vec::new();
                for (key, value) in entries {
                    let (Some(key), Some(value)) = (self.text(key, reads)?, self.text(value, reads)?) else {
                        return Ok(None);
                    };
                    parts.push(format!("{key}: {value}"));
                }
                Some(format!("{{{}}}", parts.join(", ")))
            }
            Expr::Op(name, operands, _) => {
                self.texts(operands, reads)?.map(|all| format!("torch.{name}({})", all.join(", ")))
            }
            Expr::Call(call) => match &call.target {
                Expr::Path(path) => {
                    if let ("torch.dim" | "torch.size", Some(Expr::Local(slot))) = (path.as_str(), call.args.first())
                        && !self.constants.contains_key(slot)
                    {
                        reads.sizes.push(*slot);
                        let name = self.function.locals[*slot].clone();
                        let rest = self.texts(&call.args[1..], reads)?;
                        let all = rest.map(|rest| std::iter::once(name).chain(rest).collect::<Vec<_>>().join(", "));
                        return Ok(all.filter(|_| call.keywords.is_empty()).map(|all| format!("{path}({all})")));
                    }
                    let Some(mut all) = self.texts(&call.args, reads)? else { return Ok(None) };
                    for (name, value) in &call.keywords {
                        let Some(text) = self.text(value, reads)? else { return Ok(None) };
                        all.push(format!("{name}={text}"));
                    }
                    Some(format!("{path}({})", all.join(", ")))
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// The constant that a text names.
    fn named(&self, text: &str) -> Option<Tensor> {
        self.weights.iter().find(|(n, _)| format!("weight({})", quoted(n)) == text).map(|(_, t)| t.clone())
    }

    fn fold_norms(&mut self, lines: &mut Vec<Line>) -> Result<()> {
        let mut at = 0;
        while at < lines.len() {
            let Some(Folded { conv, source, weight, bias }) = self.norm(lines, at)? else {
                at += 1;
                continue;
            };
            let (weight, bias) = (self.weight(&weight, None), self.weight(&bias, None));
            if let Some((_, args, keywords)) = &mut lines[conv].op {
                keywords.retain(|(n, _)| n != "bias");
                args[1] = weight;
                match args.get_mut(2) {
                    Some(place) => *place = bias,
                    None => args.push(bias),
                }
            }
            if lines.iter().any(|l| l.reads.sizes.contains(&source)) {
                // Its sizes are asked for under its name.
                let norm = &mut lines[at];
                (norm.op, norm.text) = (None, self.function.locals[source].clone());
                norm.reads = Reads { values: vec![source], sizes: Vec::new() };
                at += 1;
            } else {
                let norm = lines.remove(at);
                (lines[conv].sets, lines[conv].left) = (norm.sets, norm.left);
            }
        }
        Ok(())
    }

    /// A batch norm in evaluation whose input is a convolution of which nothing else reads the numbers.
    fn norm(&self, lines: &[Line], at: usize) -> Result<Option<Folded>> {
        let line = &lines[at];
        let Some((op, args, keywords)) = &line.op else { return Ok(None) };
        // Positions of scale, shift, mean, variance and epsilon.
        let (order, is_onnx) = match op.as_str() {
            "nn.functional.batch_norm" => ([3, 4, 1, 2], false),
            "torch.batch_norm" => ([1, 2, 3, 4], false),
            "onnx.BatchNormalization" => ([1, 2, 3, 4], true),
            _ => return Ok(None),
        };
        let epsilon = match is_onnx {
            true => keywords.iter().find(|(n, _)| n == "epsilon").map_or("1e-5", |(_, v)| v.as_str()),
            false if keywords.is_empty() && args.len() >= 8 && args[5] == "False" => args[7].as_str(),
            false => return Ok(None),
        };
        let (Ok(epsilon), true) = (epsilon.parse::<f64>(), line.sets.len() == 1) else { return Ok(None) };
        let parts: Option<Vec<Tensor>> = order.iter().map(|&i| args.get(i).and_then(|text| self.named(text))).collect();
        let Some(&source) = line.reads.values.first() else { return Ok(None) };
        let readers = lines.iter().filter(|l| l.reads.values.contains(&source)).count();
        let before = lines[..at].iter().rposition(|l| l.sets.contains(&source));
        let (Some(parts), Some(before), 1) = (parts, before, readers) else { return Ok(None) };
        // The line stays in its place only if nothing in between sets what it reads.
        let conv = &lines[before];
        let Some((op, args, keywords)) = &conv.op else { return Ok(None) };
        let is_conv = matches!(op.as_str(), "nn.functional.conv1d" | "nn.functional.conv2d" | "nn.functional.conv3d")
            || matches!(op.as_str(), "torch.conv1d" | "torch.conv2d" | "torch.conv3d" | "onnx.Conv")
            // The seventh argument: whether it is a transposed one.
            || op == "torch._convolution" && args.get(6).is_some_and(|t| t == "False");
        if !is_conv || conv.sets.len() != 1 {
            return Ok(None);
        }
        let Some(weight) = args.get(1).and_then(|text| self.named(text)) else { return Ok(None) };
        let given = args.get(2).or(keywords.iter().find(|(n, _)| n == "bias").map(|(_, v)| v));
        let bias = match given.map(String::as_str) {
            None | Some("None") => None,
            Some(text) => match self.named(text) {
                Some(bias) => Some(bias),
                None => return Ok(None),
            },
        };
        let wide = |t: &Tensor| t.to_dtype(DType::F64);
        let [scale, shift, mean, variance] = &parts[..] else { return Ok(None) };
        let factor = wide(scale)?.div(&wide(variance)?.add(epsilon)?.sqrt()?)?;
        let mut shape = vec![1; weight.rank()];
        shape[0] = factor.numel();
        let folded = wide(&weight)?.mul(&factor.reshape(&shape[..])?)?.to_dtype(weight.dtype())?;
        let centre = match bias {
            Some(bias) => wide(&bias)?.sub(&wide(mean)?)?,
            None => wide(mean)?.neg()?,
        };
        let shift = centre.mul(&factor)?.add(&wide(shift)?)?.to_dtype(weight.dtype())?;
        Ok(Some(Folded { conv: before, source, weight: folded, bias: shift }))
    }
}

/// A batch norm as part of the convolution before it.
struct Folded {
    /// The convolution's line, and the variable that it sets.
    conv: usize,
    source: usize,
    weight: Tensor,
    bias: Tensor,
}

/// Variables that branches set, or that hold lists and dictionaries that are changed.
fn changed(body: &Block, out: &mut HashSet<usize>) {
    fn call(value: &Expr, out: &mut HashSet<usize>) {
        if let Expr::Call(call) = value
            && let (Expr::Path(path), Some(Expr::Local(slot))) = (&call.target, call.args.first())
            && changes_containers(path)
        {
            out.insert(*slot);
        }
    }
    fn inside(body: &Block, out: &mut HashSet<usize>) {
        for (stmt, _) in body {
            if let Stmt::Assign(target, _) = stmt {
                let mut sets = Vec::new();
                locals(target, &mut sets);
                out.extend(sets);
            }
        }
    }
    for (stmt, _) in body {
        match stmt {
            Stmt::Assign(_, value) | Stmt::Expr(value) => call(value, out),
            Stmt::If(_, then, otherwise) => [then, otherwise].into_iter().for_each(|body| {
                inside(body, out);
                changed(body, out);
            }),
            _ => {}
        }
    }
}

/// The variables of a target; `false` if it is something else.
fn locals(target: &Target, out: &mut Vec<usize>) -> bool {
    match target {
        Target::Local(slot) => {
            out.push(*slot);
            true
        }
        Target::Tuple(all) => all.iter().all(|t| matches!(t, Target::Local(_)) && locals(t, out)),
        _ => false,
    }
}

fn shown(ty: &Type) -> String {
    match &ty.args {
        Some(args) => format!("{}[{}]", ty.name, args.iter().map(shown).collect::<Vec<_>>().join(", ")),
        None => ty.name.clone(),
    }
}

/// A parameter's type with its colon.
pub(crate) fn typed(ty: &Option<Type>) -> String {
    ty.as_ref().map_or(String::new(), |ty| format!(": {}", shown(ty)))
}
