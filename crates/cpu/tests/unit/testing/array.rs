//! Tensors for the tests of single kernels.

use rushlight_core::layout::Nest;
use rushlight_core::{DType, Element, Layout, Storage, View, with_dtype};
use std::ptr::NonNull;

/// A tensor of any layout.
pub struct Array {
    storage: Storage,
    pub layout: Layout,
    dtype: DType,
}

impl Array {
    /// `data` as the whole storage under `layout`.
    pub fn over<T: Element>(data: Vec<T>, layout: Layout) -> Self {
        assert!(layout.numel() == 0 || layout.span().unwrap() <= data.len());
        let mut data = data.into_boxed_slice();
        let (ptr, bytes) = (NonNull::from(&mut *data).cast::<u8>(), size_of_val(&*data));
        // SAFETY: the boxed slice stays where it is for as long as the storage keeps it.
        let storage = unsafe { Storage::from_owner(crate::backend(), ptr, bytes, Box::new(data)) };
        Self { storage, layout, dtype: T::DTYPE }
    }

    /// Row-major.
    pub fn contiguous<T: Element>(shape: &[usize], data: Vec<T>) -> Self {
        Self::over(data, Layout::contiguous(shape).unwrap())
    }

    /// Row-major, filled with the dtype's default.
    pub fn zeros(shape: &[usize], dtype: DType) -> Self {
        let layout = Layout::contiguous(shape).unwrap();
        with_dtype!(dtype, T => Self::over(vec![T::default(); layout.numel()], layout))
    }

    /// A tensor whose element `i` in row-major order is `f(i)`; the rest of its storage holds ones.
    pub fn with_layout(dtype: DType, layout: Layout, f: impl Fn(usize) -> f64) -> Self {
        let len = layout.span().unwrap() + 1;
        let array = with_dtype!(dtype, T => Self::over(vec![T::from_i64(1); len], layout));
        for i in 0..array.layout.numel() {
            // SAFETY: the address is that of an element.
            with_dtype!(dtype, T => unsafe { array.address(i).cast::<T>().write(T::from_f64(f(i))) });
        }
        array
    }

    /// The same, row-major.
    pub fn new(dtype: DType, shape: &[usize], f: impl Fn(usize) -> f64) -> Self {
        Self::with_layout(dtype, Layout::contiguous(shape).unwrap(), f)
    }

    pub fn view(&self) -> View<'_> {
        self.view_as(&self.layout)
    }

    /// The same memory seen through another layout.
    pub fn view_as<'a>(&'a self, layout: &'a Layout) -> View<'a> {
        View::new(&self.storage, layout, self.dtype).unwrap()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn address(&self, i: usize) -> *mut u8 {
        let nest = Nest::new(self.layout.shape(), [self.layout.strides()]);
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

    /// The elements in row-major order.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert_eq!(T::DTYPE, self.dtype);
        // SAFETY: the addresses are those of elements.
        (0..self.layout.numel()).map(|i| unsafe { self.address(i).cast::<T>().read() }).collect()
    }

    /// The whole storage in memory order.
    pub fn storage_to_vec<T: Element>(&self) -> Vec<T> {
        assert_eq!(T::DTYPE, self.dtype);
        let len = self.storage.bytes() / size_of::<T>();
        // SAFETY: the storage holds as many elements.
        (0..len).map(|i| unsafe { self.storage.ptr().cast::<T>().add(i).read() }).collect()
    }

    /// The elements as `f64`.
    pub fn to_f64(&self) -> Vec<f64> {
        (0..self.layout.numel()).map(|i| self.get(i)).collect()
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

    /// A tensor of `shape` with [`value`](Self::value)s (integers: -4 to 4), in one of several layouts: contiguous,
    /// permuted, with gaps.
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
        with_dtype!(dtype, T => Array::over((0..len).map(|_| T::from_f64(self.value())).collect(), layout))
    }

    /// A random shape of the given rank with sizes up to `most`.
    pub fn shape(&mut self, rank: usize, most: usize) -> Vec<usize> {
        (0..rank).map(|_| self.below(most) + 1).collect()
    }
}
