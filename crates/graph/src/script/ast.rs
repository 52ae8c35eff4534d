//! The language of programs: the subset of Python that TorchScript archives and `.rlm` files are written in.

use crate::IValue;
use crate::ops::Resolved;
use std::sync::{Arc, OnceLock};

/// A type as written, such as `Tensor`, `List[int]` or `float32[batch, 3]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// The name with its dots.
    pub name: String,
    /// What stands in brackets.
    pub args: Option<Vec<Type>>,
}

/// An expression.
pub enum Expr {
    /// A literal.
    Literal(IValue),
    /// A variable, by its number in the function.
    Local(usize),
    /// A name that is not a variable: `torch.add`, `__torch__.f`, `CONSTANTS.c0`.
    Path(String),
    /// `object.name`.
    Attribute(Box<Expr>, String),
    /// `[a, b]`.
    List(Vec<Expr>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `{a: b}`.
    Dict(Vec<(Expr, Expr)>),
    /// `value[index]`.
    Index(Box<Expr>, Box<Expr>),
    /// An infix operator as the op of its name: `a + b` is `add`.
    Op(&'static str, Vec<Expr>, Site),
    /// `a if condition else b`.
    Choice(Box<[Expr; 3]>),
    /// `and` or `or`: the second operand runs only if it decides.
    Logic(bool, Box<[Expr; 2]>),
    /// A call.
    Call(Box<Call>),
    /// `annotate(type, value)` and `unchecked_cast`.
    Cast(Type, Box<Expr>),
}

/// A call: its function, arguments, keywords.
pub struct Call {
    /// What is called.
    pub target: Expr,
    /// Positional arguments.
    pub args: Vec<Expr>,
    /// Keyword arguments.
    pub keywords: Vec<(String, Expr)>,
    /// The op it resolved to.
    pub site: Site,
}

/// The op of a call, found when it first runs.
#[derive(Default)]
pub struct Site(pub(crate) OnceLock<Resolved>);

/// The left side of an assignment.
pub enum Target {
    /// One variable.
    Local(usize),
    /// Several, which take a tuple apart.
    Tuple(Vec<Target>),
    /// A field.
    Attribute(Expr, String),
    /// An element.
    Index(Expr, Expr),
}

/// A statement.
pub enum Stmt {
    /// `target = value`.
    Assign(Target, Expr),
    /// An expression for its effect.
    Expr(Expr),
    /// `if`.
    If(Expr, Block, Block),
    /// `for variable in iterable`.
    For(Target, Expr, Block),
    /// `while`.
    While(Expr, Block),
    /// `return`.
    Return(Expr),
    /// `raise` or a failing `assert`.
    Raise(Expr),
    /// `break`.
    Break,
    /// `continue`.
    Continue,
}

/// Statements, each with the variables that are not used after it.
pub type Block = Vec<(Stmt, Vec<usize>)>;

/// A parameter of a function.
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type; `None` for `self` without one.
    pub ty: Option<Type>,
    /// Its default.
    pub default: Option<Expr>,
}

/// A function or method.
pub struct Function {
    /// Its full name.
    pub name: String,
    /// Parameters; they are the first variables.
    pub params: Vec<Param>,
    /// The result's type.
    pub returns: Option<Type>,
    /// Names of all variables.
    pub locals: Vec<String>,
    /// Its statements.
    pub body: Block,
}

/// A class: fields, constants, methods.
#[derive(Default)]
pub struct Class {
    /// Its full name.
    pub name: String,
    /// Base: `Module`, `NamedTuple`, `Interface`, `Enum` or none.
    pub base: String,
    /// Names of parameters.
    pub parameters: Vec<String>,
    /// Names of buffers.
    pub buffers: Vec<String>,
    /// Fields with types, in order.
    pub fields: Vec<(String, Type)>,
    /// Constants.
    pub constants: Vec<(String, Expr)>,
    /// Methods.
    pub methods: Vec<Arc<Function>>,
}
