//! A module's method as one function: calls of methods and functions are put in their places, fields become constants
//! and weights, branches on constants are decided and loops of known length unrolled.
//!
//! What depends on the inputs stays: each op is a line, a branch an `if` whose sides set the same variables. A program
//! with a loop of unknown length, an object of its own or a changed field has no such form.

mod values;

use crate::ivalue::{IValue, Object};
use crate::model::{Model, quoted};
use crate::ops::{self, plain};
use crate::script::Stack;
use crate::script::ast::*;
use rushlight_tensor::state::StateDict;
use std::collections::HashMap;
use std::sync::Arc;
use values::{Value, asks_for_shape, has_tensors};
pub(crate) use values::{changes_containers, is_in_place, is_kept};

/// Most lines of a function, and bytes of stack.
const MAX_LINES: usize = 200_000;
const MAX_STACK: usize = 1 << 20;

/// How a block ended.
enum Flow {
    Next,
    Break,
    Continue,
    Return(Value),
    /// With an error.
    Raise,
}

/// The variables of a function that is being read.
struct Frame {
    locals: Vec<Option<Value>>,
}

struct Inliner<'a> {
    model: &'a Model,
    /// Lines of the block being written, each with its indentation.
    lines: Vec<String>,
    indent: usize,
    variables: usize,
    prefix: String,
    weights: StateDict,
    names: HashMap<usize, String>,
    /// Lists that are assigned become variables: some of them are changed.
    keeps_lists: bool,
    /// A list that was not kept is changed.
    changes_list: bool,
    stack: Stack,
}

/// The model's `forward` as the only function of a model of its own, if it has that form.
pub(crate) fn flat(model: &Model) -> Option<Model> {
    for keeps_lists in [false, true] {
        let mut inliner = Inliner::new(model, keeps_lists);
        if let Some(text) = inliner.run() {
            return Model::from_text(&text, inliner.weights).ok();
        }
        if !inliner.changes_list {
            break;
        }
    }
    rushlight_core::info!("freeze: the program is left as it is: it has loops of unknown length or objects of its own");
    None
}

impl<'a> Inliner<'a> {
    fn new(model: &'a Model, keeps_lists: bool) -> Self {
        Self {
            model,
            lines: Vec::new(),
            indent: 1,
            variables: 0,
            prefix: "v".into(),
            weights: StateDict::new(),
            names: model.unit.weights.iter().map(|(n, t)| (t.id(), n.clone())).collect(),
            keeps_lists,
            changes_list: false,
            stack: Stack::here(),
        }
    }

    fn run(&mut self) -> Option<String> {
        let function = self.model.entry("forward").ok()?.clone();
        let own = usize::from(self.model.root.is_some());
        let params = function.params.get(own..)?;
        while params.iter().any(|p| p.name.starts_with(&self.prefix)) {
            self.prefix.push('_');
        }
        let mut locals: Vec<Option<Value>> = vec![None; function.locals.len()];
        let mut heads = Vec::new();
        if let Some(root) = &self.model.root {
            locals[0] = Some(Value::Known(IValue::Object(root.clone())));
        }
        for (at, param) in params.iter().enumerate() {
            let ty = param.ty.as_ref();
            let may_be_none = ty.is_none_or(|t| t.name == "Optional" || t.name == "Union" || t.name == "NoneType");
            locals[own + at] = Some(Value::Variable(param.name.clone(), may_be_none));
            let default = match &param.default {
                Some(e) => {
                    let value = self.model.unit.literal(e).ok()?;
                    format!("={}", self.text(&Value::Known(value))?)
                }
                None => String::new(),
            };
            heads.push(format!("{}{}{default}", param.name, crate::freeze::typed(&param.ty)));
        }
        let mut frame = Frame { locals };
        let value = match self.block(&mut frame, &function.body)? {
            Flow::Return(value) => value,
            Flow::Next => Value::none(),
            _ => return None,
        };
        let value = self.text(&value)?;
        self.line(format!("return {value}"))?;
        Some(format!("def forward({}):\n{}", heads.join(", "), self.lines.concat()))
    }

    fn line(&mut self, text: String) -> Option<()> {
        self.lines.push(format!("{}{text}\n", "  ".repeat(self.indent)));
        (self.lines.len() <= MAX_LINES).then_some(())
    }

