//! Expressions, by precedence.

use super::{MAX_DEPTH, Parser};
use crate::IValue;
use crate::script::ast::*;
use crate::script::lex::Token;
use rushlight_core::Result;

impl Parser {
    /// An expression, or several that make a tuple.
    pub(super) fn expr_list(&mut self) -> Result<Expr> {
        let first = self.expr()?;
        if !self.is(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.accept(",") {
            if matches!(self.peek(), Token::Newline) {
                break;
            }
            all.push(self.expr()?);
        }
        Ok(Expr::Tuple(all))
    }

    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.enter()?;
        let value = self.binary(0)?;
        let value = if self.accept_word("if") {
            let condition = self.binary(0)?;
            if !self.accept_word("else") {
                return Err(self.error("'if' in an expression without 'else'"));
            }
            let otherwise = self.expr()?;
            Expr::Choice(Box::new([condition, value, otherwise]))
        } else {
            value
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Infix operators by precedence.
    fn binary(&mut self, level: usize) -> Result<Expr> {
        const LEVELS: &[&[(&str, &str)]] = &[
            &[("or", "or")],
            &[("and", "and")],
            &[],
            &[
                ("==", "eq"),
                ("!=", "ne"),
                ("<=", "le"),
                (">=", "ge"),
                ("<", "lt"),
                (">", "gt"),
                ("is", "__is__"),
                ("in", "__contains__"),
                ("not", "__not_in__"),
            ],
            &[("|", "__or__")],
            &[("^", "__xor__")],
            &[("&", "__and__")],
            &[("<<", "__lshift__"), (">>", "__rshift__")],
            &[("+", "add"), ("-", "sub")],
            &[("*", "mul"), ("//", "floordiv"), ("/", "div"), ("%", "remainder"), ("@", "matmul")],
        ];
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        if level == 2 {
            if self.accept_word("not") {
                self.enter()?;
                let value = self.binary(2)?;
                self.depth -= 1;
                return Ok(Expr::Op("__not__", vec![value], Site::default()));
            }
            return self.binary(3);
        }
        let mut left = self.binary(level + 1)?;
        loop {
            let found = operators.iter().find(|(sign, _)| match sign.as_bytes()[0] {
                b'a'..=b'z' => self.is_word(sign),
                _ => self.is(sign),
            });
            let Some(&(sign, op)) = found else { return Ok(left) };
            self.at += 1;
            let mut name = op;
            match sign {
                "is" if self.accept_word("not") => name = "__isnot__",
                "not" if !self.accept_word("in") => return Err(self.error("'not' where an operator should be")),
                _ => {}
            }
            let right = self.binary(level + 1)?;
            left = match name {
                "or" | "and" => Expr::Logic(name == "and", Box::new([left, right])),
                "__contains__" | "__not_in__" => {
                    let found = Expr::Op("__contains__", vec![right, left], Site::default());
                    if name == "__contains__" { found } else { Expr::Op("__not__", vec![found], Site::default()) }
                }
                _ => Expr::Op(name, vec![left, right], Site::default()),
            };
        }
    }

    fn unary(&mut self) -> Result<Expr> {
        let op = match self.peek() {
            Token::Sign("-") => "neg",
            Token::Sign("~") => "bitwise_not",
            Token::Sign("+") => {
                self.at += 1;
                return self.unary();
            }
            _ => return self.power(),
        };
        self.at += 1;
        self.enter()?;
        let value = self.unary()?;
        self.depth -= 1;
        Ok(match value {
            Expr::Literal(IValue::Int(i)) if op == "neg" => Expr::Literal(IValue::Int(i.wrapping_neg())),
            Expr::Literal(IValue::Float(x)) if op == "neg" => Expr::Literal(IValue::Float(-x)),
            value => Expr::Op(op, vec![value], Site::default()),
        })
    }

    fn power(&mut self) -> Result<Expr> {
        let base = self.postfix()?;
        if self.accept("**") {
            self.enter()?;
            let exponent = self.unary()?;
            self.depth -= 1;
            return Ok(Expr::Op("pow", vec![base, exponent], Site::default()));
        }
        Ok(base)
    }

    fn postfix(&mut self) -> Result<Expr> {
        let mut value = self.atom()?;
        let mut links = 0;
        loop {
            links += 1;
            if links > MAX_DEPTH {
                return Err(self.error("an expression is too long"));
            }
            if self.accept(".") {
                let name = self.name()?;
                value = match value {
                    Expr::Path(path) => Expr::Path(format!("{path}.{name}")),
                    value => Expr::Attribute(Box::new(value), name),
                };
            } else if self.accept("[") {
                let index = self.expr_in_index()?;
                value = Expr::Index(Box::new(value), Box::new(index));
            } else if self.accept("(") {
                value = self.call(value)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// An index, up to the bracket.
    fn expr_in_index(&mut self) -> Result<Expr> {
        let index = self.expr()?;
        self.expect("]")?;
        Ok(index)
    }

    fn call(&mut self, target: Expr) -> Result<Expr> {
        if let Expr::Path(path) = &target {
            match path.as_str() {
                "annotate" | "unchecked_cast" => {
                    let ty = self.ty()?;
                    self.expect(",")?;
                    let value = self.expr()?;
                    self.accept(",");
                    self.expect(")")?;
                    return Ok(Expr::Cast(ty, Box::new(value)));
                }
                "uninitialized" => {
                    self.ty()?;
                    self.accept(",");
                    self.expect(")")?;
                    return Ok(Expr::Literal(IValue::None));
                }
                _ => {}
            }
        }
        let (mut args, mut keywords) = (Vec::new(), Vec::new());
        while !self.accept(")") {
            let named = match (self.peek(), self.tokens.get(self.at + 1)) {
                (Token::Name(name), Some((Token::Sign("="), _))) => Some(name.clone()),
                _ => None,
            };
            match named {
                Some(name) => {
                    self.at += 2;
                    keywords.push((name, self.expr()?));
                }
                None if keywords.is_empty() => args.push(self.expr()?),
                None => return Err(self.error("a positional argument after a keyword")),
            }
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(Expr::Call(Box::new(Call { target, args, keywords, site: Site::default() })))
    }

    fn items(&mut self, close: &str) -> Result<(Vec<Expr>, bool)> {
        let (mut out, mut comma) = (Vec::new(), false);
        while !self.accept(close) {
            out.push(self.expr()?);
            comma = self.accept(",");
            if !comma {
                self.expect(close)?;
                break;
            }
        }
        Ok((out, comma))
    }

    fn atom(&mut self) -> Result<Expr> {
        Ok(match self.next() {
            Token::Int(i) => Expr::Literal(IValue::Int(i)),
            Token::Float(x) => Expr::Literal(IValue::Float(x)),
            Token::Str(text) => Expr::Literal(IValue::from(text.as_str())),
            Token::Sign("(") => {
                let (mut items, comma) = self.items(")")?;
                match items.len() {
                    1 if !comma => items.swap_remove(0),
                    _ => Expr::Tuple(items),
                }
            }
            Token::Sign("[") => Expr::List(self.items("]")?.0),
            Token::Sign("{") => {
                let mut entries = Vec::new();
                while !self.accept("}") {
                    let key = self.expr()?;
                    self.expect(":")?;
                    entries.push((key, self.expr()?));
                    if !self.accept(",") {
                        self.expect("}")?;
                        break;
                    }
                }
                Expr::Dict(entries)
            }
            Token::Name(name) => match name.as_str() {
                "None" => Expr::Literal(IValue::None),
                "True" => Expr::Literal(IValue::Bool(true)),
                "False" => Expr::Literal(IValue::Bool(false)),
                "inf" | "infinity" => Expr::Literal(IValue::Float(f64::INFINITY)),
                "nan" => Expr::Literal(IValue::Float(f64::NAN)),
                _ => match self.scope.as_ref().and_then(|s| s.names.get(&name)) {
                    Some(&slot) => Expr::Local(slot),
                    None => Expr::Path(name),
                },
            },
            other => return Err(self.unexpected(&other)),
        })
    }
}
