//! The graph under construction: values of the program with their names in the graph, nodes, constants.

use super::super::proto::Attribute;
use super::write::{Graph, Node, number};
use crate::ivalue::IValue;
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{Arg, Tensor, result_type};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// A value of the program on each of the examples. Sizes that differ between examples are dynamic.
#[derive(Clone)]
pub(super) enum Val {
    /// A tensor for each example. Its name in the graph is found by the first one's identity.
    Tensor(Rc<[Tensor]>),
    /// An integer that differs between examples, and its name in the graph if it has one.
    Int(Rc<[i64]>, Option<Rc<str>>),
    List(Rc<RefCell<Vec<Val>>>),
    Tuple(Rc<[Val]>),
    /// Any other value: the same on all examples.
    Plain(IValue),
}

/// The error for a value that depends on a dynamic size.
pub(super) fn dynamic(what: &str) -> Error {
    Error::unsupported(format!(
        "ONNX: {what} depends on a dynamic size; keep that dimension static, or compute it by +, -, *, // of sizes"
    ))
}

impl Val {
    pub(super) fn int(i: i64) -> Self {
        Self::Plain(IValue::Int(i))
    }

    pub(super) fn list(items: impl IntoIterator<Item = Val>) -> Self {
        Self::List(Rc::new(RefCell::new(items.into_iter().collect())))
    }

    /// The value on one example.
    pub(super) fn on(&self, example: usize) -> IValue {
        match self {
            Val::Tensor(all) => IValue::Tensor(all[example].clone()),
            Val::Int(all, _) => IValue::Int(all[example]),
            Val::List(items) => IValue::list(items.borrow().iter().map(|v| v.on(example))),
            Val::Tuple(items) => IValue::tuple(items.iter().map(|v| v.on(example))),
            Val::Plain(value) => value.clone(),
        }
    }

    /// One value of the results on all examples.
    pub(super) fn join(all: &[IValue], what: &str) -> Result<Val> {
        let first = all.first().ok_or_else(|| Error::value("an export needs example inputs"))?;
        Ok(match first {
            IValue::Tensor(_) => Val::Tensor(all.iter().map(IValue::to_tensor).collect::<Result<_>>()?),
            IValue::List(_) | IValue::Tuple(_) => {
                let parts = all.iter().map(IValue::items).collect::<Result<Vec<_>>>()?;
                if parts.iter().any(|p| p.len() != parts[0].len()) {
                    return Err(dynamic(&format!("the number of results of {what}")));
                }
                let column = |i: usize| parts.iter().map(|p| p[i].clone()).collect::<Vec<_>>();
                let items = (0..parts[0].len()).map(|i| Val::join(&column(i), what)).collect::<Result<Vec<_>>>()?;
                if let IValue::List(_) = first { Val::list(items) } else { Val::Tuple(items.into()) }
            }
            IValue::Int(_) if all.iter().any(|v| !v.same(first)) => {
                Val::Int(all.iter().map(IValue::to_int).collect::<Result<_>>()?, None)
            }
            IValue::Dict(_) | IValue::Object(_) => Val::Plain(first.clone()),
            plain if all.iter().all(|v| v.same(plain)) => Val::Plain(plain.clone()),
            _ => return Err(dynamic(&format!("the result of {what}"))),
        })
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Val::Plain(IValue::None))
    }

    /// Elements of a list or tuple.
    pub(super) fn items(&self) -> Option<Vec<Val>> {
        match self {
            Val::List(items) => Some(items.borrow().clone()),
            Val::Tuple(items) => Some(items.to_vec()),
            _ => None,
        }
    }

    /// The tensors inside.
    pub(super) fn tensors(&self, out: &mut Vec<Rc<[Tensor]>>) {
        match self {
            Val::Tensor(all) => out.push(all.clone()),
            Val::List(items) => items.borrow().iter().for_each(|v| v.tensors(out)),
            Val::Tuple(items) => items.iter().for_each(|v| v.tensors(out)),
            _ => {}
        }
    }

    /// Whether a dynamic size is inside.
    pub(super) fn has_dynamic(&self) -> bool {
        match self {
            Val::Int(..) => true,
            Val::List(items) => items.borrow().iter().any(Val::has_dynamic),
            Val::Tuple(items) => items.iter().any(Val::has_dynamic),
            _ => false,
        }
    }
}

