//! Properties of tensors, their memory, their life.

use crate::handle::{all, borrow, give, optional, put, rl_tensor, slice, take};
use crate::status::rl_status;
use crate::values::{RL_TENSOR, rl_value};
use crate::{device, dtype};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{DType, Error, Layout, Result, Storage};
use rushlight_tensor::{Arg, Tensor, result_type};
use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// Called when the last tensor over foreign memory is freed.
pub type rl_deleter = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Foreign memory of a tensor.
struct Owner {
    deleter: rl_deleter,
    context: *mut c_void,
}

// SAFETY: the context is only passed to the deleter, which the header requires to be callable from any thread.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: once, with the context it was given with.
            unsafe { deleter(self.context) }
        }
    }
}

pub fn sizes(ints: &[i64]) -> Result<SmallVec<[usize; 6]>> {
    let negative = |i: i64| Error::shape(format!("negative size {i} in {ints:?}; sizes cannot be negative"));
    ints.iter().map(|&i| usize::try_from(i).map_err(|_| negative(i))).collect()
}

api! {
    /// Another reference to the same tensor.
    fn rl_tensor_ref(tensor: *const rl_tensor) -> *mut rl_tensor, (std::ptr::null_mut()) {
        // SAFETY: null or a live handle, as the header says of every function here.
        unsafe { optional(tensor) }.map_or(std::ptr::null_mut(), give)
    }
    /// Frees a reference; null is allowed.
    fn rl_tensor_free(tensor: *mut rl_tensor) -> (), (()) {
        if !tensor.is_null() {
            // SAFETY: as above; the caller does not use it again.
            drop(unsafe { take(tensor) });
        }
    }
    /// The number of dimensions.
    fn rl_tensor_dim(tensor: *const rl_tensor) -> usize, (0) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(0, |t| t.rank())
    }
    /// The sizes, valid as long as the reference.
    fn rl_tensor_sizes(tensor: *const rl_tensor) -> *const i64, (std::ptr::null()) {
        // SAFETY: as above. Sizes are below 2^63.
        unsafe { borrow(tensor) }.map_or(std::ptr::null(), |t| t.shape().as_ptr().cast())
    }
    /// The strides in elements, valid as long as the reference.
    fn rl_tensor_strides(tensor: *const rl_tensor) -> *const i64, (std::ptr::null()) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(std::ptr::null(), |t| t.strides().as_ptr().cast())
    }
    /// The number of elements.
    fn rl_tensor_numel(tensor: *const rl_tensor) -> usize, (0) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(0, |t| t.numel())
    }
    /// The dtype's number; -1 for null.
    fn rl_tensor_dtype(tensor: *const rl_tensor) -> i32, (-1) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(-1, |t| dtype::number(t.dtype()))
    }
    /// The kind of the tensor's device; `index`, unless null, receives its index.
    fn rl_tensor_device(tensor: *const rl_tensor, index: *mut usize) -> i32, (-1) {
        // SAFETY: as above.
        let Ok(tensor) = (unsafe { borrow(tensor) }) else { return -1 };
        if !index.is_null() {
            // SAFETY: a place for the index.
            unsafe { index.write(tensor.device().index()) };
        }
        device::number(tensor.device())
    }
    /// The address of the first element, on the tensor's device. Elements lie at multiples of the strides.
    fn rl_tensor_data(tensor: *const rl_tensor) -> *mut c_void, (std::ptr::null_mut()) {
        // SAFETY: as above.
        let Ok(tensor) = (unsafe { borrow(tensor) }) else { return std::ptr::null_mut() };
        // What a program does with memory is not among the calls of a recorded function.
        rushlight_tensor::compile::break_graph("C or C++ code uses the memory of a tensor");
        let offset = tensor.layout().offset() * tensor.dtype().size();
        tensor.storage().ptr().wrapping_add(offset).cast()
    }
    /// Offset of the first element in its storage, in elements.
    fn rl_tensor_offset(tensor: *const rl_tensor) -> usize, (0) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(0, |t| t.layout().offset())
    }
    /// Whether elements lie one after the other in C's order.
    fn rl_tensor_is_contiguous(tensor: *const rl_tensor) -> bool, (false) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.is_ok_and(|t| t.is_contiguous())
    }
    /// A number that is the same for references to the same tensor.
    fn rl_tensor_id(tensor: *const rl_tensor) -> usize, (0) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(0, |t| t.id())
    }
    /// The number of in-place changes of the tensor's memory.
    fn rl_tensor_version(tensor: *const rl_tensor) -> u32, (0) {
        // SAFETY: as above.
        unsafe { borrow(tensor) }.map_or(0, |t| t.version())
    }
    /// Whether two tensors share memory.
    fn rl_tensor_shares_storage(a: *const rl_tensor, b: *const rl_tensor) -> bool, (false) {
        // SAFETY: as above.
        match unsafe { (borrow(a), borrow(b)) } {
            (Ok(a), Ok(b)) => a.shares_storage(&b),
            _ => false,
        }
    }
    /// The value of a tensor of one element.
    fn rl_tensor_item(tensor: *const rl_tensor, out: *mut rl_value) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, borrow(tensor)?.to_scalar()?.into()) }
    }
    /// A tensor over memory of the CPU that the caller provides: `dim` sizes, and strides in elements or null. The
    /// memory stays valid until `deleter` is called with `context`, from any thread; a null deleter means that it
    /// outlives the tensor.
    fn rl_tensor_from_blob(
        data: *mut c_void, sizes: *const i64, strides: *const i64, dim: usize, dtype: i32,
        deleter: rl_deleter, context: *mut c_void, out: *mut *mut rl_tensor,
    ) -> rl_status, try {
        let owner = Owner { deleter, context };
        // SAFETY: arrays of `dim` integers, as the header says.
        let shape = self::sizes(unsafe { slice(sizes, dim) })?;
        let layout = match strides.is_null() {
            true => Layout::contiguous(&shape)?,
            // SAFETY: as above.
            false => Layout::strided(&shape, &self::sizes(unsafe { slice(strides, dim) })?, 0)?,
        };
        let dtype = dtype::of(dtype)?;
        let bytes = layout.span()?.checked_mul(dtype.size()).ok_or_else(|| Error::value("from_blob: too large"))?;
        if data.is_null() && bytes > 0 {
            return Err(Error::value("from_blob: the address is null"));
        }
        if !data.addr().is_multiple_of(dtype.size()) {
            return Err(Error::value("from_blob: the address is not aligned for the dtype"));
        }
        let address = NonNull::new(data.cast::<u8>()).unwrap_or(NonNull::dangling());
        let backend = rushlight_engines::backend(rushlight_core::Device::Cpu)?;
        // SAFETY: the caller's promise of valid memory until the deleter runs.
        unsafe {
            let storage = Storage::from_owner(backend, address, bytes, Box::new(owner));
            put(out, give(Tensor::from_storage(Arc::new(storage), layout, dtype)?))
        }
    }
    /// A tensor with copies of elements of its dtype in C's order.
    fn rl_tensor_from_data(
        data: *const c_void, sizes: *const i64, dim: usize, dtype: i32, out: *mut *mut rl_tensor,
    ) -> rl_status, try {
        // SAFETY: as above.
        let shape = self::sizes(unsafe { slice(sizes, dim) })?;
        let tensor = Tensor::empty_with(&shape[..], dtype::of(dtype)?)?;
        let bytes = tensor.numel() * tensor.dtype().size();
        if bytes > 0 {
            if data.is_null() {
                return Err(Error::value("from_data: the address is null"));
            }
            // SAFETY: the caller's elements; the new tensor is contiguous, on the CPU, and not shared yet.
            unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), tensor.storage().ptr(), bytes) };
        }
        // SAFETY: a place for the result.
        unsafe { put(out, give(tensor)) }
    }
    /// Copies the elements, in C's order and in the tensor's dtype, to memory of `bytes` bytes; waits for the device.
    fn rl_tensor_to_data(tensor: *const rl_tensor, data: *mut c_void, bytes: usize) -> rl_status, try {
        // SAFETY: as above.
        let tensor = unsafe { borrow(tensor)? }.detach().to(rushlight_core::Device::Cpu)?.contiguous()?;
        let held = tensor.numel() * tensor.dtype().size();
        if bytes != held {
            return Err(Error::value(format!("to_data: the tensor has {held} bytes, the memory {bytes}")));
        }
        let offset = tensor.layout().offset() * tensor.dtype().size();
        if held > 0 {
            // SAFETY: contiguous on the CPU; the caller's memory has as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(tensor.storage().ptr().add(offset), data.cast::<u8>(), held) };
        }
        Ok(())
    }
    /// LibTorch's name of a dtype, for example "Float"; null if there is none of that number.
    fn rl_dtype_name(dtype: i32) -> *const c_char, (std::ptr::null()) {
        dtype::NUMBERS.iter().find(|(n, _, _)| *n == dtype).map_or(std::ptr::null(), |(_, _, name)| name.as_ptr())
    }
    /// The dtype that an op of these tensors computes in.
    fn rl_result_type(tensors: *const *mut rl_tensor, count: usize, out: *mut i32) -> rl_status, try {
        // SAFETY: as above.
        let tensors = unsafe { all(tensors, count)? };
        // SAFETY: as above.
        unsafe { combined(&tensors.iter().map(Arg::Tensor).collect::<Vec<_>>(), out) }
    }
    /// The dtype that an op of these values, tensors and numbers, computes in.
    fn rl_result_type_of(values: *const rl_value, count: usize, out: *mut i32) -> rl_status, try {
        // SAFETY: an array of `count` values, whose tensors are alive.
        let values = unsafe { slice(values, count) };
        // SAFETY: as above.
        let tensors = values.iter().filter(|v| v.kind == RL_TENSOR).map(|v| unsafe { borrow(v.data.tensor) });
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let mut next = tensors.iter();
        let args = values.iter().map(|value| match value.kind {
            RL_TENSOR => next.next().map(|t| Arg::Tensor(t)).ok_or_else(|| Error::value("result_type: no tensor")),
            // SAFETY: a number's parts are what its kind says.
            _ => unsafe { value.scalar() }
                .map(Arg::Scalar)
                .ok_or_else(|| Error::value("result_type: a value that is neither a tensor nor a number")),
        });
        // SAFETY: as above.
        unsafe { combined(&args.collect::<Result<Vec<_>>>()?, out) }
    }
    /// The dtype in which tensors of two dtypes combine.
    fn rl_promote_types(a: i32, b: i32, out: *mut i32) -> rl_status, try {
        let (a, b) = (dtype::of(a)?, dtype::of(b)?);
        if !a.promotes(b) {
            return Err(Error::dtype(format!("Promotion for {a} and {b} is not supported; cast one of them")));
        }
        // SAFETY: a place for the result.
        unsafe { put(out, dtype::number(a.promote(b))) }
    }
    /// Whether in-place ops may write values of one dtype to a tensor of another.
    fn rl_can_cast(from: i32, to: i32, out: *mut bool) -> rl_status, try {
        let (from, to) = (dtype::of(from)?, dtype::of(to)?);
        let kinds = from.category() <= to.category();
        // SAFETY: a place for the result.
        unsafe { put(out, from == to || kinds && !(to == DType::U8 && from.is_int() && from != DType::U8)) }
    }
}

/// Writes the number of the dtype in which values combine.
///
/// # Safety
/// `out` is null or a place for a number.
unsafe fn combined(args: &[Arg], out: *mut i32) -> Result<()> {
    if args.is_empty() {
        return Err(Error::value("result_type: no tensors"));
    }
    // SAFETY: by this function's contract.
    unsafe { put(out, dtype::number(result_type(args))) }
}
