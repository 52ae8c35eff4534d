//! The table of recordings of a step or function, keyed by what a recording depends on: the caller's kind, the inputs,
//! the thread's modes.

use crate::autograd::mode;
use crate::{Tensor, amp};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Device, Error, Layout, Result};
use std::any::Any;

/// Tensors that a step gives or takes.
pub type Tensors = SmallVec<[Tensor; 2]>;

/// The result of a captured step or compiled function: nothing, a tensor, or several. A type of the caller's may hold
/// more: its [`Form`](StepOutput::Form) is kept with the recording.
pub trait StepOutput: Sized {
    /// All of a result but its tensors. A replay returns the form of the call that was recorded.
    type Form: Send + 'static;
    /// The tensors, in order, and the form.
    fn into_parts(self) -> (Tensors, Self::Form);
    /// The reverse: as many tensors as [`into_parts`](StepOutput::into_parts) gave.
    fn from_parts(tensors: Tensors, form: &Self::Form) -> Result<Self>;
}

/// A fixed number of tensors.
pub(crate) fn array<const N: usize>(tensors: Tensors) -> Result<[Tensor; N]> {
    let found = tensors.len();
    let all: Vec<Tensor> = tensors.into_iter().collect();
    all.try_into().map_err(|_| Error::value(format!("capture: the step returned {found} tensors, not {N}")))
}

impl StepOutput for () {
    type Form = ();
    fn into_parts(self) -> (Tensors, ()) {
        Default::default()
    }
    fn from_parts(_: Tensors, _: &()) -> Result<Self> {
        Ok(())
    }
}

impl StepOutput for Tensor {
    type Form = ();
    fn into_parts(self) -> (Tensors, ()) {
        (Tensors::from_iter([self]), ())
    }
    fn from_parts(mut tensors: Tensors, _: &()) -> Result<Self> {
        tensors.pop().ok_or_else(|| Error::value("capture: the step returned no tensor"))
    }
}

impl<const N: usize> StepOutput for [Tensor; N] {
    type Form = ();
    fn into_parts(self) -> (Tensors, ()) {
        (self.into_iter().collect(), ())
    }
    fn from_parts(tensors: Tensors, _: &()) -> Result<Self> {
        array(tensors)
    }
}

impl StepOutput for (Tensor, Tensor) {
    type Form = ();
    fn into_parts(self) -> (Tensors, ()) {
        (Tensors::from_iter([self.0, self.1]), ())
    }
    fn from_parts(tensors: Tensors, _: &()) -> Result<Self> {
        array(tensors).map(|[a, b]| (a, b))
    }
}

impl StepOutput for Vec<Tensor> {
    type Form = ();
    fn into_parts(self) -> (Tensors, ()) {
        (self.into_iter().collect(), ())
    }
    fn from_parts(tensors: Tensors, _: &()) -> Result<Self> {
        Ok(tensors.into_iter().collect())
    }
}

/// A recording's form, of any type.
pub type Form = Box<dyn Any + Send>;

/// The result of a replay.
pub fn replayed<O: StepOutput>(tensors: Tensors, form: &Form) -> Result<O> {
    let form = form.downcast_ref::<O::Form>().ok_or_else(|| {
        Error::value("the recording is of a step with a result of another type; give each step a kind of its own")
    })?;
    O::from_parts(tensors, form)
}

/// A kind that the caller distinguishes, of any type.
trait Key: Send {
    fn is(&self, other: &dyn Any) -> bool;
}

impl<K: PartialEq + Send + 'static> Key for K {
    fn is(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<K>().is_some_and(|other| other == self)
    }
}

/// What a recording depends on in one input.
pub trait InputKind {
    fn of(input: &Tensor) -> Self;
    fn fits(&self, input: &Tensor) -> bool;
}

/// Dtype and shape: captured steps copy their inputs into memory of their own.
pub struct Shaped(DType, SmallVec<[usize; 4]>);

impl InputKind for Shaped {
    fn of(input: &Tensor) -> Self {
        Self(input.dtype(), input.shape().into())
    }
    fn fits(&self, input: &Tensor) -> bool {
        self.0 == input.dtype() && self.1[..] == *input.shape()
    }
}

/// All but the address: compiled functions read their inputs in place.
pub struct Placed(DType, Layout, Device, bool);

impl InputKind for Placed {
    fn of(input: &Tensor) -> Self {
        Self(input.dtype(), input.layout().clone(), input.device(), input.requires_grad())
    }
    fn fits(&self, input: &Tensor) -> bool {
        self.0 == input.dtype()
            && self.1 == *input.layout()
            && self.2 == input.device()
            && self.3 == input.requires_grad()
    }
}

/// The thread state that a recording depends on.
#[derive(PartialEq)]
struct Mode {
    grad: bool,
    inference: bool,
    autocast: Option<DType>,
}

impl Mode {
    fn now() -> Self {
        Self { grad: mode::is_grad_enabled(), inference: mode::is_inference(), autocast: amp::autocast_dtype() }
    }
}

struct Entry<I, T> {
    key: Box<dyn Key>,
    inputs: Vec<I>,
    mode: Mode,
    value: T,
}

/// What is known of each kind of calls.
pub struct Recordings<I, T>(Vec<Entry<I, T>>);

impl<I, T> Default for Recordings<I, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<I: InputKind, T> Recordings<I, T> {
    /// The place of the present kind: of the caller's kind, of inputs, in this thread's modes.
    pub fn find<K: PartialEq + Send + 'static>(&self, key: &K, inputs: &[Tensor]) -> Option<usize> {
        let mode = Mode::now();
        self.0.iter().position(|entry| {
            entry.mode == mode
                && entry.inputs.len() == inputs.len()
                && entry.inputs.iter().zip(inputs).all(|(kind, input)| kind.fits(input))
                && entry.key.is(key)
        })
    }

    /// Adds the present kind, which is not there, and returns its place.
    pub fn add<K: PartialEq + Send + 'static>(&mut self, key: K, inputs: &[Tensor], value: T) -> usize {
        let inputs = inputs.iter().map(I::of).collect();
        self.0.push(Entry { key: Box::new(key), inputs, mode: Mode::now(), value });
        self.0.len() - 1
    }
}

impl<I, T> Recordings<I, T> {
    pub fn remove(&mut self, at: usize) {
        self.0.remove(at);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|entry| &entry.value)
    }
}

impl<I, T> std::ops::Index<usize> for Recordings<I, T> {
    type Output = T;
    fn index(&self, at: usize) -> &T {
        &self.0[at].value
    }
}

impl<I, T> std::ops::IndexMut<usize> for Recordings<I, T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at].value
    }
}