/// The graph and what is known of the values in it.
pub(super) struct Exporter {
    pub graph: Graph,
    pub opset: i64,
    /// Number of examples.
    pub examples: usize,
    /// Names of computed tensors by identity, with the version of their storage.
    names: HashMap<usize, (String, usize)>,
    /// Names of constants by identity.
    constants: HashMap<usize, String>,
    /// Names of weights by identity.
    weights: HashMap<usize, String>,
    /// Versions of storages that ops of the graph changed in place.
    versions: HashMap<usize, usize>,
    /// Keeps identities unique.
    alive: Vec<Tensor>,
    taken: HashSet<String>,
    sizes: HashMap<(String, usize), Rc<str>>,
    /// Names of small constants by their text.
    small: HashMap<String, String>,
    transposed: HashMap<usize, String>,
    next: usize,
}

fn storage(t: &Tensor) -> usize {
    Arc::as_ptr(t.storage()) as usize
}

impl Exporter {
    pub(super) fn new(weights: impl Iterator<Item = (String, Tensor)>, examples: usize, opset: i64) -> Self {
        let mut out = Self {
            graph: Graph::default(),
            opset,
            examples,
            names: HashMap::new(),
            constants: HashMap::new(),
            weights: HashMap::new(),
            versions: HashMap::new(),
            alive: Vec::new(),
            taken: HashSet::new(),
            sizes: HashMap::new(),
            small: HashMap::new(),
            transposed: HashMap::new(),
            next: 0,
        };
        for (name, tensor) in weights {
            out.weights.insert(tensor.id(), name);
            out.alive.push(tensor);
        }
        out
    }

    /// A name that no other value has.
    pub(super) fn fresh(&mut self, like: &str) -> String {
        let mut name = like.to_string();
        while name.is_empty() || !self.taken.insert(name.clone()) {
            name = format!("{}_{}", if like.is_empty() { "v" } else { like }, self.next);
            self.next += 1;
        }
        name
    }

    /// Makes a computed tensor known.
    pub(super) fn register(&mut self, tensor: &Tensor, name: &str) {
        let version = self.versions.get(&storage(tensor)).copied().unwrap_or(0);
        self.names.insert(tensor.id(), (name.to_string(), version));
        self.alive.push(tensor.clone());
    }

    /// Makes a tensor known that an op changed in place. Other views of its storage are stale.
    pub(super) fn register_changed(&mut self, tensor: &Tensor, name: &str) {
        *self.versions.entry(storage(tensor)).or_insert(0) += 1;
        self.register(tensor, name);
    }

    pub(super) fn is_weight(&self, tensor: &Tensor) -> bool {
        self.weights.contains_key(&tensor.id())
    }

    /// The name of a computed tensor; `None` for constants.
    pub(super) fn computed(&self, tensor: &Tensor) -> Result<Option<&str>> {
        let version = self.versions.get(&storage(tensor)).copied().unwrap_or(0);
        match self.names.get(&tensor.id()) {
            Some((name, at)) if *at == version => Ok(Some(name)),
            None if version == 0 => Ok(None),
            _ => Err(Error::unsupported(
                "ONNX: a tensor is read after an op changed another view of its memory in place; use the op that \
                 returns a new tensor",
            )),
        }
    }

    /// Forgets copies of constants whose memory changed.
    pub(super) fn forget_constant(&mut self, tensor: &Tensor) {
        let at = storage(tensor);
        let stale: Vec<usize> = self.alive.iter().filter(|t| storage(t) == at).map(Tensor::id).collect();
        stale.iter().for_each(|id| drop(self.constants.remove(id)));
    }

    /// The name of a tensor; a constant becomes a weight of the graph.
    pub(super) fn name(&mut self, all: &[Tensor]) -> Result<String> {
        let first = &all[0];
        if let Some(name) = self.computed(first)? {
            return Ok(name.to_string());
        }
        if let Some(name) = self.constants.get(&first.id()) {
            return Ok(name.clone());
        }
        if all.iter().any(|t| t.shape() != first.shape()) {
            return Err(dynamic("a constant"));
        }
        let known = self.weights.get(&first.id()).cloned().unwrap_or_else(|| "constant".into());
        let name = self.fresh(&known);
        let kept = if self.is_weight(first) { first.detach() } else { first.detach().copy()? };
        self.graph.weights.push((name.clone(), kept));
        self.constants.insert(first.id(), name.clone());
        self.alive.push(first.clone());
        Ok(name)
    }

    fn cached(&mut self, key: String, make: impl FnOnce() -> Result<Tensor>) -> Result<String> {
        if let Some(name) = self.small.get(&key) {
            return Ok(name.clone());
        }
        let name = self.constant(make()?)?;
        self.small.insert(key, name.clone());
        Ok(name)
    }

