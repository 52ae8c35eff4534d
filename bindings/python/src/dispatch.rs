//! Calls of op rows from Python.
//!
//! A row has a name, the namespaces where PyTorch has it, and one or more signatures, each with a closure over
//! converted arguments. Python gets a function, a method, an in-place method and a docstring. A call binds its
//! arguments to the first signature that fits, converts them, and runs the closure, releasing the GIL for large inputs.

use crate::bind::{Misfit, bind, combination, type_name};
use crate::error::{runtime_error, to_py, type_error};
use crate::overrides;
use crate::profile;
use crate::signature::{Kind, Signature};
use crate::tensor::{PyTensor, as_tensor, wrap};
use crate::value::{Out, Value, Values};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Result, Scalar};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::is_grad_enabled;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Namespace in which PyTorch has an op.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// `torch.name`.
    Torch,
    /// `Tensor.name`.
    Method,
    /// `Tensor.name_`, through a copy: ops with a real in-place form have a separate row.
    Inplace,
    /// `torch.nn.functional.name`.
    Functional,
    /// `torch.linalg.name`.
    Linalg,
    /// `torch.special.name`.
    Special,
    /// `torch.fft.name`.
    Fft,
}

/// One signature and its function.
pub struct Variant {
    pub text: &'static str,
    pub call: fn(&[Value]) -> Result<Out>,
}

/// A row.
pub struct Op {
    pub name: &'static str,
    pub homes: &'static [Home],
    pub doc: &'static str,
    pub variants: &'static [Variant],
    pub signatures: PyOnceLock<Vec<Signature>>,
}

/// CPython's calling convention for `METH_FASTCALL | METH_KEYWORDS`, which its stable ABI has had since 3.10 and
/// CPython since 3.7.
pub type FastCall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// A row with its C entry points.
pub struct Entry {
    pub op: &'static Op,
    pub function: FastCall,
    pub method: FastCall,
    pub inplace: FastCall,
}