    fn fresh(&mut self) -> String {
        self.variables += 1;
        format!("{}{}", self.prefix, self.variables)
    }

    /// A line that sets a variable.
    fn emit(&mut self, text: String) -> Option<Value> {
        let name = self.fresh();
        self.line(format!("{name} = {text}"))?;
        Some(Value::Variable(name, false))
    }

    fn text(&mut self, value: &Value) -> Option<String> {
        let all = |this: &mut Self, items: &[Value]| items.iter().map(|v| this.text(v)).collect::<Option<Vec<_>>>();
        Some(match value {
            Value::Known(value) => self.literal(value)?,
            Value::Variable(name, _) => name.clone(),
            Value::Tuple(items) => format!("({},)", all(self, items)?.join(", ")),
            Value::List(items) => format!("[{}]", all(self, items)?.join(", ")),
        })
    }

    /// A known value as text; there is none for objects.
    fn literal(&mut self, value: &IValue) -> Option<String> {
        let all = |this: &mut Self| value.items().ok()?.iter().map(|v| this.literal(v)).collect::<Option<Vec<_>>>();
        Some(match value {
            IValue::Tensor(t) => {
                let name = match self.names.get(&t.id()) {
                    Some(name) => name.clone(),
                    None => {
                        let name = format!("constant.{}", self.names.len());
                        self.names.insert(t.id(), name.clone());
                        name
                    }
                };
                let text = format!("weight({})", quoted(&name));
                self.weights.insert(name, t.clone());
                text
            }
            IValue::Str(s) => quoted(s),
            IValue::Float(x) if x.is_nan() => "nan".into(),
            IValue::Float(x) if x.is_infinite() => if *x > 0.0 { "inf" } else { "-inf" }.into(),
            IValue::None | IValue::Bool(_) | IValue::Int(_) | IValue::Float(_) | IValue::DType(_) => value.to_string(),
            IValue::Device(d) => format!("torch.device({})", quoted(&d.to_string())),
            IValue::List(_) => format!("[{}]", all(self)?.join(", ")),
            IValue::Tuple(items) if items.is_empty() => return None,
            IValue::Tuple(_) => format!("({},)", all(self)?.join(", ")),
            IValue::Dict(entries) => {
                let entries = rushlight_core::sync::lock(entries).clone();
                let pair = |(k, v): &(IValue, IValue)| Some(format!("{}: {}", self.literal(k)?, self.literal(v)?));
                format!("{{{}}}", entries.iter().map(pair).collect::<Option<Vec<_>>>()?.join(", "))
            }
            IValue::Object(_) | IValue::Function(_) => return None,
        })
    }

    fn block(&mut self, frame: &mut Frame, body: &Block) -> Option<Flow> {
        for (stmt, drops) in body {
            match self.statement(frame, stmt, drops)? {
                Flow::Next => drops.iter().for_each(|&slot| frame.locals[slot] = None),
                flow => return Some(flow),
            }
        }
        Some(Flow::Next)
    }

    fn statement(&mut self, frame: &mut Frame, stmt: &Stmt, drops: &[usize]) -> Option<Flow> {
        if self.stack.used() > MAX_STACK {
            return None;
        }
        match stmt {
            Stmt::Assign(target, value) => {
                let value = self.expr(frame, value)?;
                self.assign(frame, target, value)?;
            }
            Stmt::Expr(value) => {
                self.expr(frame, value)?;
                // What follows an error that is certain does not run.
                if matches!(value, Expr::Call(call) if is_raise(call)) {
                    return Some(Flow::Raise);
                }
            }
            Stmt::Return(value) => return Some(Flow::Return(self.expr(frame, value)?)),
            Stmt::Raise(value) => {
                let value = self.expr(frame, value)?;
                let text = self.text(&value)?;
                self.line(format!("raise {text}"))?;
                return Some(Flow::Raise);
            }
            Stmt::If(condition, then, otherwise) => {
                let condition = self.expr(frame, condition)?;
                return match condition {
                    Value::Known(known) => {
                        if has_tensors(&known) {
                            return None;
                        }
                        self.block(frame, if known.truth().ok()? { then } else { otherwise })
                    }
                    condition => {
                        let condition = self.text(&condition)?;
                        self.branch(
                            frame,
                            &condition,
                            &mut |this, frame| this.block(frame, then),
                            &mut |this, frame| this.block(frame, otherwise),
                            drops,
                        )
                    }
                };
            }
            Stmt::For(target, over, body) => {
                let items = self.items(frame, over)?;
                for item in items {
                    self.assign(frame, target, item)?;
                    match self.block(frame, body)? {
                        Flow::Next | Flow::Continue => {}
                        Flow::Break => break,
                        flow => return Some(flow),
                    }
                }
            }
            Stmt::While(condition, body) => loop {
                match self.expr(frame, condition)? {
                    Value::Known(known) if !has_tensors(&known) => {
                        if !known.truth().ok()? {
                            break;
                        }
                    }
                    _ => return None,
                }
                // Every turn counts: an endless loop has no lines.
                self.variables += 1;
                if self.variables > MAX_LINES {
                    return None;
                }
                match self.block(frame, body)? {
                    Flow::Next | Flow::Continue => {}
                    Flow::Break => break,
                    flow => return Some(flow),
                }
            },
            Stmt::Break => return Some(Flow::Break),
            Stmt::Continue => return Some(Flow::Continue),
        }
        Some(Flow::Next)
    }

