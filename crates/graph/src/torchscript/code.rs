//! A function as a method's text in TorchScript's language.

use super::types::{Ty, shown};
use super::{Tree, refused};
use crate::ivalue::IValue;
use crate::model::{Model, quoted};
use crate::script::ast::*;
use rushlight_core::Result;

/// An expression's text, type, and value if it is a literal; the parts of a list or tuple that is written out.
#[derive(Clone)]
pub(super) struct Piece {
    pub text: String,
    pub ty: Ty,
    pub value: Option<IValue>,
    pub items: Option<Vec<Piece>>,
}

impl Piece {
    pub(super) fn new(text: impl Into<String>, ty: Ty) -> Self {
        Self { text: text.into(), ty, value: None, items: None }
    }

    pub(super) fn literal(value: IValue) -> Result<Self> {
        let text = match &value {
            IValue::None => "None".to_string(),
            IValue::Bool(b) => if *b { "True" } else { "False" }.to_string(),
            IValue::Int(i) => i.to_string(),
            IValue::Float(x) => float(*x),
            IValue::Str(s) => quoted(s),
            IValue::DType(d) => crate::dtype::number(*d).to_string(),
            IValue::Device(d) => format!("torch.device({})", quoted(&d.to_string())),
            other => return Err(refused(&format!("{} as a constant", other.kind()))),
        };
        Ok(Self { text, ty: Ty::of(&value), value: Some(value), items: None })
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self.value, Some(IValue::None))
    }
}

/// A float as code has it.
pub(super) fn float(x: f64) -> String {
    match x {
        _ if x.is_nan() => "float(\"nan\")".to_string(),
        _ if x.is_infinite() => format!("float(\"{}inf\")", if x < 0.0 { "-" } else { "" }),
        _ => format!("{x:?}"),
    }
}

pub(super) struct Code<'a> {
    pub(super) model: &'a Model,
    tree: &'a Tree,
    /// Names and types of the variables.
    locals: Vec<(String, Ty)>,
    lines: String,
    indent: usize,
}

impl<'a> Code<'a> {
    pub(super) fn new(model: &'a Model, tree: &'a Tree) -> Self {
        Self { model, tree, locals: Vec::new(), lines: String::new(), indent: 2 }
    }

    /// The method `forward`.
    pub(super) fn function(mut self, function: &Function) -> Result<String> {
        let variable = |name: &String| if name == "self" { "self_".to_string() } else { name.clone() };
        self.locals = function.locals.iter().map(|name| (variable(name), Ty::Tensor)).collect();
        let mut head = format!("  def forward(self: {}", self.tree.class);
        for (at, param) in function.params.iter().enumerate() {
            let ty = Ty::written(param.ty.as_ref());
            head.push_str(&format!(
                ",\n    {}: {}",
                self.locals[at].0,
                param.ty.as_ref().map_or("Tensor".into(), shown)
            ));
            if let Some(default) = &param.default {
                head.push_str(&format!("={}", self.expression(default)?.text));
            }
            self.locals[at].1 = ty;
        }
        head.push_str("):\n");
        self.block(&function.body)?;
        Ok(head + &self.lines)
    }

    fn line(&mut self, text: &str) {
        self.lines.push_str(&format!("{}{text}\n", "  ".repeat(self.indent)));
    }

    fn block(&mut self, block: &Block) -> Result<()> {
        if block.is_empty() {
            self.line("pass");
        }
        block.iter().try_for_each(|(statement, _)| self.statement(statement))
    }

    fn inner(&mut self, block: &Block) -> Result<()> {
        self.indent += 1;
        let done = self.block(block);
        self.indent -= 1;
        done
    }

