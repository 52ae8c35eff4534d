//! From tokens to functions and classes.

mod expressions;

use super::Stack;
use super::ast::*;
use super::lex::{Token, tokens};
use crate::IValue;
use rushlight_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Most nested expressions, and bytes of stack: a recursive reader must not overflow it.
const MAX_DEPTH: usize = 200;
const MAX_STACK: usize = 1 << 20;

/// What a text defines.
#[derive(Default)]
pub struct Definitions {
    /// Functions outside of classes.
    pub functions: Vec<Arc<Function>>,
    /// Classes.
    pub classes: Vec<Arc<Class>>,
}

/// Parses a text whose definitions belong to a namespace, such as `__torch__.torch.nn`; empty for none.
pub fn parse(text: &str, namespace: &str) -> Result<Definitions> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, scope: None, depth: 0, stack: Stack::here() };
    let mut out = Definitions::default();
    let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}.") };
    loop {
        match parser.next() {
            Token::End => return Ok(out),
            Token::Newline => {}
            Token::Name(word) if word == "def" => out.functions.push(Arc::new(parser.function(&prefix)?)),
            Token::Name(word) if word == "class" => out.classes.push(Arc::new(parser.class(&prefix)?)),
            Token::Name(word) if word == "import" || word == "from" => parser.skip_line(),
            other => return Err(parser.unexpected(&other)),
        }
    }
}

/// Parses one expression without variables.
pub fn expression(text: &str) -> Result<Expr> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, scope: None, depth: 0, stack: Stack::here() };
    parser.expr()
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, usize>,
    locals: Vec<String>,
}

