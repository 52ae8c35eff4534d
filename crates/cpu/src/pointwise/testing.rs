//! Tensors for tests of single families, without an engine behind them.

use rushlight_core::backend::*;
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Device, Element, Layout, Philox, Pointwise, Result, Scalar, with_dtype};
use std::ptr::NonNull;

/// The owner of test storages; it is never asked to do anything.
struct NoEngine;

impl Backend for NoEngine {
    fn device(&self) -> Device {
        Device::Cpu
    }
    fn alloc(&'static self, _: usize) -> Result<Storage> {
        unreachable!()
    }
    unsafe fn free(&self, _: NonNull<u8>, _: usize) {}
    fn upload(&self, _: &[u8], _: &Storage, _: usize) -> Result<()> {
        unreachable!()
    }
    fn download(&self, _: &Storage, _: usize, _: &mut [u8]) -> Result<()> {
        unreachable!()
    }
    fn synchronize(&self) -> Result<()> {
        unreachable!()
    }
    fn memory_stats(&self) -> MemoryStats {
        unreachable!()
    }
    fn reset_peak_memory(&self) {
        unreachable!()
    }
    fn empty_cache(&self) {
        unreachable!()
    }
    fn fill(&self, _: Scalar, _: View) -> Result<()> {
        unreachable!()
    }
    fn arange(&self, _: Scalar, _: Scalar, _: View) -> Result<()> {
        unreachable!()
    }
    fn copy(&self, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn random(&self, _: Distribution, _: Philox, _: View) -> Result<()> {
        unreachable!()
    }
    fn pointwise(&self, _: Pointwise, _: rushlight_core::DType, _: &[Operand], _: &[f64], _: View) -> Result<()> {
        unreachable!()
    }
    fn pointwise_grad(
        &self,
        _: Pointwise,
        _: usize,
        _: rushlight_core::DType,
        _: [Option<Operand>; 5],
        _: &[f64],
        _: View,
    ) -> Result<()> {
        unreachable!()
    }
    fn select(&self, _: View, _: Operand, _: Operand, _: View) -> Result<()> {
        unreachable!()
    }
    fn dropout(&self, _: View, _: f64, _: Philox, _: View) -> Result<()> {
        unreachable!()
    }
    fn reduce(&self, _: Reduce, _: View, _: &[bool], _: View) -> Result<()> {
        unreachable!()
    }
    fn arg_reduce(&self, _: ArgReduce, _: View, _: usize, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn scan(&self, _: Scan, _: View, _: usize, _: View, _: Option<View>) -> Result<()> {
        unreachable!()
    }
    fn sort(&self, _: View, _: usize, _: bool, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn topk(&self, _: View, _: usize, _: bool, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn searchsorted(&self, _: View, _: View, _: bool, _: View) -> Result<()> {
        unreachable!()
    }
    fn index(&self, _: View, _: &[View], _: View) -> Result<()> {
        unreachable!()
    }
    fn index_put(&self, _: &[View], _: View, _: bool, _: View) -> Result<()> {
        unreachable!()
    }
    fn gather(&self, _: View, _: usize, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn scatter(&self, _: Scatter, _: usize, _: View, _: Operand, _: View) -> Result<()> {
        unreachable!()
    }
    fn count_nonzero(&self, _: View) -> Result<usize> {
        unreachable!()
    }
    fn nonzero(&self, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn matmul(&self, _: &MatMul) -> Result<()> {
        unreachable!()
    }
    fn conv_forward(&self, _: &Conv, _: View, _: View, _: Option<View>, _: View) -> Result<()> {
        unreachable!()
    }
    fn conv_backward_input(&self, _: &Conv, _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn conv_backward_weight(&self, _: &Conv, _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn max_pool(&self, _: &Pool, _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn max_pool_backward(&self, _: &Pool, _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn avg_pool(&self, _: &Pool, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn avg_pool_backward(&self, _: &Pool, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn softmax(&self, _: bool, _: [usize; 3], _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn softmax_backward(&self, _: bool, _: [usize; 3], _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn row_norm(
        &self,
        _: &RowNorm,
        _: View,
        _: Option<View>,
        _: Option<View>,
        _: View,
        _: View,
        _: View,
    ) -> Result<()> {
        unreachable!()
    }
    fn row_norm_backward(
        &self,
        _: &RowNorm,
        _: View,
        _: View,
        _: Option<View>,
        _: View,
        _: View,
        _: Option<View>,
        _: Option<View>,
        _: Option<View>,
    ) -> Result<()> {
        unreachable!()
    }
    fn batch_norm(
        &self,
        _: &BatchNorm,
        _: View,
        _: Option<View>,
        _: Option<View>,
        _: View,
        _: View,
        _: View,
    ) -> Result<()> {
        unreachable!()
    }
    fn batch_norm_backward(
        &self,
        _: &BatchNorm,
        _: View,
        _: View,
        _: Option<View>,
        _: View,
        _: View,
        _: Option<View>,
        _: Option<View>,
        _: Option<View>,
    ) -> Result<()> {
        unreachable!()
    }
    fn cross_entropy(&self, _: &CrossEntropy, _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn cross_entropy_backward(&self, _: &CrossEntropy, _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn attention(&self, _: &Attention, _: View, _: View) -> Result<()> {
        unreachable!()
    }
    fn attention_backward(&self, _: &Attention, _: View, _: View, _: View, _: View, _: View, _: View) -> Result<()> {
        unreachable!()
    }
}

/// A tensor.
pub(crate) struct Array {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Array {
    /// A tensor whose element `i` in row-major order is `f(i)`; the rest of its storage is filled with a pattern.
    pub fn with_layout(dtype: DType, layout: Layout, f: impl Fn(usize) -> f64) -> Self {
        let words = layout.span().unwrap() * dtype.size() / 8 + 1;
        let mut memory = vec![0x0101_0101_0101_0101u64; words];
        let ptr = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
        // SAFETY: the vector is kept alive, and no longer touched itself.
        let storage = unsafe { Storage::from_owner(&NoEngine, ptr, words * 8, Box::new(memory)) };
        let array = Self { storage, layout, dtype };
        for i in 0..array.layout.numel() {
            // SAFETY: the address is that of an element.
            with_dtype!(dtype, T => unsafe { array.address(i).cast::<T>().write(T::from_f64(f(i))) });
        }
        array
    }

    /// The same, contiguous.
    pub fn new(dtype: DType, shape: &[usize], f: impl Fn(usize) -> f64) -> Self {
        Self::with_layout(dtype, Layout::contiguous(shape).unwrap(), f)
    }

    /// The same elements seen through another layout.
    pub fn view_as<'a>(&'a self, layout: &'a Layout) -> View<'a> {
        View::new(&self.storage, layout, self.dtype).unwrap()
    }

    pub fn view(&self) -> View<'_> {
        self.view_as(&self.layout)
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn address(&self, i: usize) -> *mut u8 {
        let nest = rushlight_core::layout::Nest::new(self.layout.shape(), [self.layout.strides()]);
        let at = self.layout.offset() + nest.offsets(i)[0];
        self.storage.ptr().wrapping_add(at * self.dtype.size())
    }

    /// Element `i` in row-major order.
    pub fn get(&self, i: usize) -> f64 {
        // SAFETY: the address is that of an element.
        with_dtype!(self.dtype, T => unsafe { self.address(i).cast::<T>().read() }.to_f64())
    }

    pub fn int(&self, i: usize) -> i64 {
        // SAFETY: the address is that of an element.
        with_dtype!(self.dtype, T => unsafe { self.address(i).cast::<T>().read() }.to_i64())
    }

    pub fn values(&self) -> Vec<f64> {
        (0..self.layout.numel()).map(|i| self.get(i)).collect()
    }
}
