//! Calls of a frozen model as programs of engine calls: pointwise chains fused, memory planned, no interpreter. On an
//! engine that captures steps, such as a GPU's, a call is one graph of the device.

use crate::ivalue::IValue;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::is_grad_enabled;
use rushlight_tensor::{Capture, Compile, StepOutput, Tensor};
use std::cell::Cell;
use std::sync::{Mutex, TryLockError};

/// Most kinds of calls that are remembered as no graphs of a device.
const MAX_UNCAPTURED: usize = 64;

type Tensors = SmallVec<[Tensor; 2]>;

/// The recordings of a model's calls, one for each kind of inputs.
#[derive(Default)]
pub struct Recorded(Mutex<Recordings>);

struct Recordings {
    compile: Compile,
    capture: Capture,
    /// Kinds of calls that no graph of a device can hold.
    uncaptured: Vec<String>,
}

/// A frozen model's weights do not change.
impl Default for Recordings {
    fn default() -> Self {
        let compile = Compile::default().constant(true);
        Self { compile, capture: Capture::new().warmup(1), uncaptured: Vec::new() }
    }
}

/// Whether calls with these inputs can be graphs of their device, which know no gradients.
fn can_capture(inputs: &[Tensor]) -> bool {
    let Some(device) = inputs.first().map(Tensor::device) else { return false };
    let plain = |t: &Tensor| t.device() == device && !(is_grad_enabled() && t.requires_grad());
    inputs.iter().all(plain) && rushlight_engines::backend(device).is_ok_and(|engine| engine.capture().is_some())
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
    pub fn run(&self, method: &str, args: Vec<IValue>, call: impl Fn(Vec<IValue>) -> Result<IValue>) -> Result<IValue> {
        // Another thread's call goes on without waiting for this one.
        let mut recordings = match self.0.try_lock() {
            Ok(recordings) => recordings,
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
        let Recordings { compile, capture, uncaptured } = &mut *recordings;
        let (has_objects, changes) = (Cell::new(false), Cell::new(false));
        let run = |own: &[Tensor]| {
            let before: Vec<u32> = own.iter().map(Tensor::version).collect();
            let mut next = own.iter();
            let missing = || Error::value("a recorded call has fewer tensors than before");
            let mut next = |_: &Tensor| next.next().cloned().ok_or_else(missing);
            let args = args.iter().map(|v| v.map(&mut next)).collect::<Result<Vec<_>>>()?;
            let found = call(args)?;
            has_objects.set(!is_plain(&found));
            changes.set(own.iter().map(Tensor::version).ne(before));
            Ok(Output(found))
        };
        if can_capture(&inputs) {
            let shapes: Vec<String> = inputs.iter().map(|t| format!("{}{:?}", t.dtype(), t.shape())).collect();
            let kind = format!("{key:?} {shapes:?}");
            if !uncaptured.contains(&kind) {
                let found = capture.run_kind(key.clone(), &inputs, run);
                let refused = match &found {
                    // A graph reads copies of its inputs, so it cannot change them.
                    Ok(_) => has_objects.get() || changes.get(),
                    // What waits for the device, or what is wrong in any case: the calls one by one will tell.
                    Err(_) => true,
                };
                if refused {
                    uncaptured.truncate(MAX_UNCAPTURED - 1);
                    uncaptured.insert(0, kind);
                }
                if let Ok(output) = found {
                    return Ok(output.0);
                }
            }
        }
        let output = compile.run_kind(key.clone(), &inputs, run)?;
        if has_objects.get() {
            compile.refuse(key, &inputs, "it returns an object");
        }
        Ok(output.0)
    }

    /// How many graphs of a device there are.
    pub fn graphs(&self) -> usize {
        rushlight_core::sync::lock(&self.0).capture.graphs()
    }
}