    fn statement(&mut self, statement: &Stmt) -> Result<()> {
        match statement {
            Stmt::Assign(target, value) => {
                let value = self.expression(value)?;
                let left = self.target(target, &value)?;
                self.line(&format!("{left} = {}", value.text));
            }
            Stmt::Expr(value) => {
                let value = self.expression(value)?.text;
                self.line(&value);
            }
            Stmt::If(condition, then, otherwise) => {
                let condition = self.expression(condition)?.text;
                self.line(&format!("if bool({condition}):"));
                self.inner(then)?;
                if !otherwise.is_empty() {
                    self.line("else:");
                    self.inner(otherwise)?;
                }
            }
            Stmt::For(target, iterable, body) => {
                let over = self.expression(iterable)?;
                let element = Piece::new("", over.ty.element(None));
                let left = self.target(target, &element)?;
                self.line(&format!("for {left} in {}:", over.text));
                self.inner(body)?;
            }
            Stmt::While(condition, body) => {
                let condition = self.expression(condition)?.text;
                self.line(&format!("while bool({condition}):"));
                self.inner(body)?;
            }
            Stmt::Return(value) => {
                let value = self.expression(value)?.text;
                self.line(&format!("return {value}"));
            }
            Stmt::Raise(_) => self.line("ops.prim.RaiseException(\"the program raised an error\")"),
            Stmt::Break => self.line("break"),
            Stmt::Continue => self.line("continue"),
        }
        Ok(())
    }

    /// The left side of an assignment.
    fn target(&mut self, target: &Target, value: &Piece) -> Result<String> {
        Ok(match target {
            Target::Local(at) => {
                self.locals[*at].1 = value.ty.clone();
                self.locals[*at].0.clone()
            }
            Target::Tuple(targets) => {
                let mut parts = Vec::new();
                for (at, target) in targets.iter().enumerate() {
                    let part = match value.items.as_ref().and_then(|items| items.get(at)) {
                        Some(item) => Piece::new("", item.ty.clone()),
                        None => Piece::new("", value.ty.element(Some(at))),
                    };
                    parts.push(self.target(target, &part)? + ", ");
                }
                parts.concat().trim_end().to_string()
            }
            Target::Index(list, at) => format!("{}[{}]", self.expression(list)?.text, self.expression(at)?.text),
            Target::Attribute(..) => return Err(refused("a program that changes fields of objects")),
        })
    }

    /// Expressions separated by commas.
    fn all(&mut self, items: &[Expr]) -> Result<Vec<Piece>> {
        items.iter().map(|item| self.expression(item)).collect()
    }