impl Scope {
    fn slot(&mut self, name: &str) -> usize {
        if let Some(&slot) = self.names.get(name) {
            return slot;
        }
        self.locals.push(name.to_string());
        self.names.insert(name.to_string(), self.locals.len() - 1);
        self.locals.len() - 1
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    /// Variables of the function being read.
    scope: Option<Scope>,
    depth: usize,
    stack: Stack,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(t, _)| t)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at.saturating_sub(1)).map_or(0, |(_, line)| *line)
    }

    fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::value(format!("line {}: {what}", self.line()))
    }

    fn unexpected(&self, token: &Token) -> Error {
        let shown = match token {
            Token::Name(s) | Token::Str(s) => format!("'{}'", s.chars().take(40).collect::<String>()),
            Token::Int(i) => i.to_string(),
            Token::Float(x) => x.to_string(),
            Token::Sign(s) => format!("'{s}'"),
            other => format!("{other:?}").to_lowercase(),
        };
        self.error(format_args!("unexpected {shown}"))
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(s) if *s == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(s) if s == word)
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.at += usize::from(found);
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        match self.next() {
            Token::Sign(s) if s == sign => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn name(&mut self) -> Result<String> {
        match self.next() {
            Token::Name(name) => Ok(name),
            other => Err(self.unexpected(&other)),
        }
    }

    fn newline(&mut self) -> Result<()> {
        match self.next() {
            Token::Newline => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), Token::Newline | Token::End) {}
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH || self.stack.used() > MAX_STACK {
            Err(self.error("expressions are nested too deeply"))
        } else {
            Ok(())
        }
    }

    fn ty(&mut self) -> Result<Type> {
        self.enter()?;
        let mut name = match self.next() {
            Token::Name(name) => name,
            Token::Str(name) => name,
            Token::Int(i) => i.to_string(),
            Token::Sign("[") => {
                self.depth -= 1;
                return Ok(Type { name: String::new(), args: Some(self.types("]")?) });
            }
            other => return Err(self.unexpected(&other)),
        };
        while self.accept(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        let args = match self.is("[") {
            true => {
                self.at += 1;
                Some(self.types("]")?)
            }
            false => None,
        };
        self.depth -= 1;
        Ok(Type { name, args })
    }

    fn types(&mut self, close: &str) -> Result<Vec<Type>> {
        let mut out = Vec::new();
        while !self.accept(close) {
            if self.accept("(") {
                out.extend(self.types(")")?);
            } else {
                out.push(self.ty()?);
            }
            if !self.accept(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(out)
    }

    fn function(&mut self, prefix: &str) -> Result<Function> {
        let name = format!("{prefix}{}", self.name()?);
        let outer = self.scope.replace(Scope::default());
        self.expect("(")?;
        let mut params = Vec::new();
        while !self.accept(")") {
            if self.accept("*") {
                self.accept(",");
                continue;
            }
            let name = self.name()?;
            let ty = if self.accept(":") { Some(self.ty()?) } else { None };
            let default = if self.accept("=") { Some(self.expr()?) } else { None };
            if self.scope.as_ref().is_some_and(|s| s.names.contains_key(&name)) {
                return Err(self.error(format_args!("two parameters are named '{name}'")));
            }
            self.slot(&name);
            params.push(Param { name, ty, default });
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        let returns = if self.accept("->") { Some(self.ty()?) } else { None };
        self.expect(":")?;
        let mut body = self.block()?;
        let scope = std::mem::replace(&mut self.scope, outer).unwrap_or_default();
        super::lifetimes::mark(&mut body, scope.locals.len());
        Ok(Function { name, params, returns, locals: scope.locals, body })
    }

    fn slot(&mut self, name: &str) -> usize {
        self.scope.get_or_insert_default().slot(name)
    }

    fn class(&mut self, prefix: &str) -> Result<Class> {
        let mut class = Class { name: format!("{prefix}{}", self.name()?), ..Class::default() };
        if self.accept("(") {
            class.base = self.ty()?.name;
            self.expect(")")?;
        }
        self.expect(":")?;
        self.newline()?;
        if !matches!(self.next(), Token::Indent) {
            return Err(self.error("a class without a body"));
        }
        loop {
            match self.next() {
                Token::Dedent => return Ok(class),
                Token::Newline => {}
                Token::Name(word) if word == "pass" => {}
                Token::Name(word) if word == "def" => {
                    let prefix = format!("{}.", class.name);
                    class.methods.push(Arc::new(self.function(&prefix)?));
                }
                Token::Name(word) if word == "__parameters__" => class.parameters = self.names()?,
                Token::Name(word) if word == "__buffers__" => class.buffers = self.names()?,
                Token::Name(word) if word.starts_with("__") && !self.is(":") => self.skip_annotation(&mut class)?,
                Token::Name(name) => {
                    self.expect(":")?;
                    let ty = self.ty()?;
                    if self.accept("=") {
                        let value = self.expr()?;
                        class.constants.push((name, value));
                    } else {
                        class.fields.push((name, ty));
                    }
                    self.newline()?;
                }
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// `__annotations__["0"] = type`, for fields whose names are not Python names.
    fn skip_annotation(&mut self, class: &mut Class) -> Result<()> {
        if self.accept("[") {
            let Token::Str(name) = self.next() else { return Err(self.error("a field without a name")) };
            self.expect("]")?;
            self.expect("=")?;
            let ty = self.ty()?;
            class.fields.push((name, ty));
            return self.newline();
        }
        self.skip_line();
        Ok(())
    }

    /// `= ["a", "b", ]`.
    fn names(&mut self) -> Result<Vec<String>> {
        self.expect("=")?;
        self.expect("[")?;
        let mut out = Vec::new();
        while !self.accept("]") {
            match self.next() {
                Token::Str(name) => out.push(name),
                other => return Err(self.unexpected(&other)),
            }
            self.accept(",");
        }
        Ok(out)
    }

    fn block(&mut self) -> Result<Block> {
        let mut out = Vec::new();
        if !matches!(self.peek(), Token::Newline) {
            self.statement(&mut out)?;
            return Ok(out);
        }
        self.newline()?;
        match self.next() {
            Token::Indent => {}
            other => return Err(self.unexpected(&other)),
        }
        self.enter()?;
        while !matches!(self.peek(), Token::Dedent | Token::End) {
            self.statement(&mut out)?;
        }
        self.next();
        self.depth -= 1;
        Ok(out)
    }

    fn statement(&mut self, out: &mut Block) -> Result<()> {
        let stmt = match self.peek() {
            Token::Newline => {
                self.at += 1;
                return Ok(());
            }
            Token::Name(word) => match word.as_str() {
                "if" => {
                    self.at += 1;
                    self.condition()?
                }
                "for" => {
                    self.at += 1;
                    let target = self.targets()?;
                    if !self.accept_word("in") {
                        return Err(self.error("'for' without 'in'"));
                    }
                    let over = self.expr()?;
                    self.expect(":")?;
                    Stmt::For(target, over, self.block()?)
                }
                "while" => {
                    self.at += 1;
                    let condition = self.expr()?;
                    self.expect(":")?;
                    Stmt::While(condition, self.block()?)
                }
                "pass" => {
                    self.at += 1;
                    return self.newline();
                }
                "break" | "continue" => {
                    let stmt = if word == "break" { Stmt::Break } else { Stmt::Continue };
                    self.at += 1;
                    self.newline()?;
                    stmt
                }
                "return" => {
                    self.at += 1;
                    let value = match self.peek() {
                        Token::Newline => Expr::Literal(IValue::None),
                        _ => self.expr_list()?,
                    };
                    self.newline()?;
                    Stmt::Return(value)
                }
                "raise" => {
                    self.at += 1;
                    let value = self.expr()?;
                    self.newline()?;
                    Stmt::Raise(value)
                }
                "assert" => {
                    self.at += 1;
                    let condition = self.expr()?;
                    let message = if self.accept(",") {
                        self.expr()?
                    } else {
                        Expr::Literal(IValue::from("an assertion failed"))
                    };
                    self.newline()?;
                    Stmt::If(condition, Vec::new(), vec![(Stmt::Raise(message), Vec::new())])
                }
                "with" | "def" | "class" | "import" | "from" | "lambda" | "yield" | "async" | "try" | "global" => {
                    let message = format!("'{word}' is not supported in a program");
                    return Err(self.error(message));
                }
                _ => self.assignment()?,
            },
            _ => self.assignment()?,
        };
        out.push((stmt, Vec::new()));
        Ok(())
    }

    fn condition(&mut self) -> Result<Stmt> {
        self.enter()?;
        let condition = self.expr()?;
        self.expect(":")?;
        let then = self.block()?;
        let otherwise = if self.accept_word("elif") {
            vec![(self.condition()?, Vec::new())]
        } else if self.accept_word("else") {
            self.expect(":")?;
            self.block()?
        } else {
            Vec::new()
        };
        self.depth -= 1;
        Ok(Stmt::If(condition, then, otherwise))
    }

    /// An assignment, or an expression for its effect. A target is read again as an expression's pieces.
    fn assignment(&mut self) -> Result<Stmt> {
        let start = self.at;
        if let Some(target) = self.try_targets() {
            let value = self.expr_list()?;
            self.newline()?;
            return Ok(Stmt::Assign(target, value));
        }
        self.at = start;
        let left = self.expr()?;
        let stmt = match self.peek() {
            Token::Sign("=") => {
                self.at += 1;
                let value = self.expr_list()?;
                match left {
                    Expr::Attribute(object, name) => Stmt::Assign(Target::Attribute(*object, name), value),
                    Expr::Index(object, index) => Stmt::Assign(Target::Index(*object, *index), value),
                    _ => return Err(self.error("an assignment to something that is not a variable")),
                }
            }
            _ => Stmt::Expr(left),
        };
        self.newline()?;
        Ok(stmt)
    }

    /// `a`, `a : type`, `a, b,` or `(a, b)` followed by `=`.
    fn try_targets(&mut self) -> Option<Target> {
        let start = self.at;
        let known = self.scope.as_ref().map_or(0, |s| s.locals.len());
        let mut found = self.targets().ok();
        if found.is_some() && self.accept(":") {
            found = found.filter(|_| self.ty().is_ok());
        }
        if found.is_some() && self.accept("=") {
            return found;
        }
        // Forget names that were no targets.
        if let Some(scope) = &mut self.scope {
            for name in scope.locals.drain(known..) {
                scope.names.remove(&name);
            }
        }
        self.at = start;
        None
    }

    fn targets(&mut self) -> Result<Target> {
        let first = self.target()?;
        if !self.is(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.accept(",") {
            if matches!(self.peek(), Token::Name(n) if n != "in") || self.is("(") {
                all.push(self.target()?);
            } else {
                break;
            }
        }
        Ok(Target::Tuple(all))
    }

    fn target(&mut self) -> Result<Target> {
        if self.accept("(") {
            self.enter()?;
            let inner = self.targets()?;
            self.expect(")")?;
            self.depth -= 1;
            return Ok(inner);
        }
        let name = self.name()?;
        if self.is(".") || self.is("[") || self.is("(") {
            return Err(self.error("not a variable"));
        }
        Ok(Target::Local(self.slot(&name)))
    }
}
