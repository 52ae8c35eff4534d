//! Tensors for the tests of single kernels: memory of a `Vec`, and a backend that only names the device.

use rushlight_core::backend::*;
use rushlight_core::rng::Distribution;
use rushlight_core::{DType, Device, Element, Layout, Operand, Philox, Pointwise, Result, Scalar, Storage, View};
use std::ptr::NonNull;

struct Host;

#[allow(clippy::too_many_arguments)]
impl Backend for Host {
    fn device(&self) -> Device {
        Device::Cpu
    }
    fn alloc(&'static self, _: usize) -> Result<Storage> {
        unreachable!()
    }
    unsafe fn free(&self, _: NonNull<u8>, _: usize) {
        unreachable!()
    }
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
    fn pointwise(&self, _: Pointwise, _: DType, _: &[Operand], _: &[f64], _: View) -> Result<()> {
        unreachable!()
    }
    fn pointwise_grad(
        &self,
        _: Pointwise,
        _: usize,
        _: DType,
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

/// A tensor of any layout.
pub struct Array {
    storage: Storage,
    pub layout: Layout,
    dtype: DType,
}

impl Array {
    /// `data` as the whole storage under `layout`.
    pub fn new<T: Element>(data: Vec<T>, layout: Layout) -> Self {
        assert!(layout.numel() == 0 || layout.span().unwrap() <= data.len());
        let mut data = data.into_boxed_slice();
        let (ptr, bytes) = (NonNull::from(&mut *data).cast::<u8>(), size_of_val(&*data));
        // SAFETY: the boxed slice stays where it is for as long as the storage keeps it.
        let storage = unsafe { Storage::from_owner(&Host, ptr, bytes, Box::new(data)) };
        Self { storage, layout, dtype: T::DTYPE }
    }

    /// Row-major.
    pub fn contiguous<T: Element>(shape: &[usize], data: Vec<T>) -> Self {
        Self::new(data, Layout::contiguous(shape).unwrap())
    }

    /// Row-major, filled with the dtype's default.
    pub fn zeros(shape: &[usize], dtype: DType) -> Self {
        let layout = Layout::contiguous(shape).unwrap();
        rushlight_core::with_dtype!(dtype, T => Self::new(vec![T::default(); layout.numel()], layout))
    }

    pub fn view(&self) -> View<'_> {
        View::new(&self.storage, &self.layout, self.dtype).unwrap()
    }

    /// The elements in row-major order.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert_eq!(T::DTYPE, self.dtype);
        let nest = rushlight_core::layout::Nest::new(self.layout.shape(), [self.layout.strides()]);
        let ptr = self.view().ptr().cast::<T>();
        // SAFETY: the layout lies within the storage.
        (0..self.layout.numel()).map(|i| unsafe { *ptr.add(nest.offsets(i)[0]) }).collect()
    }

    /// The elements as `f64`.
    pub fn to_f64(&self) -> Vec<f64> {
        rushlight_core::with_dtype!(self.dtype, T => self.to_vec::<T>().into_iter().map(|v| v.to_f64()).collect())
    }
}

/// Reproducible numbers.
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.draw() as usize % n
    }

    /// Between -4 and 4, in steps of 1/8.
    pub fn value(&mut self) -> f64 {
        self.below(65) as f64 / 8.0 - 4.0
    }

    /// A tensor of `shape` with [`value`](Self::value)s (integers: -4 to 4), in one of several layouts: contiguous, permuted, with gaps.
    pub fn array(&mut self, shape: &[usize], dtype: DType) -> Array {
        let rank = shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        let style = self.below(3);
        if style > 0 {
            for i in (1..rank).rev() {
                order.swap(i, self.below(i + 1));
            }
        }
        let mut strides = vec![0; rank];
        let mut step = if style == 2 { 1 + self.below(3) } else { 1 };
        for &d in order.iter().rev() {
            strides[d] = step;
            step *= shape[d].max(1) + if style == 2 { self.below(2) } else { 0 };
        }
        let offset = if style == 2 { self.below(5) } else { 0 };
        let layout = Layout::strided(shape, &strides, offset).unwrap();
        let len = layout.span().unwrap().max(1);
        rushlight_core::with_dtype!(dtype, T => Array::new((0..len).map(|_| T::from_f64(self.value())).collect(), layout))
    }

    /// A random shape of the given rank with sizes up to `most`.
    pub fn shape(&mut self, rank: usize, most: usize) -> Vec<usize> {
        (0..rank).map(|_| self.below(most) + 1).collect()
    }
}
