//! Tensors of either engine, and the comparison.

use rushlight_core::Result;
use rushlight_core::backend::{Backend, Call, Storage, View, execute};
use rushlight_core::{DType, Element, Layout, Philox, with_dtype};

pub const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
pub const STREAM: Philox = Philox { seed: 0x1234_5678_9ABC_DEF0, offset: 0xFFFF_FFF7 };

/// The dtype of statistics.
pub fn wide(dtype: DType) -> DType {
    dtype.compute()
}

pub struct Tensor {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Tensor {
    /// Element `i` in row-major order is `f(i)`; the rest of its storage holds ones.
    pub fn with_layout(engine: &'static dyn Backend, dtype: DType, layout: Layout, f: impl Fn(usize) -> f64) -> Self {
        let len = if layout.numel() == 0 { 0 } else { layout.span().unwrap() };
        let mut values = vec![1.0; len];
        (0..layout.numel()).for_each(|i| values[place(&layout, i)] = f(i));
        let bytes: Vec<u8> = with_dtype!(dtype, T => values.iter().flat_map(|&v| to_bytes(T::from_f64(v))).collect());
        let storage = engine.alloc(bytes.len()).unwrap();
        engine.upload(&bytes, &storage, 0).unwrap();
        Self { storage, layout, dtype }
    }

    pub fn new(engine: &'static dyn Backend, dtype: DType, shape: &[usize], f: impl Fn(usize) -> f64) -> Self {
        Self::with_layout(engine, dtype, Layout::contiguous(shape).unwrap(), f)
    }

    /// Reproducible numbers between -2 and 2.
    pub fn random(engine: &'static dyn Backend, dtype: DType, shape: &[usize], seed: u64) -> Self {
        Self::new(engine, dtype, shape, |i| number(seed, i))
    }

    /// A result tensor.
    pub fn out(engine: &'static dyn Backend, dtype: DType, shape: &[usize]) -> Self {
        Self::new(engine, dtype, shape, |_| 77.0)
    }

    pub fn view(&self) -> View<'_> {
        View::new(&self.storage, &self.layout, self.dtype).unwrap()
    }

    /// The elements in row-major order.
    pub fn values(&self) -> Vec<f64> {
        let mut bytes = vec![0; self.storage.bytes()];
        self.storage.backend().download(&self.storage, 0, &mut bytes).unwrap();
        let size = self.dtype.size();
        let value =
            |i: usize| with_dtype!(self.dtype, T => from_bytes::<T>(&bytes[place(&self.layout, i) * size..][..size]));
        (0..self.layout.numel()).map(value).collect()
    }
}

fn place(layout: &Layout, i: usize) -> usize {
    let nest = rushlight_core::layout::Nest::new(layout.shape(), [layout.strides()]);
    layout.offset() + nest.offsets(i)[0]
}

fn to_bytes<T: Element>(v: T) -> Vec<u8> {
    let size = size_of::<T>();
    match T::DTYPE {
        DType::F32 => (v.to_f64() as f32).to_ne_bytes().to_vec(),
        DType::F64 => v.to_f64().to_ne_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(v.to_f64()).to_ne_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(v.to_f64()).to_ne_bytes().to_vec(),
        _ => v.to_i64().to_le_bytes()[..size].to_vec(),
    }
}

fn from_bytes<T: Element>(bytes: &[u8]) -> f64 {
    match (T::DTYPE, bytes) {
        (DType::F32, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]) as f64,
        (DType::F64, bytes) => f64::from_ne_bytes(bytes.try_into().unwrap()),
        (DType::F16, &[a, b]) => half::f16::from_ne_bytes([a, b]).to_f64(),
        (DType::BF16, &[a, b]) => half::bf16::from_ne_bytes([a, b]).to_f64(),
        (_, bytes) => {
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            let unused = 64 - 8 * bytes.len() as u32;
            let signed = i64::from_le_bytes(wide) << unused >> unused;
            T::from_i64(signed).to_f64()
        }
    }
}

/// Number `i` of a reproducible sequence between -2 and 2.
pub fn number(seed: u64, i: usize) -> f64 {
    let word = Philox { seed, offset: 0 }.word(i as u64);
    f64::from(rushlight_core::rng::uniform_f32(word)) * 4.0 - 2.0
}

/// Tolerance of a dtype, relative to the largest value.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 0.0,
    }
}

/// Runs `f` with the engine's own kernels and with the default bodies, and compares the results.
pub fn compare(what: &str, f: impl Fn(&'static dyn Backend) -> Vec<Tensor>) {
    let (fused, composed) = (f(rushlight_cpu::backend()), f(rushlight_cpu::composed()));
    assert_eq!(fused.len(), composed.len());
    for (n, (a, b)) in fused.iter().zip(&composed).enumerate() {
        let (want, got) = (a.values(), b.values());
        let largest = want.iter().filter(|v| v.is_finite()).fold(1.0, |m: f64, v| m.max(v.abs()));
        let most = tolerance(a.dtype) * largest;
        for (i, (&w, &g)) in want.iter().zip(&got).enumerate() {
            let same = w == g || w.is_nan() && g.is_nan() || (w - g).abs() <= most;
            assert!(same, "{what}: result {n}, element {i}: kernel {w}, default body {g} (tolerance {most})");
        }
    }
}

/// Runs a call on an engine, its default body where the engine declines it.
pub fn run<'v>(engine: &dyn Backend, call: impl Into<Call<View<'v>>>) -> Result<()> {
    // SAFETY: the tests make arrays of the shapes that a call asks for.
    unsafe { execute(engine, &call.into()) }
}
