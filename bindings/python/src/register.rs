//! Registration of the op rows in Python: functions, methods, docstrings and signatures.

use crate::dispatch::{Entry, FastCall, Home, Op};
use crate::error::runtime_error;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CString, c_char};

/// The signature in Python's syntax, and the row's doc, for `help()`.
fn doc(op: &Op, name: &str, method: bool) -> String {
    let mut text = String::new();
    // Calls take NumPy's names, too, which a signature cannot say: as in PyTorch, such functions have none.
    let other_names =
        |text| crate::signature::split(text).into_iter().any(|(_, name, ..)| matches!(name, "dim" | "keepdim"));
    if let [variant] = op.variants
        && (method || !other_names(variant.text))
    {
        text.push_str(&format!("{name}{}\n--\n\n", python_signature(variant.text, method)));
    }
    for variant in op.variants {
        text.push_str(&format!("{name}{}\n", python_signature(variant.text, method)));
    }
    text.push('\n');
    text.push_str(op.doc.trim());
    text
}

/// `(input, other, *, alpha=1)`.
pub fn python_signature(text: &'static str, method: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut keyword_only = false;
    for (at, (_, name, default, keyword)) in crate::signature::split(text).into_iter().enumerate() {
        if keyword && !keyword_only {
            keyword_only = true;
            parts.push("*".to_string());
        }
        let name = if method && at == 0 { "$self" } else { name };
        parts.push(match default {
            Some(default) => format!("{name}={}", default.replace("inf", "float('inf')")),
            None => name.to_string(),
        });
        if method && at == 0 {
            parts.push("/".to_string());
        }
    }
    format!("({})", parts.join(", "))
}

/// The rows as data: their namespaces, name, signatures and docs. Type stubs are generated from it.
#[pyfunction]
pub fn _rows() -> Vec<(Vec<&'static str>, &'static str, Vec<&'static str>, &'static str)> {
    let homes = |op: &Op| {
        let name = |home: &Home| match home {
            Home::Torch => "torch",
            Home::Method => "method",
            Home::Inplace => "inplace",
            Home::Functional => "functional",
            Home::Linalg => "linalg",
            Home::Special => "special",
            Home::Fft => "fft",
        };
        op.homes.iter().map(name).collect()
    };
    let rows = crate::rows::TABLES.iter().flat_map(|table| table.iter());
    rows.map(|e| {
        (
            homes(e.op),
            e.op.name.trim_start_matches("r#"),
            e.op.variants.iter().map(|v| v.text).collect(),
            e.op.doc.trim(),
        )
    })
    .collect()
}

/// A method definition that is never freed, as the interpreter requires.
fn definition(name: &str, entry: FastCall, doc: String) -> PyResult<*mut ffi::PyMethodDef> {
    let text = |s: String| CString::new(s).map_err(|e| runtime_error(e.to_string()));
    Ok(Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: text(name.to_string())?.into_raw() as *const c_char,
        // SAFETY: the flags below tell the interpreter which type of function this is; all are addresses of code.
        ml_meth: unsafe { std::mem::transmute::<FastCall, ffi::PyMethodDefPointer>(entry) },
        ml_flags: METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: text(doc)?.into_raw() as *const c_char,
    })))
}

const METH_FASTCALL: std::ffi::c_int = 0x0080;

/// Adds a row's callables to their modules and to the class.
pub fn register<'py>(
    entry: &Entry,
    module: impl Fn(Home) -> Bound<'py, PyModule>,
    class: &Bound<'py, pyo3::types::PyType>,
) -> PyResult<()> {
    let py = class.py();
    let op = entry.op;
    for &home in op.homes {
        let (name, call, method) = match home {
            Home::Method => (op.name.to_string(), entry.method, true),
            Home::Inplace => (format!("{}_", op.name), entry.inplace, true),
            _ => (op.name.to_string(), entry.function, false),
        };
        // `lambda` and other keywords are raw identifiers in Rust.
        let name = name.trim_start_matches("r#");
        let definition = definition(name, call, doc(op, name, method))?;
        if method {
            // SAFETY: the class and a definition that is never freed.
            let descriptor = unsafe {
                let object = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
                Bound::from_owned_ptr_or_err(py, object)?
            };
            class.setattr(name, descriptor)?;
        } else {
            let module = module(home);
            let module_name = module.name()?;
            // SAFETY: a definition that is never freed, and a string for the name of the module.
            let function = unsafe {
                let object = ffi::PyCFunction_NewEx(definition, module.as_ptr(), module_name.as_ptr());
                Bound::from_owned_ptr_or_err(py, object)?
            };
            module.add(name, function)?;
        }
    }
    Ok(())
}