    /// The elements that a loop visits, if they are known to be there.
    fn items(&mut self, frame: &mut Frame, over: &Expr) -> Option<Vec<Value>> {
        if let Expr::Call(call) = over
            && matches!(&call.target, Expr::Path(p) if p == "range")
        {
            let mut ends = Vec::new();
            for arg in &call.args {
                let Value::Known(end) = self.expr(frame, arg)? else { return None };
                ends.push(end.to_int().ok()?);
            }
            let (start, stop, step) = match ends[..] {
                [stop] => (0, stop, 1),
                [start, stop] => (start, stop, 1),
                [start, stop, step] if step > 0 => (start, stop, step),
                _ => return None,
            };
            let count = (stop.saturating_sub(start).max(0) as u64).div_ceil(step as u64);
            let known = |i: u64| Value::Known(IValue::Int(start + i as i64 * step));
            return (count <= MAX_LINES as u64).then(|| (0..count).map(known).collect());
        }
        match self.expr(frame, over)? {
            Value::Tuple(items) | Value::List(items) => Some(items),
            Value::Known(value) if !matches!(value, IValue::Tensor(_)) => {
                Some(plain::elements(&value).ok()?.into_iter().map(Value::Known).collect())
            }
            _ => None,
        }
    }

    /// An `if` that stays: each side in turn, and for variables that they set to different values, a new one.
    fn branch(
        &mut self,
        frame: &mut Frame,
        condition: &str,
        then: &mut dyn FnMut(&mut Self, &mut Frame) -> Option<Flow>,
        otherwise: &mut dyn FnMut(&mut Self, &mut Frame) -> Option<Flow>,
        drops: &[usize],
    ) -> Option<Flow> {
        let before = frame.locals.clone();
        let outside = std::mem::take(&mut self.lines);
        self.indent += 1;
        let side = |this: &mut Self, frame: &mut Frame, run: &mut dyn FnMut(&mut Self, &mut Frame) -> _| {
            let raises = match run(this, frame)? {
                Flow::Next => false,
                Flow::Raise => true,
                _ => return None,
            };
            Some((std::mem::take(&mut this.lines), raises))
        };
        let (mut first, first_raises) = side(self, frame, then)?;
        let after_first = std::mem::replace(&mut frame.locals, before);
        let (mut second, second_raises) = side(self, frame, otherwise)?;
        let after_second = std::mem::take(&mut frame.locals);
        frame.locals = match (first_raises, second_raises) {
            (true, _) => after_second,
            (false, true) => after_first,
            (false, false) => {
                let mut merged = Vec::new();
                for (slot, both) in after_first.into_iter().zip(after_second).enumerate() {
                    merged.push(match both {
                        (Some(a), Some(b)) if a.is_same(&b) => Some(a),
                        (Some(a), Some(b)) if !drops.contains(&slot) => {
                            let name = self.fresh();
                            let mut may_be_none = false;
                            for (value, lines) in [(a, &mut first), (b, &mut second)] {
                                may_be_none |= match &value {
                                    Value::Variable(_, may_be_none) => *may_be_none,
                                    Value::Known(known) => matches!(known, IValue::None),
                                    _ => false,
                                };
                                let text = self.text(&value)?;
                                self.line(format!("{name} = {text}"))?;
                                lines.append(&mut self.lines);
                            }
                            Some(Value::Variable(name, may_be_none))
                        }
                        _ => None,
                    });
                }
                merged
            }
        };
        self.indent -= 1;
        self.lines = outside;
        if !first.is_empty() || !second.is_empty() {
            let nothing = format!("{}pass\n", "  ".repeat(self.indent + 1));
            self.line(format!("if {condition}:"))?;
            if first.is_empty() {
                first.push(nothing);
            }
            self.lines.append(&mut first);
            if !second.is_empty() {
                self.line("else:".into())?;
                self.lines.append(&mut second);
            }
        }
        Some(if first_raises && second_raises { Flow::Raise } else { Flow::Next })
    }

