//! Calls of a frozen model as programs of engine calls: pointwise chains fused, memory planned, no interpreter.

use crate::ivalue::IValue;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::{Compile, StepOutput, Tensor};
use std::sync::{Mutex, TryLockError};

type Tensors = SmallVec<[Tensor; 2]>;

/// The recordings of a model's calls, one for each kind of inputs.
pub struct Recorded(Mutex<Compile>);

/// A frozen model's weights do not change.
impl Default for Recorded {
    fn default() -> Self {
        Self(Mutex::new(Compile::default().constant(true)))
    }
}

/// A result. Its form is the same value with empty tensors.
struct Output(IValue);

impl StepOutput for Output {
    type Form = IValue;

    fn into_parts(self) -> (Tensors, IValue) {
        let mut tensors = Vec::new();
        self.0.tensors(&mut tensors);
        let form = self.0.map(&mut |_| Tensor::empty_with([0], DType::F32)).unwrap_or(IValue::None);
        (tensors.into_iter().collect(), form)
    }

    fn from_parts(tensors: Tensors, form: &IValue) -> Result<Self> {
        let mut tensors = tensors.into_iter();
        let missing = || Error::value("a recorded call returned fewer tensors than before");
        form.map(&mut |_| tensors.next().ok_or_else(missing)).map(Self)
    }
}

/// Whether all tensors of a value are in its containers: not in the fields of an object.
fn is_plain(value: &IValue) -> bool {
    match value {
        IValue::Object(_) | IValue::Function(_) => false,
        IValue::List(_) | IValue::Tuple(_) => value.items().is_ok_and(|items| items.iter().all(is_plain)),
        IValue::Dict(entries) => rushlight_core::sync::lock(entries).iter().all(|(k, v)| is_plain(k) && is_plain(v)),
        _ => true,
    }
}

impl Recorded {
    /// Runs `call` on the arguments, or its recording for arguments of this kind.
    pub fn run(
        &self,
        method: &str,
        args: Vec<IValue>,
        call: impl FnOnce(Vec<IValue>) -> Result<IValue>,
    ) -> Result<IValue> {
        // Another thread's call goes on without waiting for this one.
        let mut compile = match self.0.try_lock() {
            Ok(compile) => compile,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return call(args),
        };
        if !args.iter().all(is_plain) {
            return call(args);
        }
        let mut inputs = Vec::new();
        args.iter().for_each(|v| v.tensors(&mut inputs));
        // Tensors are part of the inputs' kind; all other values are this key.
        let key = args.iter().map(|v| if matches!(v, IValue::Tensor(_)) { String::new() } else { v.to_string() });
        let key: Vec<String> = std::iter::once(method.to_string()).chain(key).collect();
        let mut has_objects = false;
        let output = compile.run_kind(key.clone(), &inputs, |own| {
            let mut own = own.iter();
            let missing = || Error::value("a recorded call has fewer tensors than before");
            let mut next = |_: &Tensor| own.next().cloned().ok_or_else(missing);
            let args = args.iter().map(|v| v.map(&mut next)).collect::<Result<Vec<_>>>()?;
            let found = call(args)?;
            has_objects = !is_plain(&found);
            Ok(Output(found))
        })?;
        if has_objects {
            compile.refuse(key, &inputs, "it returns an object");
        }
        Ok(output.0)
    }
}
