//! Runs a program on the examples and builds its graph on the way.

use super::call;
use super::graph::{Exporter, Val, dynamic};
use crate::ivalue::{IValue, Object};
use crate::ops;
use crate::script::Stack;
use crate::script::ast::*;
use crate::unit::Unit;
use rushlight_core::{Error, Result};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of stack that a program may use.
const MAX_STACK: usize = 1 << 20;

enum Flow {
    Next,
    Break,
    Continue,
    Return(Val),
}

pub(super) struct Runner<'a> {
    pub unit: &'a Unit,
    pub out: Exporter,
    stack: Stack,
}

type Locals = Vec<Option<Val>>;

impl<'a> Runner<'a> {
    pub(super) fn new(unit: &'a Unit, out: Exporter) -> Self {
        Self { unit, out, stack: Stack::here() }
    }

    pub(super) fn function(
        &mut self,
        function: &Function,
        args: Vec<Val>,
        keywords: Vec<(String, Val)>,
    ) -> Result<Val> {
        if self.stack.used() > MAX_STACK {
            return Err(Error::value("calls of the program are nested too deeply"));
        }
        let mut locals: Locals = vec![None; function.locals.len()];
        if args.len() > function.params.len() {
            return Err(Error::value(format!("{}() takes {} arguments", function.name, function.params.len())));
        }
        args.into_iter().enumerate().for_each(|(at, value)| locals[at] = Some(value));
        for (name, value) in keywords {
            let at = function.params.iter().position(|p| p.name == name);
            let at = at.ok_or_else(|| Error::value(format!("{}() has no argument '{name}'", function.name)))?;
            locals[at] = Some(value);
        }
        for (at, param) in function.params.iter().enumerate() {
            if locals[at].is_none() {
                let default = param.default.as_ref();
                let default = default.ok_or_else(|| Error::value(format!("argument '{}' is missing", param.name)))?;
                locals[at] = Some(self.expr(&mut locals, default)?);
            }
        }
        Ok(match self.block(&mut locals, &function.body)? {
            Flow::Return(value) => value,
            _ => Val::Plain(IValue::None),
        })
    }