/// Rows of the op table: `name [homes] "signature" |argument: type, …| body; …`, each with a doc comment.
#[macro_export]
macro_rules! rows {
    ($table:ident: $($(#[doc = $doc:literal])* $name:ident [$($home:ident)*] $($text:tt |$($arg:ident: $ty:ty),*| $body:expr),+;)*) => {
        pub static $table: &[$crate::dispatch::Entry] = &[$({
            use $crate::dispatch::{Entry, Home, Op, Variant};
            use pyo3::ffi::{PyObject, Py_ssize_t};
            static OP: Op = Op {
                name: stringify!($name),
                homes: &[$(Home::$home),*],
                doc: concat!("" $(, $doc, "\n")*),
                variants: &[$(Variant {
                    text: $text,
                    call: |values| {
                        #[allow(unused_mut, unused_variables)]
                        let mut values = values.iter();
                        $(let $arg: $ty = $crate::value::Take::take(&mut values)?;)*
                        let out = $body?;
                        Ok($crate::value::Out::from(out))
                    },
                }),+],
                signatures: pyo3::sync::PyOnceLock::new(),
            };
            unsafe extern "C" fn function(module: *mut PyObject, args: *const *mut PyObject, n: Py_ssize_t, names: *mut PyObject) -> *mut PyObject {
                // SAFETY: the interpreter calls with its lock held, `n` positional arguments and one per name.
                unsafe { $crate::dispatch::enter(&OP, module, args, n, names, $crate::dispatch::Form::Function) }
            }
            unsafe extern "C" fn method(slf: *mut PyObject, args: *const *mut PyObject, n: Py_ssize_t, names: *mut PyObject) -> *mut PyObject {
                // SAFETY: as above, on an instance of the class.
                unsafe { $crate::dispatch::enter(&OP, slf, args, n, names, $crate::dispatch::Form::Method) }
            }
            unsafe extern "C" fn inplace(slf: *mut PyObject, args: *const *mut PyObject, n: Py_ssize_t, names: *mut PyObject) -> *mut PyObject {
                // SAFETY: as above.
                unsafe { $crate::dispatch::enter(&OP, slf, args, n, names, $crate::dispatch::Form::Inplace) }
            }
            Entry { op: &OP, function, method, inplace }
        }),*];
    };
}

/// A call's arguments from the interpreter, including `self`.
pub struct Call<'a, 'py> {
    pub positional: SmallVec<[&'a Bound<'py, PyAny>; 8]>,
    /// Keywords with their names.
    pub named: SmallVec<[(&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>); 4]>,
}

/// How a row was called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Function,
    Method,
    Inplace,
}

/// The entry point of all rows.
///
/// # Safety
/// The interpreter's lock is held; `slf` is the tensor of a method, the module of a function; `args` holds `n` objects
/// and as many more as the tuple `names` has entries.
pub unsafe fn enter(
    op: &'static Op,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
    form: Form,
) -> *mut ffi::PyObject {
    // SAFETY: the caller holds the lock.
    let py = unsafe { Python::assume_attached() };
    let result = catch_unwind(AssertUnwindSafe(|| {
        let names = match names.is_null() {
            true => None,
            // SAFETY: a tuple, by the calling convention.
            false => Some(unsafe { Bound::from_borrowed_ptr(py, names).cast_into_unchecked::<PyTuple>() }),
        };
        let keys: SmallVec<[Bound<'_, PyAny>; 4]> = names.map_or(SmallVec::new(), |names| names.iter().collect());
        let (mut positional, mut named) = (SmallVec::new(), SmallVec::new());
        // SAFETY: `Bound` is an object's address; the caller's array holds `n` of them, and its objects outlive the
        // call.
        unsafe {
            if form != Form::Function {
                positional.push(Bound::ref_from_ptr(py, &slf));
            }
            for i in 0..n as usize {
                positional.push(Bound::ref_from_ptr(py, &*args.add(i)));
            }
        }
        for (i, key) in keys.iter().enumerate() {
            // SAFETY: values of keywords follow the positional ones.
            named.push((key, unsafe { Bound::ref_from_ptr(py, &*args.add(n as usize + i)) }));
        }
        let arguments = Call { positional, named };
        if overrides::watched() || arguments.objects().any(overrides::overridden) {
            // SAFETY: as above.
            return overridden(op, unsafe { Bound::ref_from_ptr(py, &slf) }, &arguments, form);
        }
        call(py, op, arguments, form)
    }));
    match result {
        Ok(Ok(object)) => object.into_ptr(),
        Ok(Err(error)) => {
            error.restore(py);
            std::ptr::null_mut()
        }
        Err(_) => {
            runtime_error(format!("{}: internal error (a panic; please report it)", op.name)).restore(py);
            std::ptr::null_mut()
        }
    }
}

impl<'a, 'py> Call<'a, 'py> {
    fn objects(&self) -> impl Iterator<Item = &'a Bound<'py, PyAny>> {
        self.positional.iter().copied().chain(self.named.iter().map(|(_, object)| *object))
    }
}

/// The result of an override by an argument's class or by a mode.
fn overridden<'py>(
    op: &'static Op,
    owner: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
    form: Form,
) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    let name = op.name.trim_start_matches("r#");
    let function = match form {
        Form::Function => owner.getattr(name)?,
        Form::Method => py.get_type::<PyTensor>().getattr(name)?,
        Form::Inplace => py.get_type::<PyTensor>().getattr(format!("{name}_"))?,
    };
    let kwargs = PyDict::new(py);
    for (key, value) in &call.named {
        kwargs.set_item(key, value)?;
    }
    overrides::answer(&function, PyTuple::new(py, &call.positional)?, kwargs)
}

fn signatures(py: Python<'_>, op: &'static Op) -> PyResult<&'static Vec<Signature>> {
    op.signatures.get_or_try_init(py, || {
        op.variants
            .iter()
            .map(|v| {
                Signature::parse(py, v.text).ok_or_else(|| runtime_error(format!("malformed signature '{}'", v.text)))
            })
            .collect()
    })
}