    pub(super) fn expression(&mut self, expression: &Expr) -> Result<Piece> {
        Ok(match expression {
            Expr::Literal(value) => Piece::literal(value.clone())?,
            Expr::Local(at) => Piece::new(self.locals[*at].0.clone(), self.locals[*at].1.clone()),
            Expr::Path(path) => Piece::literal(self.model.unit.path(path)?)?,
            Expr::Attribute(object, name) => {
                let object = self.expression(object)?;
                match (&object.ty, name.as_str()) {
                    (Ty::Tensor, "shape") => Piece::new(format!("torch.size({})", object.text), Ty::list(Ty::Int)),
                    (Ty::Tensor, "dtype") => Piece::new(format!("ops.prim.dtype({})", object.text), Ty::Int),
                    (Ty::Tensor, "device") => Piece::new(format!("ops.prim.device({})", object.text), Ty::Device),
                    (Ty::Tensor, "ndim") => Piece::new(format!("torch.dim({})", object.text), Ty::Int),
                    (Ty::Tensor, "T" | "mT") => {
                        Piece::new(format!("torch.transpose({}, -2, -1)", object.text), Ty::Tensor)
                    }
                    _ => return Err(refused(&format!("the attribute '{name}'"))),
                }
            }
            Expr::List(items) => {
                let items = self.all(items)?;
                let texts: Vec<&str> = items.iter().map(|p| p.text.as_str()).collect();
                let inner = items.first().map_or(Ty::Tensor, |p| p.ty.clone());
                Piece { items: Some(items.clone()), ..Piece::new(format!("[{}]", texts.join(", ")), Ty::list(inner)) }
            }
            Expr::Tuple(items) => {
                let items = self.all(items)?;
                let texts: String = items.iter().map(|p| format!("{}, ", p.text)).collect();
                let text = match items.len() {
                    1 => format!("({})", texts.trim_end()),
                    _ => format!("({})", texts.trim_end_matches(", ")),
                };
                let ty = Ty::Tuple(items.iter().map(|p| p.ty.clone()).collect());
                Piece { items: Some(items), ..Piece::new(text, ty) }
            }
            Expr::Dict(entries) => {
                let mut parts = Vec::new();
                for (key, value) in entries {
                    parts.push(format!("{}: {}", self.expression(key)?.text, self.expression(value)?.text));
                }
                Piece::new(format!("{{{}}}", parts.join(", ")), Ty::Dict)
            }
            Expr::Index(value, at) => {
                let (value, at) = (self.expression(value)?, self.expression(at)?);
                let index = at.value.as_ref().and_then(|v| v.to_int().ok()).and_then(|i| usize::try_from(i).ok());
                match value.ty {
                    Ty::Tensor => Piece::new(format!("torch.select({}, 0, {})", value.text, at.text), Ty::Tensor),
                    _ => Piece::new(format!("{}[{}]", value.text, at.text), value.ty.element(index)),
                }
            }
            Expr::Op(name, operands, _) => {
                let operands = self.all(operands)?;
                infix(name, &operands)?
            }
            Expr::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                let (then, otherwise) = (self.expression(then)?, self.expression(otherwise)?);
                let condition = self.expression(condition)?.text;
                Piece::new(format!("({} if bool({condition}) else {})", then.text, otherwise.text), then.ty)
            }
            Expr::Logic(and, parts) => {
                let [left, right] = &**parts;
                let (left, right) = (self.expression(left)?.text, self.expression(right)?.text);
                let word = if *and { "and" } else { "or" };
                Piece::new(format!("(bool({left}) {word} bool({right}))"), Ty::Bool)
            }
            Expr::Cast(ty, value) => {
                let value = self.expression(value)?;
                Piece {
                    ty: Ty::written(Some(ty)),
                    ..Piece::new(format!("annotate({}, {})", shown(ty), value.text), Ty::Tensor)
                }
            }
            Expr::Call(call) => self.call(call)?,
        })
    }

    fn call(&mut self, call: &Call) -> Result<Piece> {
        let Expr::Path(path) = &call.target else {
            return Err(refused("a call of a method of an object"));
        };
        if let ("weight", [Expr::Literal(IValue::Str(name))]) = (path.as_str(), &call.args[..]) {
            return Ok(Piece::new(self.tree.weight(name), Ty::Tensor));
        }
        let args = self.all(&call.args)?;
        let mut keywords = Vec::new();
        for (name, value) in &call.keywords {
            keywords.push((name.clone(), self.expression(value)?));
        }
        super::call::call(path, &args, &keywords).map_err(|e| e.within(path))
    }
}

/// An infix operator.
fn infix(name: &str, operands: &[Piece]) -> Result<Piece> {
    let sign = match name {
        "add" => "+",
        "sub" => "-",
        "mul" => "*",
        "div" => "/",
        "floordiv" | "floor_divide" => "//",
        "remainder" => "%",
        "pow" => "**",
        "matmul" => "@",
        "eq" => "==",
        "ne" => "!=",
        "lt" => "<",
        "le" => "<=",
        "gt" => ">",
        "ge" => ">=",
        "__and__" => "&",
        "__or__" => "|",
        "__xor__" => "^",
        "__contains__" => "in",
        "__is__" => "is",
        "__isnot__" => "is not",
        "neg" | "__not__" | "bitwise_not" => "",
        _ => return Err(refused(&format!("the operator '{name}'"))),
    };
    let is_tensor = operands.iter().any(|p| p.ty == Ty::Tensor);
    Ok(match operands {
        [value] => {
            let sign = match name {
                "neg" => "-",
                "__not__" => "not ",
                _ => "~",
            };
            Piece::new(format!("({sign}{})", value.text), if name == "__not__" { Ty::Bool } else { value.ty.clone() })
        }
        [left, right] => {
            let ty = match name {
                "__contains__" | "__is__" | "__isnot__" => Ty::Bool,
                _ if is_tensor => Ty::Tensor,
                "eq" | "ne" | "lt" | "le" | "gt" | "ge" => Ty::Bool,
                "div" => Ty::Float,
                _ if left.ty == Ty::Float || right.ty == Ty::Float => Ty::Float,
                _ => left.ty.clone(),
            };
            // A list's `in` has its operands the other way round.
            let (left, right) = if name == "__contains__" { (right, left) } else { (left, right) };
            Piece::new(format!("({} {sign} {})", left.text, right.text), ty)
        }
        _ => return Err(refused(&format!("the operator '{name}'"))),
    })
}