    fn assign(&mut self, frame: &mut Frame, target: &Target, value: Value) -> Option<()> {
        match target {
            Target::Local(slot) => {
                let is_list = matches!(value, Value::List(_) | Value::Known(IValue::List(_) | IValue::Dict(_)));
                let value = match is_list && self.keeps_lists {
                    true => {
                        let text = self.text(&value)?;
                        self.emit(text)?
                    }
                    false => value,
                };
                frame.locals[*slot] = Some(value);
            }
            Target::Tuple(targets) => {
                let items = match value {
                    Value::Tuple(items) | Value::List(items) => items,
                    Value::Known(known) if !matches!(known, IValue::Tensor(_) | IValue::Object(_)) => {
                        known.items().ok()?.into_iter().map(Value::Known).collect()
                    }
                    Value::Variable(name, _) => {
                        let parts: Vec<String> = targets.iter().map(|_| self.fresh()).collect();
                        self.line(format!("{}, = {name}", parts.join(", ")))?;
                        parts.into_iter().map(|part| Value::Variable(part, true)).collect()
                    }
                    _ => return None,
                };
                if items.len() != targets.len() {
                    return None;
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(frame, target, item)?;
                }
            }
            Target::Attribute(..) | Target::Index(..) => return None,
        }
        Some(())
    }

    fn exprs(&mut self, frame: &mut Frame, items: &[Expr]) -> Option<Vec<Value>> {
        items.iter().map(|e| self.expr(frame, e)).collect()
    }

