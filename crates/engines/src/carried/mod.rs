//! Engines for tensors of carried dtypes (`uint16` to `uint64`, 8-bit floats), which no engine has kernels for.
//!
//! [`carried`] wraps any engine. Elements are moved by the kernels of the integer of their size ([`DType::carrier`])
//! and converted by [`convert`]; everything else is refused with the name of the call. So a carried dtype costs no
//! kernel in any engine.

mod convert;

use crate::calls::computing_calls;
use rushlight_core::backend::*;
use rushlight_core::float8::carried_bits;
use rushlight_core::rng::Distribution;
use rushlight_core::{Backend, DType, Device, Error, Philox, Pointwise, Result, Scalar};
use std::ptr::NonNull;
use std::sync::Mutex;

/// An engine for tensors of one carried dtype.
struct Carried {
    engine: &'static dyn Backend,
    dtype: DType,
}

static KNOWN: Mutex<Vec<&'static Carried>> = Mutex::new(Vec::new());

/// The engine for tensors of a carried dtype on another engine's device.
#[cold]
pub fn carried(engine: &'static dyn Backend, dtype: DType) -> &'static dyn Backend {
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(found) = known.iter().find(|c| c.dtype == dtype && std::ptr::addr_eq(c.engine, engine)) {
        return *found;
    }
    // One for each engine and dtype, for the life of the process.
    let new: &'static Carried = Box::leak(Box::new(Carried { engine, dtype }));
    known.push(new);
    new
}

/// The view's bits as the integers that carry them.
fn bits(view: View) -> View {
    View { dtype: view.dtype.carrier(), ..view }
}

impl Carried {
    /// A number as one of this dtype's elements.
    fn number(&self, value: Scalar) -> Scalar {
        Scalar::Int(carried_bits(value, self.dtype))
    }

    fn operand<'a>(&self, operand: Operand<'a>) -> Operand<'a> {
        match operand {
            Operand::Tensor(view) => Operand::Tensor(bits(view)),
            Operand::Scalar(value) => Operand::Scalar(self.number(value)),
        }
    }

    #[cold]
    fn refuse<T>(&self, call: &str) -> Result<T> {
        Err(Error::dtype(format!("{call}: not implemented for {}; convert the tensor with to_dtype first", self.dtype)))
    }

    /// An error unless two views have one dtype: a movement does not convert.
    fn alike(&self, call: &str, a: View, b: View) -> Result<()> {
        if a.dtype == b.dtype { Ok(()) } else { self.refuse(&format!("{call} between {} and {}", a.dtype, b.dtype)) }
    }
}

macro_rules! refused {
    ($($name:ident($($arg:ty),*) $(-> $out:ty)?;)*) => {$(
        fn $name(&self, $(_: $arg),*) -> Result<refused!(@ $($out)?)> {
            self.refuse(stringify!($name))
        }
    )*};
    (@) => { () };
    (@ $out:ty) => { $out };
}

impl Backend for Carried {
    fn device(&self) -> Device {
        self.engine.device()
    }

    fn alloc(&'static self, bytes: usize) -> Result<Storage> {
        self.engine.alloc(bytes)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise; `alloc` handed out the engine's memory.
        unsafe { self.engine.free(ptr, bytes) }
    }

    fn upload(&self, src: &[u8], dst: &Storage, offset: usize) -> Result<()> {
        self.engine.upload(src, dst, offset)
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.engine.download(src, offset, dst)
    }

    fn synchronize(&self) -> Result<()> {
        self.engine.synchronize()
    }

    fn features(&self) -> Features {
        self.engine.features()
    }

    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        self.engine.allocator()
    }

    fn streams(&self) -> Option<&dyn Streams> {
        self.engine.streams()
    }

    fn capture(&self) -> Option<&dyn Capture> {
        self.engine.capture()
    }

    fn collectives(&self) -> Option<&dyn Collectives> {
        self.engine.collectives()
    }

    unsafe fn upload_pinned(&self, src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.engine.upload_pinned(src, bytes, dst, offset) }
    }

    fn copy_from_peer(&self, src: &Storage, src_offset: usize, dst: &Storage, bytes: usize) -> Result<bool> {
        self.engine.copy_from_peer(src, src_offset, dst, bytes)
    }

    fn fill(&self, value: Scalar, out: View) -> Result<()> {
        self.engine.fill(self.number(value), bits(out))
    }

    fn copy(&self, src: View, out: View) -> Result<()> {
        convert::copy(self.engine, src, out)
    }

    fn foreach_copy(&self, from: &[View], to: &[View]) -> Result<()> {
        from.iter().zip(to).try_for_each(|(from, to)| convert::copy(self.engine, *from, *to))
    }

    /// Integers, which wrap into the range of an unsigned dtype.
    fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()> {
        match distribution {
            Distribution::Integers { .. } if !self.dtype.is_float() => {
                let wide = convert::Temporary::new(self.engine, out, DType::I64)?;
                self.engine.random(distribution, stream, wide.view())?;
                self.engine.copy(wide.view(), bits(out))
            }
            _ => self.refuse("random"),
        }
    }

    fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
        for side in [a, b] {
            if let Operand::Tensor(view) = side {
                self.alike("where", view, out)?;
            }
        }
        self.engine.select(condition, self.operand(a), self.operand(b), bits(out))
    }

    fn flip(&self, x: View, flipped: &[bool], out: View) -> Result<bool> {
        self.engine.flip(bits(x), flipped, bits(out))
    }

    fn index(&self, x: View, indices: &[View], out: View) -> Result<()> {
        self.alike("index", x, out)?;
        self.engine.index(bits(x), indices, bits(out))
    }

    /// Unsigned sums have the bits of signed ones.
    fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
        self.alike("index_put", values, out)?;
        if accumulate && self.dtype.is_float() {
            return self.refuse("index_put with accumulate");
        }
        self.engine.index_put(indices, bits(values), accumulate, bits(out))
    }

    fn gather(&self, x: View, dim: usize, index: View, out: View) -> Result<()> {
        self.alike("gather", x, out)?;
        self.engine.gather(bits(x), dim, index, bits(out))
    }

    fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        if let Operand::Tensor(view) = src {
            self.alike("scatter", view, out)?;
        }
        match op {
            Scatter::Set => {}
            Scatter::Add | Scatter::Mul if !self.dtype.is_float() => {}
            _ => return self.refuse("scatter with a reduction"),
        }
        self.engine.scatter(op, dim, index, self.operand(src), bits(out))
    }

    computing_calls!(refused);

    refused! {
        kth(View, usize, Rank, View, View) -> bool;
        histogram(View, f64, f64, View) -> bool;
        resample(&Resample, View, View) -> bool;
        resample_backward(&Resample, View, View) -> bool;
        distances(f64, View, View, View) -> bool;
        count_nonzero(View) -> usize;
        matmul_gelu(&MatMul, View) -> bool;
        matmul_gelu_backward(&MatMul, View, View) -> bool;
        lstm_cell(View, View, View, View) -> bool;
        lstm_cell_backward(&LstmStep, View, View) -> bool;
    }

    fn pointwise(&self, op: Pointwise, _: DType, _: &[Operand], _: &[f64], _: View) -> Result<()> {
        self.refuse(op.name())
    }

    fn reduce(&self, op: Reduce, _: View, _: &[bool], _: View) -> Result<()> {
        let name = match op {
            Reduce::Norm { .. } => "norm".to_string(),
            Reduce::Var { .. } => "var".to_string(),
            other => format!("{other:?}").to_lowercase(),
        };
        self.refuse(&name)
    }
}
