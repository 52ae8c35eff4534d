//! The interpreter: runs functions over values. It calls the ops of the table and nothing else.

use crate::ivalue::{IValue, Object};
use crate::ops;
use crate::script::Stack;
use crate::script::ast::*;
use crate::unit::Unit;
use rushlight_core::{Error, Result};
use std::sync::Arc;

/// Bytes of stack that a program may use. Threads have 2 MiB or more.
const MAX_STACK: usize = 1 << 20;

/// How a block ended.
enum Flow {
    Next,
    Break,
    Continue,
    Return(IValue),
}

pub(crate) struct Interpreter<'a> {
    pub(crate) unit: &'a Unit,
    /// Counts nested calls and expressions.
    depth: usize,
    stack: Stack,
}

struct Frame<'a> {
    function: &'a Function,
    locals: Vec<Option<IValue>>,
}

impl<'a> Interpreter<'a> {
    pub(crate) fn new(unit: &'a Unit) -> Self {
        Self { unit, depth: 0, stack: Stack::here() }
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.stack.used() > MAX_STACK || self.depth > 10_000 {
            return Err(Error::value("calls of the program are nested too deeply"));
        }
        Ok(())
    }

    /// Calls a function with arguments by position and by name.
    pub(crate) fn function(
        &mut self,
        function: &Function,
        args: Vec<IValue>,
        keywords: Vec<(String, IValue)>,
    ) -> Result<IValue> {
        self.enter()?;
        let mut frame = Frame { function, locals: vec![None; function.locals.len()] };
        if args.len() > function.params.len() {
            return Err(Error::value(format!(
                "{}() takes {} arguments, got {}",
                function.name,
                function.params.len(),
                args.len()
            )));
        }
        for (at, value) in args.into_iter().enumerate() {
            frame.locals[at] = Some(value);
        }
        for (name, value) in keywords {
            let at = function.params.iter().position(|p| p.name == name).filter(|&at| frame.locals[at].is_none());
            let at = at.ok_or_else(|| {
                Error::value(format!("{}() has no argument '{name}', or got it twice", function.name))
            })?;
            frame.locals[at] = Some(value);
        }
        for (at, param) in function.params.iter().enumerate() {
            if frame.locals[at].is_none() {
                let default = param.default.as_ref().ok_or_else(|| {
                    Error::value(format!("{}(): argument '{}' is missing", function.name, param.name))
                })?;
                frame.locals[at] = Some(self.expr(&mut frame, default)?);
            }
        }
        let out = match self.block(&mut frame, &function.body)? {
            Flow::Return(value) => value,
            _ => IValue::None,
        };
        self.depth -= 1;
        Ok(out)
    }