    fn block(&mut self, locals: &mut Locals, body: &Block) -> Result<Flow> {
        for (stmt, drops) in body {
            match self.statement(locals, stmt)? {
                Flow::Next => drops.iter().for_each(|&slot| locals[slot] = None),
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// A condition, which must be the same on all examples.
    fn truth(&mut self, locals: &mut Locals, condition: &Expr) -> Result<bool> {
        let value = self.expr(locals, condition)?;
        if let Val::Tensor(all) = &value
            && self.out.computed(&all[0])?.is_some()
        {
            return Err(Error::unsupported("ONNX: a branch on the value of a tensor; use torch.where"));
        }
        let first = value.on(0).truth()?;
        for example in 1..self.out.examples {
            if value.on(example).truth()? != first {
                return Err(dynamic("a branch of the program"));
            }
        }
        Ok(first)
    }

    fn statement(&mut self, locals: &mut Locals, stmt: &Stmt) -> Result<Flow> {
        match stmt {
            Stmt::Assign(target, value) => {
                let value = self.expr(locals, value)?;
                self.assign(locals, target, value)?;
            }
            Stmt::Expr(value) => drop(self.expr(locals, value)?),
            Stmt::Return(value) => return Ok(Flow::Return(self.expr(locals, value)?)),
            Stmt::Raise(value) => {
                let value = self.expr(locals, value)?;
                return Err(Error::value(format!("the program raised an error: {}", value.on(0))));
            }
            Stmt::If(condition, then, otherwise) => {
                let taken = if self.truth(locals, condition)? { then } else { otherwise };
                return self.block(locals, taken);
            }
            Stmt::For(target, over, body) => {
                for item in self.iterate(locals, over)? {
                    self.assign(locals, target, item)?;
                    match self.block(locals, body)? {
                        Flow::Break => break,
                        Flow::Return(value) => return Ok(Flow::Return(value)),
                        _ => {}
                    }
                }
            }
            Stmt::While(condition, body) => {
                while self.truth(locals, condition)? {
                    match self.block(locals, body)? {
                        Flow::Break => break,
                        Flow::Return(value) => return Ok(Flow::Return(value)),
                        _ => {}
                    }
                }
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn iterate(&mut self, locals: &mut Locals, over: &Expr) -> Result<Vec<Val>> {
        if let Expr::Call(call) = over
            && matches!(&call.target, Expr::Path(p) if p == "range")
        {
            let ends = self.exprs(locals, &call.args)?;
            if ends.iter().any(Val::has_dynamic) {
                return Err(dynamic("the length of a loop"));
            }
            let ends = ends.iter().map(|v| v.on(0).to_int()).collect::<Result<Vec<_>>>()?;
            let (start, stop, step) = match ends[..] {
                [stop] => (0, stop, 1),
                [start, stop] => (start, stop, 1),
                [start, stop, step] if step > 0 => (start, stop, step),
                _ => return Err(Error::unsupported("ONNX: a loop over this range")),
            };
            return Ok((start..stop).step_by(step as usize).map(Val::int).collect());
        }
        let value = self.expr(locals, over)?;
        match value.items() {
            Some(items) => Ok(items),
            None if matches!(value, Val::Plain(_)) => {
                Ok(ops::plain::elements(&value.on(0))?.into_iter().map(Val::Plain).collect())
            }
            None => Err(Error::unsupported("ONNX: a loop over the rows of a tensor; use unbind")),
        }
    }

    fn assign(&mut self, locals: &mut Locals, target: &Target, value: Val) -> Result<()> {
        match target {
            Target::Local(slot) => locals[*slot] = Some(value),
            Target::Tuple(targets) => {
                let items = value.items().unwrap_or_default();
                if items.len() != targets.len() {
                    return Err(Error::value(format!("{} values for {} variables", items.len(), targets.len())));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(locals, target, item)?;
                }
            }
            Target::Attribute(..) => return Err(Error::unsupported("ONNX: a program that sets fields of modules")),
            Target::Index(..) => return Err(Error::unsupported("ONNX: a program that sets elements of lists")),
        }
        Ok(())
    }

    fn exprs(&mut self, locals: &mut Locals, items: &[Expr]) -> Result<Vec<Val>> {
        items.iter().map(|e| self.expr(locals, e)).collect()
    }

    fn expr(&mut self, locals: &mut Locals, expr: &Expr) -> Result<Val> {
        Ok(match expr {
            Expr::Literal(value) => Val::Plain(value.clone()),
            Expr::Local(slot) => {
                locals[*slot].clone().ok_or_else(|| Error::value("a variable is used before it is set"))?
            }
            Expr::Path(path) => self.constant(self.unit.path(path)?),
            Expr::Attribute(object, name) => {
                let object = self.expr(locals, object)?;
                self.attribute(&object, name)?
            }
            Expr::List(items) => Val::list(self.exprs(locals, items)?),
            Expr::Tuple(items) => Val::Tuple(self.exprs(locals, items)?.into()),
            // Outputs of a graph have an order and no keys.
            Expr::Dict(entries) => {
                let values = entries.iter().map(|(_, value)| self.expr(locals, value));
                Val::Tuple(values.collect::<Result<_>>()?)
            }
            Expr::Index(object, index) => {
                let (object, index) = (self.expr(locals, object)?, self.expr(locals, index)?);
                self.index(&object, &index)?
            }
            Expr::Op(name, operands, _) => {
                let operands = self.exprs(locals, operands)?;
                call::call(&mut self.out, &format!("torch.{name}"), operands, Vec::new())?
            }
            Expr::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                let taken = if self.truth(locals, condition)? { then } else { otherwise };
                self.expr(locals, taken)?
            }
            Expr::Logic(and, parts) => {
                let first = self.truth(locals, &parts[0])?;
                if first == *and { self.expr(locals, &parts[1])? } else { Val::Plain(IValue::Bool(first)) }
            }
            Expr::Cast(_, value) => self.expr(locals, value)?,
            Expr::Call(call) => self.call(locals, call)?,
        })
    }

    /// A value of the archive, the same on all examples.
    fn constant(&self, value: IValue) -> Val {
        match &value {
            IValue::Tensor(t) => Val::Tensor(std::iter::repeat_n(t.clone(), self.out.examples).collect()),
            IValue::List(_) | IValue::Tuple(_) => {
                let items: Vec<Val> = value.items().unwrap_or_default().into_iter().map(|v| self.constant(v)).collect();
                if let IValue::List(_) = value { Val::list(items) } else { Val::Tuple(items.into()) }
            }
            _ => Val::Plain(value),
        }
    }

    fn attribute(&mut self, object: &Val, name: &str) -> Result<Val> {
        match (object, name) {
            (Val::Tensor(all), "shape") => Ok(Val::list(self.out.shape_of(all)?)),
            (Val::Tensor(_), "T" | "mT") => {
                let dims = vec![object.clone(), Val::int(-2), Val::int(-1)];
                call::call(&mut self.out, "torch.transpose", dims, Vec::new())
            }
            (Val::Tensor(all), _) => self.unit.attribute(&IValue::Tensor(all[0].clone()), name).map(Val::Plain),
            _ => Ok(self.constant(self.unit.attribute(&object.on(0), name)?)),
        }
    }

    fn index(&mut self, object: &Val, index: &Val) -> Result<Val> {
        match object.items() {
            Some(items) => {
                if index.has_dynamic() {
                    return Err(dynamic("the index of a list"));
                }
                let at = index.on(0).to_int()?;
                let at = if at < 0 { at + items.len() as i64 } else { at };
                let found = usize::try_from(at).ok().and_then(|at| items.get(at)).cloned();
                found.ok_or_else(|| Error::value("an index is out of range"))
            }
            None => match object {
                Val::Tensor(_) => {
                    let args = vec![object.clone(), Val::int(0), index.clone()];
                    call::call(&mut self.out, "torch.select", args, Vec::new())
                }
                _ => Ok(self.constant(ops::plain::get_item(&object.on(0), &index.on(0))?)),
            },
        }
    }

    fn call(&mut self, locals: &mut Locals, call: &Call) -> Result<Val> {
        let receiver = match &call.target {
            Expr::Attribute(object, _) => Some(self.expr(locals, object)?),
            Expr::Local(_) => Some(self.expr(locals, &call.target)?),
            _ => None,
        };
        let args = self.exprs(locals, &call.args)?;
        let mut keywords = Vec::new();
        for (name, value) in &call.keywords {
            keywords.push((name.clone(), self.expr(locals, value)?));
        }
        match (&call.target, receiver) {
            (Expr::Path(path), _) => self.path(path, args, keywords),
            (Expr::Attribute(_, name), Some(Val::Plain(IValue::Object(object)))) => {
                self.method(object, name, args, keywords)
            }
            (Expr::Attribute(_, name), Some(receiver)) => {
                let all = std::iter::once(receiver).chain(args).collect();
                call::call(&mut self.out, &format!("Tensor.{name}"), all, keywords)
            }
            (_, Some(Val::Plain(IValue::Function(name)))) => self.path(&name, args, keywords),
            _ => Err(Error::value("a call of something that is not a function")),
        }
    }

    pub(super) fn method(
        &mut self,
        object: Arc<Object>,
        name: &str,
        args: Vec<Val>,
        keywords: Vec<(String, Val)>,
    ) -> Result<Val> {
        let method = self.unit.method(&object.class, name).cloned();
        let method = method.ok_or_else(|| Error::value(format!("class '{}' has no method '{name}'", object.class)))?;
        let all = std::iter::once(Val::Plain(IValue::Object(object))).chain(args).collect();
        self.function(&method, all, keywords)
    }

    fn path(&mut self, path: &str, args: Vec<Val>, keywords: Vec<(String, Val)>) -> Result<Val> {
        if let Some(function) = self.unit.function(path).cloned() {
            return self.function(&function, args, keywords);
        }
        if self.unit.class(path).is_some() {
            return Err(Error::unsupported(format!("ONNX: an object of class '{path}'; return a tuple")));
        }
        match (path, &args[..]) {
            ("getattr", [object, Val::Plain(IValue::Str(name))]) => self.attribute(&object.clone(), &name.clone()),
            ("weight", [Val::Plain(IValue::Str(name))]) => Ok(self.constant(self.unit.weight(name)?)),
            ("torch.append", [Val::List(items), item]) => {
                items.borrow_mut().push(item.clone());
                Ok(Val::Plain(IValue::None))
            }
            _ => call::call(&mut self.out, path, args, keywords),
        }
    }
}

/// A value on all examples.
pub(super) fn input(all: &[IValue]) -> Result<Val> {
    match all.first() {
        Some(IValue::Tensor(_)) => Ok(Val::Tensor(all.iter().map(IValue::to_tensor).collect::<Result<Rc<[_]>>>()?)),
        Some(other) => Ok(Val::Plain(other.clone())),
        None => Err(Error::value("an export needs example inputs")),
    }
}