    /// A constant of the graph.
    pub(super) fn constant(&mut self, tensor: Tensor) -> Result<String> {
        self.name(&[tensor])
    }

    pub(super) fn ints(&mut self, values: &[i64]) -> Result<String> {
        self.cached(format!("{values:?}"), || Tensor::new_with(values, DType::I64))
    }

    pub(super) fn scalar(&mut self, value: Scalar, dtype: DType) -> Result<String> {
        self.cached(format!("{value:?} {dtype}"), || {
            let made = match value {
                Scalar::Float(x) => Tensor::scalar(x)?,
                other => Tensor::scalar(other.to_i64())?,
            };
            made.to_dtype(dtype)
        })
    }

    pub(super) fn float(&mut self, value: f64, dtype: DType) -> Result<String> {
        self.scalar(Scalar::Float(value), dtype)
    }

    /// Adds a node of several outputs.
    pub(super) fn nodes(
        &mut self,
        op: &'static str,
        inputs: &[&str],
        attributes: Vec<(&'static str, Attribute)>,
        outputs: usize,
    ) -> Vec<String> {
        let outputs: Vec<String> = (0..outputs).map(|_| self.fresh("")).collect();
        let inputs = inputs.iter().map(|s| s.to_string()).collect();
        let attributes = attributes.into_iter().map(|(name, value)| (name.into(), value)).collect();
        self.graph.nodes.push(Node { op: op.into(), inputs, outputs: outputs.clone(), attributes });
        outputs
    }

    /// Adds a node of one output.
    pub(super) fn node(
        &mut self,
        op: &'static str,
        inputs: &[&str],
        attributes: Vec<(&'static str, Attribute)>,
    ) -> String {
        self.nodes(op, inputs, attributes, 1).swap_remove(0)
    }

    /// Adds a node without attributes.
    pub(super) fn op(&mut self, op: &'static str, inputs: &[&str]) -> String {
        self.node(op, inputs, Vec::new())
    }

    pub(super) fn cast(&mut self, name: &str, dtype: DType) -> Result<String> {
        Ok(self.node("Cast", &[name], vec![("to", Attribute::Int(number(dtype)?))]))
    }

    /// An operand of a dtype: a tensor, a number or a size.
    pub(super) fn operand(&mut self, value: &Val, dtype: DType) -> Result<String> {
        match value {
            Val::Tensor(all) if all[0].dtype() == dtype => self.name(all),
            // Constants are converted here.
            Val::Tensor(all) if self.computed(&all[0])?.is_none() => self.constant(all[0].detach().to_dtype(dtype)?),
            Val::Tensor(all) => {
                let name = self.name(all)?;
                self.cast(&name, dtype)
            }
            Val::Int(..) => {
                let name = self.size(value)?;
                if dtype == DType::I64 { Ok(name) } else { self.cast(&name, dtype) }
            }
            Val::Plain(IValue::Int(i)) => self.scalar(Scalar::Int(*i), dtype),
            Val::Plain(IValue::Bool(b)) => self.scalar(Scalar::Bool(*b), dtype),
            Val::Plain(IValue::Float(x)) => self.float(*x, dtype),
            other => Err(Error::value(format!("ONNX: an operand is {}", other.on(0).kind()))),
        }
    }

    /// An integer as a tensor without dimensions.
    pub(super) fn size(&mut self, value: &Val) -> Result<String> {
        match value {
            Val::Int(_, Some(name)) => Ok(name.to_string()),
            Val::Int(_, None) => Err(dynamic("an integer")),
            other => self.scalar(Scalar::Int(other.on(0).to_int()?), DType::I64),
        }
    }

    /// Integers as a tensor of one dimension.
    pub(super) fn sizes(&mut self, values: &[Val]) -> Result<String> {
        if !values.iter().any(Val::has_dynamic) {
            let all = values.iter().map(|v| v.on(0).to_int()).collect::<Result<Vec<_>>>()?;
            return self.ints(&all);
        }
        let axis = self.ints(&[0])?;
        let mut parts = Vec::new();
        for value in values {
            parts.push(match value {
                Val::Int(..) => {
                    let name = self.size(value)?;
                    self.op("Unsqueeze", &[&name, &axis])
                }
                other => self.ints(&[other.on(0).to_int()?])?,
            });
        }
        if let [one] = &parts[..] {
            return Ok(one.clone());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.node("Concat", &parts, vec![("axis", Attribute::Int(0))]))
    }

    /// A size of a tensor.
    pub(super) fn size_of(&mut self, all: &Rc<[Tensor]>, dim: usize) -> Result<Val> {
        let sizes: Rc<[i64]> = all.iter().map(|t| t.shape().get(dim).map_or(1, |&n| n as i64)).collect();
        if sizes.iter().all(|&n| n == sizes[0]) {
            return Ok(Val::int(sizes[0]));
        }
        let name = self.name(all)?;
        if let Some(known) = self.sizes.get(&(name.clone(), dim)) {
            return Ok(Val::Int(sizes, Some(known.clone())));
        }
        let shape = self.op("Shape", &[&name]);
        let at = self.scalar(Scalar::Int(dim as i64), DType::I64)?;
        let size: Rc<str> = self.node("Gather", &[&shape, &at], vec![("axis", Attribute::Int(0))]).into();
        self.sizes.insert((name, dim), size.clone());
        Ok(Val::Int(sizes, Some(size)))
    }

    /// All sizes of a tensor.
    pub(super) fn shape_of(&mut self, all: &Rc<[Tensor]>) -> Result<Vec<Val>> {
        (0..all[0].rank()).map(|d| self.size_of(all, d)).collect()
    }

    /// Arithmetic of sizes.
    pub(super) fn arithmetic(&mut self, op: &'static str, operands: &[Val], result: Rc<[i64]>) -> Result<Val> {
        let names = operands.iter().map(|v| self.size(v)).collect::<Result<Vec<_>>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let name = match op {
            "Mod" => self.node(op, &names, vec![("fmod", Attribute::Int(0))]),
            _ => self.op(op, &names),
        };
        Ok(Val::Int(result, Some(name.into())))
    }

    /// The sum or product of sizes.
    pub(super) fn combine(&mut self, op: &'static str, a: &Val, b: &Val) -> Result<Val> {
        let on = |v: &Val| (0..self.examples).map(|e| v.on(e).to_int()).collect::<Result<Vec<_>>>();
        let pairs = on(a)?.into_iter().zip(on(b)?);
        let all: Rc<[i64]> = match op {
            "Add" => pairs.map(|(x, y)| x.saturating_add(y)).collect(),
            "Sub" => pairs.map(|(x, y)| x.saturating_sub(y)).collect(),
            _ => pairs.map(|(x, y)| x.saturating_mul(y)).collect(),
        };
        if !a.has_dynamic() && !b.has_dynamic() {
            return Ok(Val::int(all[0]));
        }
        self.arithmetic(op, &[a.clone(), b.clone()], all)
    }

    /// A matrix with its last two dimensions exchanged. Weights that nothing else reads are stored that way.
    pub(super) fn transpose(&mut self, all: &Rc<[Tensor]>) -> Result<String> {
        let first = &all[0];
        let id = first.id();
        if let Some(name) = self.transposed.get(&id) {
            return Ok(name.clone());
        }
        let is_constant = self.computed(first)?.is_none();
        if is_constant && !self.constants.contains_key(&id) {
            let known = self.weights.get(&id).map_or("constant".into(), |n| format!("{n}.T"));
            let name = self.fresh(&known);
            self.graph.weights.push((name.clone(), first.detach().transpose(-2, -1)?.copy()?));
            self.alive.push(first.clone());
            self.transposed.insert(id, name.clone());
            return Ok(name);
        }
        let name = self.name(all)?;
        let rank = first.rank() as i64;
        let mut order: Vec<i64> = (0..rank).collect();
        order.swap(rank as usize - 1, rank as usize - 2);
        let made = self.node("Transpose", &[&name], vec![("perm", Attribute::Ints(order))]);
        if is_constant {
            self.transposed.insert(id, made.clone());
        }
        Ok(made)
    }
}

/// The dtype in which operands are combined.
pub(super) fn common(operands: &[&Val]) -> DType {
    let args: Vec<Arg<'_>> = operands
        .iter()
        .filter_map(|v| match v {
            Val::Tensor(all) => Some(Arg::Tensor(&all[0])),
            Val::Int(all, _) => Some(Arg::from(all[0])),
            Val::Plain(IValue::Int(i)) => Some(Arg::from(*i)),
            Val::Plain(IValue::Float(x)) => Some(Arg::from(*x)),
            Val::Plain(IValue::Bool(b)) => Some(Arg::from(*b)),
            _ => None,
        })
        .collect();
    result_type(&args)
}