fn call<'py>(py: Python<'py>, op: &'static Op, mut call: Call<'_, 'py>, form: Form) -> PyResult<Bound<'py, PyAny>> {
    let (function, inplace) = (form == Form::Function, form == Form::Inplace);
    let mut out = None;
    if function && let Some(at) = call.named.iter().position(|(name, _)| name.eq("out").unwrap_or(false)) {
        let (_, target) = call.named.remove(at);
        out = (!target.is_none()).then_some(target);
    }
    let signatures = signatures(py, op)?;
    let mut failure = None;
    let chosen = signatures.iter().zip(op.variants).find_map(|(signature, variant)| {
        match bind(&call, op.name, signature, !function) {
            Ok(values) => Some(Ok((values, variant, signature))),
            // Only such a call fails and is made all the same: others do not look for the layout.
            Err(Misfit::Raised(_)) if out.is_none() && call.objects().any(crate::convert::is_sparse_layout) => {
                Some(Err(None))
            }
            Err(Misfit::Raised(error)) => Some(Err(Some(error))),
            Err(Misfit::Signature(error)) => {
                failure.get_or_insert(error);
                None
            }
        }
    });
    let (mut values, variant, signature) = match (chosen, failure) {
        (Some(Ok(found)), _) => found,
        (Some(Err(Some(error))), _) => return Err(error),
        (Some(Err(None)), _) => return sparse(py, op, &call),
        (None, Some(error)) if signatures.len() == 1 => return Err(type_error(error)),
        _ => return Err(type_error(combination(&call, op)?)),
    };
    if let Some(target) = out {
        prepare_out(op.name, signature, &mut values, target)?;
    }
    let span = profile::op_span(py, op.name, inplace, &values);
    // PyTorch refuses a leaf before it looks at the other arguments.
    if (inplace || form == Form::Method && op.name.ends_with('_'))
        && let Some(Value::Tensor(target)) = values.first()
    {
        target.check_leaf_change(op.name).map_err(to_py)?;
    }
    let result = run(py, op, variant, &values, inplace).map_err(to_py)?;
    drop(span);
    match out {
        None => give(py, &result_name(op), result, call.positional.first().copied()),
        Some(target) => store(op.name, result, target),
    }
}

/// The result of a call that asks for a sparse layout: `rushlight.sparse` makes it.
fn sparse<'py>(py: Python<'py>, op: &Op, call: &Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = PyDict::new(py);
    for (key, value) in &call.named {
        kwargs.set_item(key, value)?;
    }
    let args = PyTuple::new(py, &call.positional)?;
    py.import("rushlight.sparse._make")?.getattr("created")?.call1((op.name, args, kwargs))
}

/// Comparisons: in place, they give the tensor a history with gradients of zero, as in PyTorch.
const COMPARISONS: [&str; 11] =
    ["eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater", "greater_equal"];

/// Elements below which releasing the GIL does not pay.
const WORTH_RELEASING: usize = 8192;

fn work(values: &[Value]) -> usize {
    let numel = |t: &Tensor| t.numel().max(t.storage().bytes() / 64);
    values
        .iter()
        .map(|v| match v {
            Value::Tensor(t) => numel(t),
            Value::Tensors(t) => t.iter().map(numel).sum(),
            Value::Ints(sizes) => sizes.iter().fold(1usize, |n, &s| n.saturating_mul(s.unsigned_abs() as usize)),
            Value::Scalar(Scalar::Int(i)) => i.unsigned_abs() as usize,
            _ => 0,
        })
        .max()
        .unwrap_or(0)
}

/// The input of an in-place op: a copy if the change is recorded, because the gradient may need the old value.
pub fn original(tensor: &Tensor) -> Result<Tensor> {
    if is_grad_enabled() && tensor.requires_grad() { tensor.copy() } else { Ok(tensor.clone()) }
}

