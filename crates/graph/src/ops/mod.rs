//! Ops by name: the table's rows, and what TorchScript and ONNX have beside or unlike them.
//!
//! | name | op |
//! |---|---|
//! | `torch.add` | PyTorch's `aten::add`: arguments in the schema's order |
//! | `nn.functional.linear`, `Tensor.view`, `linalg.norm`, `special.erf` | the Python function or method |
//! | `ops.prim.dtype`, `int`, `len` | TorchScript's own |
//! | `onnx.Conv` | ONNX's operator; attributes are keywords |
//! | `ops.mine.filter` | an op that a library of the host program has registered |
//!
//! Nothing else can be called: an unknown name is an error.

pub(crate) mod aten;
pub(crate) mod bind;
pub mod plain;

use crate::ivalue::IValue;
use bind::Row;
use rushlight_core::{Error, Result};

/// Arguments of a call.
pub struct Args {
    /// By position.
    pub list: Vec<IValue>,
    /// By name.
    pub keywords: Vec<(String, IValue)>,
    /// Names that an operator of ONNX asked for.
    pub(crate) asked: std::cell::RefCell<Vec<String>>,
}

impl Args {
    /// An argument by position or name; `None` if it is absent.
    pub fn get(&self, at: usize, name: &str) -> Option<&IValue> {
        self.list.get(at).or_else(|| self.keywords.iter().find(|(n, _)| n == name).map(|(_, v)| v))
    }

    /// An argument; an error if it is absent.
    pub fn need(&self, at: usize, name: &str) -> Result<&IValue> {
        self.get(at, name).ok_or_else(|| Error::value(format!("argument '{name}' is missing")))
    }
}

/// An op that is not a row. `None`: its arguments are for the row of the same name.
type Own = fn(&Args) -> Result<Option<IValue>>;

/// What a name stands for.
pub struct Resolved {
    /// Tried in order before the row.
    own: [Option<Own>; 2],
    pub(crate) row: Option<&'static Row>,
    /// Attributes that the operator does not know are errors.
    is_onnx: bool,
    /// The name of an op of another library.
    registered: Option<String>,
}

impl Resolved {
    /// Calls the op.
    pub fn call(&self, list: Vec<IValue>, keywords: Vec<(String, IValue)>) -> Result<IValue> {
        if let Some(name) = &self.registered {
            return crate::library::call(name, list, keywords);
        }
        let args = Args { list, keywords, asked: Default::default() };
        for own in self.own.iter().flatten() {
            if let Some(out) = own(&args)? {
                if self.is_onnx {
                    crate::onnx::check_attributes(&args)?;
                }
                return Ok(out);
            }
        }
        match self.row {
            Some(row) => bind::call(row, &args),
            None => Err(Error::value(format!(
                "no form takes ({})",
                args.list.iter().map(IValue::kind).collect::<Vec<_>>().join(", ")
            ))),
        }
    }
}

/// Finds an op.
pub fn resolve(path: &str) -> Result<Resolved> {
    let name = path.strip_prefix("torch.").or_else(|| path.strip_prefix("ops.aten.")).unwrap_or(path);
    let own = match path {
        _ if path.starts_with("onnx.") => [crate::onnx::ops::find(&path[5..]), None],
        _ if path.starts_with("ops.prim.") => [plain::prim(&path[9..]), None],
        _ if name == path && !path.contains('.') => [plain::builtin(path), None],
        _ if name != path && !name.contains('.') => [plain::find(name), aten::find(name)],
        _ => [None, None],
    };
    let row = if path.starts_with("onnx.") || path.starts_with("ops.prim.") { None } else { bind::row(name) };
    if own[0].is_none() && own[1].is_none() && row.is_none() {
        let registered =
            path.strip_prefix("ops.").and_then(|p| p.split_once('.')).map(|(ns, name)| format!("{ns}::{name}"));
        if let Some(name) = registered.filter(|name| crate::library::find(name).is_some()) {
            return Ok(Resolved { own, row, is_onnx: false, registered: Some(name) });
        }
        return Err(Error::unsupported(format!("this version of Rushlight has no op '{path}' for programs")));
    }
    Ok(Resolved { own, row, is_onnx: path.starts_with("onnx."), registered: None })
}

/// Calls a row of the table by name.
pub(crate) fn call(name: &str, list: Vec<IValue>) -> Result<IValue> {
    call_with(name, list, &[])
}

/// Calls a row with keywords.
pub(crate) fn call_with(name: &str, list: Vec<IValue>, keywords: &[(&str, IValue)]) -> Result<IValue> {
    let row = bind::row(name).ok_or_else(|| Error::unsupported(format!("the op table has no '{name}'")))?;
    let keywords = keywords.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
    bind::call(row, &Args { list, keywords, asked: Default::default() }).map_err(|e| e.within(name))
}