    fn expr(&mut self, frame: &mut Frame, expr: &Expr) -> Option<Value> {
        let known = |items: &[Value]| {
            let one = |v: &Value| if let Value::Known(v) = v { Some(v.clone()) } else { None };
            items.iter().map(one).collect::<Option<Vec<_>>>()
        };
        Some(match expr {
            Expr::Literal(value) => Value::Known(value.clone()),
            Expr::Local(slot) => frame.locals[*slot].clone()?,
            Expr::Path(path) => Value::Known(self.model.unit.path(path).ok()?),
            Expr::Attribute(object, name) => match self.expr(frame, object)? {
                Value::Known(object) => Value::Known(self.model.unit.attribute(&object, name).ok()?),
                object => {
                    let object = self.text(&object)?;
                    self.emit(format!("({object}).{name}"))?
                }
            },
            Expr::List(items) => {
                let items = self.exprs(frame, items)?;
                match known(&items) {
                    Some(items) => Value::Known(IValue::list(items)),
                    None => Value::List(items),
                }
            }
            Expr::Tuple(items) => {
                let items = self.exprs(frame, items)?;
                match known(&items) {
                    Some(items) => Value::Known(IValue::tuple(items)),
                    None => Value::Tuple(items),
                }
            }
            Expr::Dict(entries) => {
                let mut parts = Vec::new();
                for (k, v) in entries {
                    parts.push((self.expr(frame, k)?, self.expr(frame, v)?));
                }
                let (keys, values): (Vec<Value>, Vec<Value>) = parts.into_iter().unzip();
                match (known(&keys), known(&values)) {
                    (Some(keys), Some(values)) => {
                        Value::Known(IValue::dict(keys.into_iter().zip(values).collect::<Vec<_>>()))
                    }
                    _ => {
                        let pair = |(k, v): (&Value, &Value)| Some(format!("{}: {}", self.text(k)?, self.text(v)?));
                        let pairs = keys.iter().zip(&values).map(pair).collect::<Option<Vec<_>>>()?;
                        self.emit(format!("{{{}}}", pairs.join(", ")))?
                    }
                }
            }
            Expr::Index(object, index) => {
                let (object, index) = (self.expr(frame, object)?, self.expr(frame, index)?);
                self.index(object, index)?
            }
            Expr::Op(name, operands, _) => {
                let operands = self.exprs(frame, operands)?;
                self.op(&format!("torch.{name}"), operands, Vec::new())?
            }
            Expr::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                let condition = self.expr(frame, condition)?;
                self.choice(frame, condition, [Some(then), Some(otherwise)])?
            }
            Expr::Logic(and, parts) => {
                let first = self.expr(frame, &parts[0])?;
                let sides = if *and { [Some(&parts[1]), None] } else { [None, Some(&parts[1])] };
                self.choice(frame, first, sides)?
            }
            Expr::Cast(ty, value) => {
                let value = self.expr(frame, value)?;
                let number = matches!(ty.name.as_str(), "int" | "float" | "number");
                match &value {
                    Value::Variable(name, _) if number => self.emit(format!("annotate({}, {name})", ty.name))?,
                    Value::Variable(name, _) if ty.name != "Optional" => Value::Variable(name.clone(), false),
                    Value::Known(IValue::Tensor(_)) if number => return None,
                    _ => value,
                }
            }
            Expr::Call(call) => self.call(frame, call)?,
        })
    }

    /// One of two expressions; the condition itself where there is none.
    fn choice(&mut self, frame: &mut Frame, condition: Value, sides: [Option<&Expr>; 2]) -> Option<Value> {
        if let Value::Known(known) = &condition {
            if has_tensors(known) {
                return None;
            }
            return match sides[usize::from(!known.truth().ok()?)] {
                Some(side) => self.expr(frame, side),
                None => Some(condition),
            };
        }
        let (text, name) = (self.text(&condition)?, self.fresh());
        let side = |at: usize| {
            let (name, condition) = (name.clone(), condition.clone());
            move |this: &mut Self, frame: &mut Frame| {
                let value = match sides[at] {
                    Some(side) => this.expr(frame, side)?,
                    None => condition.clone(),
                };
                let text = this.text(&value)?;
                this.line(format!("{name} = {text}"))?;
                Some(Flow::Next)
            }
        };
        let (mut then, mut otherwise) = (side(0), side(1));
        match self.branch(frame, &text, &mut then, &mut otherwise, &[])? {
            Flow::Next => Some(Value::Variable(name, true)),
            _ => None,
        }
    }

    fn index(&mut self, object: Value, index: Value) -> Option<Value> {
        match (&object, &index) {
            (Value::Known(object), Value::Known(index)) if !matches!(object, IValue::Tensor(_)) => {
                return Some(Value::Known(plain::get_item(object, index).ok()?));
            }
            (Value::Tuple(items) | Value::List(items), Value::Known(index)) => {
                let at = index.to_int().ok()?;
                let at = if at < 0 { at + items.len() as i64 } else { at };
                return items.get(usize::try_from(at).ok()?).cloned();
            }
            _ => {}
        }
        let (object, index) = (self.text(&object)?, self.text(&index)?);
        let Value::Variable(name, _) = self.emit(format!("({object})[{index}]"))? else { return None };
        Some(Value::Variable(name, true))
    }

    fn call(&mut self, frame: &mut Frame, call: &Call) -> Option<Value> {
        let receiver = match &call.target {
            Expr::Attribute(object, _) => Some(self.expr(frame, object)?),
            Expr::Local(_) => Some(self.expr(frame, &call.target)?),
            _ => None,
        };
        let args = self.exprs(frame, &call.args)?;
        let mut keywords = Vec::new();
        for (name, value) in &call.keywords {
            keywords.push((name.clone(), self.expr(frame, value)?));
        }
        match (&call.target, receiver) {
            (Expr::Path(path), _) => self.path(path, args, keywords),
            (Expr::Attribute(_, name), Some(Value::Known(IValue::Object(object)))) => {
                self.method(object, name, args, keywords)
            }
            (Expr::Attribute(_, name), Some(receiver)) => {
                let all = std::iter::once(receiver).chain(args).collect();
                self.op(&format!("Tensor.{name}"), all, keywords)
            }
            (_, Some(Value::Known(IValue::Function(name)))) => self.path(&name, args, keywords),
            _ => None,
        }
    }

    fn path(&mut self, path: &str, args: Vec<Value>, keywords: Vec<(String, Value)>) -> Option<Value> {
        let model = self.model;
        if let Some(function) = model.unit.function(path) {
            return self.function(function, args, keywords);
        }
        match (path, &args[..]) {
            _ if model.unit.class(path).is_some() => None,
            ("getattr", [Value::Known(object), Value::Known(IValue::Str(name))]) => {
                Some(Value::Known(model.unit.attribute(object, name).ok()?))
            }
            ("weight", [Value::Known(IValue::Str(name))]) => Some(Value::Known(model.unit.weight(name).ok()?)),
            ("getattr" | "weight", _) => None,
            _ => self.op(path, args, keywords),
        }
    }

    fn method(
        &mut self,
        object: Arc<Object>,
        name: &str,
        args: Vec<Value>,
        keywords: Vec<(String, Value)>,
    ) -> Option<Value> {
        let method = self.model.unit.method(&object.class, name)?.clone();
        let all = std::iter::once(Value::Known(IValue::Object(object))).chain(args).collect();
        self.function(&method, all, keywords)
    }

    fn function(&mut self, function: &Function, args: Vec<Value>, keywords: Vec<(String, Value)>) -> Option<Value> {
        if args.len() > function.params.len() || self.stack.used() > MAX_STACK {
            return None;
        }
        let mut frame = Frame { locals: vec![None; function.locals.len()] };
        for (at, value) in args.into_iter().enumerate() {
            self.assign(&mut frame, &Target::Local(at), value)?;
        }
        for (name, value) in keywords {
            let at = function.params.iter().position(|p| p.name == name)?;
            self.assign(&mut frame, &Target::Local(at), value)?;
        }
        for (at, param) in function.params.iter().enumerate() {
            if frame.locals[at].is_none() {
                let value = self.expr(&mut frame, param.default.as_ref()?)?;
                self.assign(&mut frame, &Target::Local(at), value)?;
            }
        }
        let value = match self.block(&mut frame, &function.body)? {
            Flow::Return(value) => value,
            Flow::Next => Value::none(),
            _ => return None,
        };
        Some(value)
    }

    /// A call of an op: its value if that is known, a line otherwise.
    fn op(&mut self, path: &str, args: Vec<Value>, keywords: Vec<(String, Value)>) -> Option<Value> {
        if changes_containers(path) && !matches!(args.first(), Some(Value::Variable(..))) {
            self.changes_list = true;
            return None;
        }
        if let (true, [Value::Variable(_, false), Value::Known(IValue::None)]) = (keywords.is_empty(), &args[..]) {
            match path {
                "torch.__is__" => return Some(Value::Known(IValue::Bool(false))),
                "torch.__isnot__" => return Some(Value::Known(IValue::Bool(true))),
                _ => {}
            }
        }
        if let (true, [Value::Tuple(items) | Value::List(items)]) = (path.ends_with("len"), &args[..]) {
            return Some(Value::Known(IValue::Int(items.len() as i64)));
        }
        let known: Option<Vec<IValue>> =
            args.iter().map(|v| if let Value::Known(v) = v { Some(v.clone()) } else { None }).collect();
        let named: Option<Vec<(String, IValue)>> = keywords
            .iter()
            .map(|(n, v)| if let Value::Known(v) = v { Some((n.clone(), v.clone())) } else { None })
            .collect();
        if let (Some(known), Some(named), false) = (known, named, is_kept(path)) {
            let reads = known.iter().chain(named.iter().map(|(_, v)| v)).any(has_tensors);
            if !reads || asks_for_shape(path) {
                let value = ops::resolve(path).ok()?.call(known, named).ok()?;
                if !has_tensors(&value) {
                    return Some(Value::Known(value));
                }
            }
        }
        let mut parts = args.iter().map(|v| self.text(v)).collect::<Option<Vec<_>>>()?;
        for (name, value) in &keywords {
            parts.push(format!("{name}={}", self.text(value)?));
        }
        let text = format!("{path}({})", parts.join(", "));
        if path.ends_with(".RaiseException") {
            self.line(text)?;
            return Some(Value::none());
        }
        self.emit(text)
    }
}

fn is_raise(call: &Call) -> bool {
    matches!(&call.target, Expr::Path(path) if path.ends_with(".RaiseException"))
}