fn run(py: Python<'_>, op: &Op, variant: &Variant, values: &[Value], inplace: bool) -> Result<Out> {
    let body = || {
        if !inplace {
            return (variant.call)(values);
        }
        let mut values = Values::from(values);
        let target = match values.first_mut() {
            Some(Value::Tensor(_)) => {
                // Gradients of any operand may need the values that are overwritten.
                let keep =
                    is_grad_enabled() && values.iter().any(|v| matches!(v, Value::Tensor(t) if t.requires_grad()));
                match values.first_mut() {
                    Some(Value::Tensor(first)) => {
                        let before = if keep { first.copy()? } else { first.clone() };
                        Some(std::mem::replace(first, before))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        if let (Some(target), Out::Tensor(result)) = (&target, &(variant.call)(&values)?) {
            if result.shape() != target.shape() {
                return Err(rushlight_core::Error::shape(format!(
                    "output with shape {:?} doesn't match the broadcast shape {:?}",
                    target.shape(),
                    result.shape()
                )));
            }
            if result.dtype().category() > target.dtype().category() {
                return Err(rushlight_core::Error::dtype(format!(
                    "result type {} can't be cast to the desired output type {}",
                    result.dtype(),
                    target.dtype()
                )));
            }
            target.copy_(result)?;
            if COMPARISONS.contains(&op.name)
                && let Some(Value::Tensor(other)) = values.get(1)
            {
                target.record_constant_change(op.name, &[target, other])?;
            }
        }
        Ok(Out::First)
    };
    if work(values) >= WORTH_RELEASING { py.detach(body) } else { body() }
}

/// The name of a row's class of results: those of `torch.linalg` have a prefix.
fn result_name(op: &Op) -> std::borrow::Cow<'static, str> {
    match op.homes {
        [Home::Linalg] => format!("linalg_{}", op.name).into(),
        _ => op.name.into(),
    }
}

/// Converts a result to a Python object.
pub fn give<'py>(
    py: Python<'py>,
    name: &str,
    out: Out,
    first: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let many = |tensors: Vec<Tensor>| tensors.into_iter().map(|t| wrap(py, t)).collect::<PyResult<Vec<_>>>();
    Ok(match out {
        Out::Tensor(t) => wrap(py, t)?.into_any(),
        Out::First => match first {
            Some(object) => object.clone(),
            None => py.None().into_bound(py),
        },
        Out::Tuple(tensors) => PyTuple::new(py, many(tensors)?)?.into_any(),
        Out::List(tensors) => PyList::new(py, many(tensors)?)?.into_any(),
        Out::Named(fields, tensors) => {
            let class = py.import("rushlight.return_types")?.call_method1("of", (name, fields))?;
            class.call1((PyTuple::new(py, many(tensors)?)?,))?
        }
        Out::Scalar(value) => crate::tensor_values::number(py, value)?,
        Out::None => py.None().into_bound(py),
    })
}

/// Before a call with `out=`: inputs must not be recorded, and the result gets the output's dtype where the op has a
/// `dtype` argument that was not given.
fn prepare_out(name: &str, signature: &Signature, values: &mut Values, target: &Bound<'_, PyAny>) -> PyResult<()> {
    let recorded = |v: &Value| match v {
        Value::Tensor(t) => t.requires_grad(),
        Value::Tensors(list) => list.iter().any(Tensor::requires_grad),
        _ => false,
    };
    if is_grad_enabled() && values.iter().any(recorded) {
        return Err(runtime_error(format!(
            "{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        )));
    }
    let Some(target) = as_tensor(target).map(|t| t.get().tensor()) else { return Ok(()) };
    let is_factory = signature.params.iter().any(|p| p.name == "requires_grad");
    for (param, value) in signature.params.iter().zip(values.iter_mut()) {
        match (param.kind, param.name, &value) {
            (Kind::DType, "dtype", Value::None) => *value = Value::DType(target.dtype()),
            (Kind::DType, "dtype", Value::DType(given))
                if (is_factory || matches!(name, "sum" | "prod" | "cumsum" | "cumprod"))
                    && *given != target.dtype() =>
            {
                return Err(runtime_error(format!(
                    "{name}(): dtype {given} does not match dtype of out tensor ({})",
                    target.dtype()
                )));
            }
            (Kind::Device, "device", Value::None) => *value = Value::Device(target.device()),
            _ => {}
        }
    }
    Ok(())
}

/// Ops whose output has the result's dtype exactly; the outputs of others are cast to within their kind.
#[rustfmt::skip]
const EXACT: [&str; 82] = [
    "abs", "addbmm", "addmm", "addmv", "all", "amax", "amin", "any", "argmax", "argmin", "avg_pool2d", "avg_pool3d",
    "baddbmm", "bitwise_not", "bmm", "ceil", "cholesky", "conj_physical", "cross", "det", "diag", "dot", "eigvalsh",
    "floor", "frac", "gather", "gelu", "hardshrink", "histc", "index_add", "index_select", "inner", "inv", "inverse",
    "isin", "isneginf", "isposinf", "ldl_solve", "linear", "log_softmax", "logcumsumexp", "logsigmoid", "lu_solve",
    "masked_select", "matmul", "matrix_norm", "mm", "msort", "multi_dot", "multinomial", "mv", "nan_to_num",
    "nanquantile", "neg", "nonzero", "norm", "ormqr", "quantile", "renorm", "round", "scatter", "scatter_add", "sgn",
    "sign", "signbit", "slice_scatter", "softmax", "softplus", "softshrink", "solve", "solve_triangular", "svdvals",
    "take", "take_along_dim", "tensordot", "tril", "triu", "trunc", "vdot", "vecdot", "vector_norm", "where",
];

/// An error if a result's dtype does not suit the output's.
fn check_out_dtype(name: &str, exact: bool, result: &Tensor, target: &Tensor) -> PyResult<()> {
    let (from, to) = (result.dtype(), target.dtype());
    if from == to || matches!(name, "all" | "any") && to == DType::U8 {
        return Ok(());
    }
    if name == "nonzero" {
        return Err(runtime_error(format!("nonzero: Expected out tensor to have scalar type Long but got {to}")));
    }
    if exact {
        return Err(runtime_error(format!("{name}(): Expected out tensor to have dtype {from}, but got {to} instead")));
    }
    if from.category() > to.category() {
        if matches!(name, "cat" | "concat" | "concatenate" | "stack" | "hstack" | "vstack" | "dstack" | "row_stack") {
            return Err(type_error(format!("torch.cat(): input types can't be cast to the desired output type {to}")));
        }
        return Err(runtime_error(format!("result type {from} can't be cast to the desired output type {to}")));
    }
    Ok(())
}

/// `out=`: writes results to the caller's tensors.
fn store<'py>(name: &str, out: Out, target: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let exact = matches!(out, Out::Named(..)) || EXACT.contains(&name.trim_start_matches("r#"));
    let put = |result: &Tensor, object: &Bound<'py, PyAny>| -> PyResult<()> {
        let Some(tensor) = as_tensor(object) else {
            return Err(type_error(format!("{name}(): argument 'out' must be Tensor, not {}", type_name(object))));
        };
        let target = tensor.get().tensor();
        check_out_dtype(name, exact, result, &target)?;
        // Ranges fill an output of as many elements in its own shape.
        let fills = matches!(name, "arange" | "linspace" | "logspace" | "range") && result.numel() == target.numel();
        let result = if fills { &result.reshape(target.shape()).map_err(to_py)? } else { result };
        tensor.get().store(result).map_err(to_py)
    };
    match out {
        Out::Tensor(result) => put(&result, target)?,
        Out::Tuple(results) | Out::Named(_, results) | Out::List(results) => {
            let targets: Vec<Bound<'py, PyAny>> = target.try_iter()?.collect::<PyResult<_>>()?;
            if targets.len() != results.len() {
                return Err(type_error(format!("{name}(): expected tuple of {} elements for 'out'", results.len())));
            }
            for (result, target) in results.iter().zip(&targets) {
                put(result, target)?;
            }
        }
        _ => return Err(type_error(format!("{name}() got an unexpected keyword argument 'out'"))),
    }
    Ok(target.clone())
}