    fn block(&mut self, frame: &mut Frame<'_>, body: &Block) -> Result<Flow> {
        for (stmt, drops) in body {
            match self.statement(frame, stmt)? {
                Flow::Next => drops.iter().for_each(|&slot| frame.locals[slot] = None),
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, frame: &mut Frame<'_>, stmt: &Stmt) -> Result<Flow> {
        match stmt {
            Stmt::Assign(target, value) => {
                let value = self.expr(frame, value)?;
                self.assign(frame, target, value)?;
            }
            Stmt::Expr(value) => drop(self.expr(frame, value)?),
            Stmt::Return(value) => return Ok(Flow::Return(self.expr(frame, value)?)),
            Stmt::Raise(value) => {
                let value = self.expr(frame, value)?;
                return Err(Error::value(format!("the program raised an error: {value}")));
            }
            Stmt::If(condition, then, otherwise) => {
                let taken = if self.expr(frame, condition)?.truth()? { then } else { otherwise };
                self.enter()?;
                let flow = self.block(frame, taken)?;
                self.depth -= 1;
                return Ok(flow);
            }
            Stmt::For(target, over, body) => return self.each(frame, target, over, body),
            Stmt::While(condition, body) => {
                self.enter()?;
                while self.expr(frame, condition)?.truth()? {
                    match self.block(frame, body)? {
                        Flow::Break => break,
                        Flow::Return(value) => return Ok(Flow::Return(value)),
                        _ => {}
                    }
                }
                self.depth -= 1;
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn each(&mut self, frame: &mut Frame<'_>, target: &Target, over: &Expr, body: &Block) -> Result<Flow> {
        self.enter()?;
        let range = match over {
            Expr::Call(call) if matches!(&call.target, Expr::Path(p) if p == "range") => {
                let mut ends = Vec::new();
                for arg in &call.args {
                    ends.push(self.expr(frame, arg)?.to_int()?);
                }
                match ends[..] {
                    [stop] => Some((0, stop, 1)),
                    [start, stop] => Some((start, stop, 1)),
                    [start, stop, step] if step != 0 => Some((start, stop, step)),
                    _ => return Err(Error::value("range() takes one to three integers, the step not zero")),
                }
            }
            _ => None,
        };
        let mut items: Box<dyn Iterator<Item = IValue>> = match range {
            Some((start, stop, step)) => {
                let mut at = start;
                Box::new(std::iter::from_fn(move || {
                    let more = if step > 0 { at < stop } else { at > stop };
                    let now = at;
                    at = at.saturating_add(step);
                    more.then_some(IValue::Int(now))
                }))
            }
            None => Box::new(ops::plain::elements(&self.expr(frame, over)?)?.into_iter()),
        };
        for item in &mut items {
            self.assign(frame, target, item)?;
            match self.block(frame, body)? {
                Flow::Break => break,
                Flow::Return(value) => return Ok(Flow::Return(value)),
                _ => {}
            }
        }
        self.depth -= 1;
        Ok(Flow::Next)
    }

    fn assign(&mut self, frame: &mut Frame<'_>, target: &Target, value: IValue) -> Result<()> {
        match target {
            Target::Local(slot) => frame.locals[*slot] = Some(value),
            Target::Tuple(targets) => {
                let items = match &value {
                    IValue::Object(object) => object.fields().into_iter().map(|(_, v)| v).collect(),
                    other => other.items()?,
                };
                if items.len() != targets.len() {
                    return Err(Error::value(format!("{} values for {} variables", items.len(), targets.len())));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(frame, target, item)?;
                }
            }
            Target::Attribute(object, name) => match self.expr(frame, object)? {
                IValue::Object(object) => object.set(name, value),
                other => return Err(Error::value(format!("{} has no field '{name}' to set", other.kind()))),
            },
            Target::Index(object, index) => {
                let (object, index) = (self.expr(frame, object)?, self.expr(frame, index)?);
                ops::plain::set_item(&object, &index, value)?;
            }
        }
        Ok(())
    }

    fn exprs(&mut self, frame: &mut Frame<'_>, items: &[Expr]) -> Result<Vec<IValue>> {
        items.iter().map(|e| self.expr(frame, e)).collect()
    }

    fn expr(&mut self, frame: &mut Frame<'_>, expr: &Expr) -> Result<IValue> {
        match expr {
            Expr::Literal(value) => return Ok(value.clone()),
            Expr::Local(slot) => return local(frame, *slot),
            _ => {}
        }
        self.enter()?;
        let value = self.compound(frame, expr)?;
        self.depth -= 1;
        Ok(value)
    }

    fn compound(&mut self, frame: &mut Frame<'_>, expr: &Expr) -> Result<IValue> {
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Local(slot) => local(frame, *slot),
            Expr::Path(path) => self.unit.path(path),
            Expr::Attribute(object, name) => {
                let object = self.expr(frame, object)?;
                self.unit.attribute(&object, name)
            }
            Expr::List(items) => Ok(IValue::list(self.exprs(frame, items)?)),
            Expr::Tuple(items) => Ok(IValue::tuple(self.exprs(frame, items)?)),
            Expr::Dict(entries) => {
                let mut out = Vec::new();
                for (k, v) in entries {
                    out.push((self.expr(frame, k)?, self.expr(frame, v)?));
                }
                Ok(IValue::dict(out))
            }
            Expr::Index(object, index) => {
                let (object, index) = (self.expr(frame, object)?, self.expr(frame, index)?);
                ops::plain::get_item(&object, &index)
            }
            Expr::Op(name, operands, site) => {
                let operands = self.exprs(frame, operands)?;
                self.op(site, &format_name(name), operands, Vec::new())
            }
            Expr::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                let taken = if self.expr(frame, condition)?.truth()? { then } else { otherwise };
                self.expr(frame, taken)
            }
            Expr::Logic(and, parts) => {
                let first = self.expr(frame, &parts[0])?;
                if first.truth()? == *and { self.expr(frame, &parts[1]) } else { Ok(first) }
            }
            Expr::Cast(ty, value) => {
                let value = self.expr(frame, value)?;
                match (ty.name.as_str(), &value) {
                    ("int" | "number", IValue::Tensor(t)) if !t.dtype().is_float() => value.to_int().map(IValue::Int),
                    ("float" | "number", IValue::Tensor(_)) => value.to_float().map(IValue::Float),
                    _ => Ok(value),
                }
            }
            Expr::Call(call) => self.call(frame, call),
        }
    }

    fn call(&mut self, frame: &mut Frame<'_>, call: &Call) -> Result<IValue> {
        // A method's object is evaluated before its arguments.
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
            (Expr::Path(path), _) => self.path(call, path, args, keywords),
            (Expr::Attribute(_, name), Some(IValue::Object(object))) => self.method(object, name, args, keywords),
            (Expr::Attribute(_, name), Some(receiver)) => {
                let mut all = vec![receiver];
                all.extend(args);
                self.op(&call.site, &format!("Tensor.{name}"), all, keywords)
            }
            (_, Some(IValue::Function(name))) => self.path(call, &name, args, keywords),
            _ => Err(Error::value("a call of something that is not a function")),
        }
    }

    fn path(&mut self, call: &Call, path: &str, args: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
        let unit = self.unit;
        if let Some(function) = unit.function(path) {
            let function = function.clone();
            return self.function(&function, args, keywords);
        }
        if let Some(class) = unit.class(path) {
            let class = class.clone();
            return self.construct(&class, args, keywords);
        }
        match path {
            "getattr" => match (&args[..], keywords.is_empty()) {
                ([object, IValue::Str(name)], true) => unit.attribute(object, name),
                _ => Err(Error::value("getattr takes an object and a name")),
            },
            "weight" => match &args[..] {
                [IValue::Str(name)] => unit.weight(name),
                _ => Err(Error::value("weight() takes a name")),
            },
            _ => self.op(&call.site, path, args, keywords),
        }
    }

    /// Calls a method of an object.
    pub(crate) fn method(
        &mut self,
        object: Arc<Object>,
        name: &str,
        args: Vec<IValue>,
        keywords: Vec<(String, IValue)>,
    ) -> Result<IValue> {
        let method = self.unit.method(&object.class, name).cloned();
        let method = method.ok_or_else(|| Error::value(format!("class '{}' has no method '{name}'", object.class)))?;
        let mut all = vec![IValue::Object(object)];
        all.extend(args);
        self.function(&method, all, keywords)
    }

    fn construct(&mut self, class: &Class, args: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
        let object = Arc::new(Object::new(class.name.clone(), []));
        if class.base != "NamedTuple" && self.unit.method(&class.name, "__init__").is_some() {
            self.method(object.clone(), "__init__", args, keywords)?;
            return Ok(IValue::Object(object));
        }
        for ((name, _), value) in class.fields.iter().zip(args) {
            object.set(name, value);
        }
        keywords.into_iter().for_each(|(name, value)| object.set(&name, value));
        Ok(IValue::Object(object))
    }

    fn op(&mut self, site: &Site, name: &str, args: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
        let resolved = match site.0.get() {
            Some(resolved) => resolved,
            None => {
                let found = ops::resolve(name)?;
                site.0.get_or_init(|| found)
            }
        };
        resolved.call(args, keywords).map_err(|e| e.within(name))
    }
}

fn format_name(name: &str) -> String {
    format!("torch.{name}")
}

fn local(frame: &Frame<'_>, slot: usize) -> Result<IValue> {
    frame.locals[slot].clone().ok_or_else(|| {
        Error::value(format!(
            "{}: variable '{}' is used before it is set",
            frame.function.name, frame.function.locals[slot]
        ))
    })
}
