//! placeholder
use rushlight_core::layout::Nest;
use rushlight_core::*;
pub fn fill(value: Scalar, out: View) -> Result<()> {
    let nest = Nest::new(out.shape(), [out.strides()]);
    with_dtype!(out.dtype, T => for i in 0..out.numel() { unsafe { *(out.ptr() as *mut T).add(nest.offsets(i)[0]) = value.to::<T>() } });
    Ok(())
}
pub fn arange(start: Scalar, step: Scalar, out: View) -> Result<()> {
    let nest = Nest::new(out.shape(), [out.strides()]);
    with_dtype!(out.dtype, T => for i in 0..out.numel() { unsafe { *(out.ptr() as *mut T).add(nest.offsets(i)[0]) =
        match (start, step) { (Scalar::Int(a), Scalar::Int(s)) => T::from_i64(a.wrapping_add(s.wrapping_mul(i as i64))), _ => T::from_f64(start.to_f64() + i as f64 * step.to_f64()) } } });
    Ok(())
}
pub fn copy(src: View, out: View) -> Result<()> {
    let nest = Nest::new(out.shape(), [src.strides(), out.strides()]);
    with_dtype!(src.dtype, S => with_dtype!(out.dtype, T => for i in 0..out.numel() { let [a, b] = nest.offsets(i); unsafe {
        let v = *(src.ptr() as *const S).add(a);
        *(out.ptr() as *mut T).add(b) = if S::DTYPE.is_float() { T::from_f64(v.to_f64()) } else { T::from_i64(v.to_i64()) } } }));
    Ok(())
}
