//! Calls on tensors of carried dtypes (`uint16` to `uint64`, 8-bit floats), which no engine has kernels for.
//!
//! Elements are moved by the kernels of the integer of their size ([`DType::carrier`])
//! and converted by [`convert`]; everything else is refused with the name of the call. So a carried dtype costs no
//! kernel in any engine.

mod complex;
mod convert;

use rushlight_core::backend::*;
use rushlight_core::float8::carried_bits;
use rushlight_core::rng::Distribution;
use rushlight_core::{Backend, DType, Error, Result, Scalar};

/// Runs a call on tensors of a carried dtype of an engine's device.
///
/// # Safety
/// As for [`Backend::run`].
#[cold]
pub unsafe fn run_carried(engine: &'static dyn Backend, dtype: DType, call: &Call<View>) -> Result<()> {
    if dtype.is_complex() { complex::run(engine, dtype, call) } else { Carried { engine, dtype }.run(call) }
}

/// The view's bits as the integers that carry them; other views as they are.
fn bits(view: View) -> View {
    view.as_carrier()
}

/// Runs a call on the engine.
fn execute<'v>(engine: &'static dyn Backend, call: impl Into<Call<View<'v>>>) -> Result<()> {
    // SAFETY: the views are those of the caller's call, their bits, or temporaries of their shape.
    unsafe { rushlight_core::backend::execute(engine, &call.into()) }
}

/// Calls on tensors of one carried dtype.
struct Carried {
    engine: &'static dyn Backend,
    dtype: DType,
}

impl Carried {
    fn run(&self, call: &Call<View>) -> Result<()> {
        match call {
            Call::Fill(c) => self.moved(&call::Fill { value: self.number(c.value), ..*c }.into()),
            Call::Copy(c) => convert::copy(self.engine, c.src, c.out),
            Call::ForeachCopy(c) => {
                c.from.iter().zip(&c.to).try_for_each(|(from, to)| convert::copy(self.engine, *from, *to))
            }
            // Integers wrap into the range of an unsigned dtype.
            Call::Random(c) if matches!(c.distribution, Distribution::Integers { .. }) && !self.dtype.is_float() => {
                let wide = convert::Temporary::new(self.engine, c.out, DType::I64)?;
                execute(self.engine, call::Random { out: wide.view(), ..*c })?;
                execute(self.engine, call::Copy { src: wide.view(), out: bits(c.out) })
            }
            Call::Select(c) => {
                for side in [c.a, c.b] {
                    self.alike("where", side, c.out)?;
                }
                self.moved(&call::Select { a: self.operand(c.a), b: self.operand(c.b), ..*c }.into())
            }
            Call::Flip(_) | Call::PadFrom(_) => self.moved(call),
            Call::Index(c) => {
                self.alike("index", Operand::Tensor(c.x), c.out)?;
                self.moved(call)
            }
            Call::IndexPut(c) => {
                self.alike("index_put", Operand::Tensor(c.values), c.out)?;
                // Unsigned sums have the bits of signed ones.
                if c.accumulate && self.dtype.is_float() {
                    return self.refuse("index_put with accumulate");
                }
                self.moved(call)
            }
            Call::Gather(c) => {
                self.alike("gather", Operand::Tensor(c.x), c.out)?;
                self.moved(call)
            }
            Call::Scatter(c) => {
                self.alike("scatter", c.src, c.out)?;
                match c.op {
                    Scatter::Set => {}
                    Scatter::Add | Scatter::Mul if !self.dtype.is_float() => {}
                    _ => return self.refuse("scatter with a reduction"),
                }
                self.moved(&call::Scatter { src: self.operand(c.src), ..*c }.into())
            }
            Call::Reduce(c) => match c.op {
                Reduce::Norm { .. } => self.refuse("norm"),
                Reduce::Var { .. } => self.refuse("var"),
                op => self.refuse(&format!("{op:?}").to_lowercase()),
            },
            call => self.refuse(&call.op_name()),
        }
    }

    /// A call that only moves elements, on their bits.
    fn moved(&self, call: &Call<View>) -> Result<()> {
        execute(self.engine, call.map(&mut |_, view| bits(*view)))
    }

    /// A number as one of this dtype's elements.
    fn number(&self, value: Scalar) -> Scalar {
        Scalar::Int(carried_bits(value, self.dtype))
    }

    fn operand<'a>(&self, operand: Operand<'a>) -> Operand<'a> {
        match operand {
            Operand::Tensor(view) => Operand::Tensor(view),
            Operand::Scalar(value) => Operand::Scalar(self.number(value)),
        }
    }

    #[cold]
    fn refuse<T>(&self, call: &str) -> Result<T> {
        Err(Error::dtype(format!("{call}: not implemented for {}; convert the tensor with to_dtype first", self.dtype)))
    }

    /// An error unless a tensor has the output's dtype: a movement does not convert.
    fn alike(&self, call: &str, input: Operand, out: View) -> Result<()> {
        match input {
            Operand::Tensor(view) if view.dtype() != out.dtype() => {
                self.refuse(&format!("{call} between {} and {}", view.dtype(), out.dtype()))
            }
            _ => Ok(()),
        }
    }
}
