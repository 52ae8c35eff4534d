//! Reductions of this library as MPI operations, so that every dtype and rule (NaN in minima, sums of truth values) is
//! the same as in the other engines.

use super::abi::{Combine, Handle};
use crate::comm::{ReduceOp, Span, reduce};
use rushlight_core::DType;
use std::ffi::{c_int, c_void};

const OPS: usize = ReduceOp::ALL.len();

/// `inout = inout op input`, called by MPI.
///
/// # Safety
/// As MPI promises: both arrays have `len` elements of the type that the operation is used with.
unsafe extern "C" fn combine<const DTYPE: usize, const OP: usize>(
    input: *mut c_void,
    inout: *mut c_void,
    len: *mut c_int,
    _: *mut Handle,
) {
    let (dtype, op) = (DType::COMPUTED[DTYPE], ReduceOp::ALL[OP]);
    // SAFETY: by contract.
    unsafe {
        let bytes = usize::try_from(*len).unwrap_or(0) * dtype.size();
        let (acc, src) = (Span { ptr: inout.cast(), len: bytes }, Span { ptr: input.cast(), len: bytes });
        reduce(dtype, op, acc, src);
    }
}

macro_rules! table {
    ($($dtype:literal)*) => {
        [$([
            combine::<$dtype, 0>, combine::<$dtype, 1>, combine::<$dtype, 2>, combine::<$dtype, 3>,
            combine::<$dtype, 4>, combine::<$dtype, 5>, combine::<$dtype, 6>, combine::<$dtype, 7>,
        ]),*]
    };
}
static TABLE: [[Combine; OPS]; DType::COMPUTED.len()] = table!(0 1 2 3 4 5 6 7 8 9);

/// The function that combines elements of a dtype.
pub(super) fn function(dtype: DType, op: ReduceOp) -> Option<Combine> {
    let row = DType::COMPUTED.iter().position(|d| *d == dtype)?;
    let column = ReduceOp::ALL.iter().position(|o| *o == op)?;
    Some(TABLE[row][column])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_and_op_has_a_function() {
        for dtype in DType::COMPUTED {
            for op in ReduceOp::ALL {
                assert!(function(dtype, op).is_some(), "{dtype} {op}");
            }
        }
        let (mut a, mut b, mut n) = ([1i16, 2, 3], [10i16, 20, 30], 2);
        let add = function(DType::I16, ReduceOp::Sum).unwrap();
        // SAFETY: two arrays of this frame.
        unsafe { add(a.as_mut_ptr().cast(), b.as_mut_ptr().cast(), &mut n, std::ptr::null_mut()) };
        assert_eq!(b, [11, 22, 30]);
    }
}
