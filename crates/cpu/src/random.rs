//! placeholder
use rushlight_core::layout::Nest;
use rushlight_core::rng::*;
use rushlight_core::*;
pub fn random(d: Distribution, s: Philox, out: View) -> Result<()> {
    let nest = Nest::new(out.shape(), [out.strides()]);
    with_dtype!(out.dtype, T => for i in 0..out.numel() {
        let u = |i: usize| if T::DTYPE == DType::F64 { uniform_f64(s.word64(i as u64)) } else { uniform_f32(s.word(i as u64)) as f64 };
        let v = match d {
            Distribution::Uniform { low, high } => T::from_f64(low + u(i) * (high - low)),
            Distribution::Normal { mean, std } => { let (a, b) = (u(i / 2 * 2), u(i / 2 * 2 + 1)); let r = (-2.0 * (1.0 - a).ln()).sqrt(); let t = b * std::f64::consts::TAU; T::from_f64(mean + std * r * if i % 2 == 0 { t.cos() } else { t.sin() }) }
            Distribution::Integers { low, high } => T::from_i64(low.wrapping_add(((s.word64(i as u64) as u128 * (high as i128 - low as i128) as u128) >> 64) as i64)),
            Distribution::Bernoulli { p } => T::from_f64((u(i) < p) as u8 as f64),
        };
        unsafe { *(out.ptr() as *mut T).add(nest.offsets(i)[0]) = v }
    });
    Ok(())
}
pub fn dropout(x: View, p: f64, s: Philox, out: View) -> Result<()> {
    let nest = Nest::new(out.shape(), [x.strides(), out.strides()]);
    with_dtype!(out.dtype, T => for i in 0..out.numel() { let [a, b] = nest.offsets(i); unsafe {
        let v = (*(x.ptr() as *const T).add(a)).to_f64();
        *(out.ptr() as *mut T).add(b) = T::from_f64(if uniform_f32(s.word(i as u64)) as f64 >= p { v / (1.0 - p) } else { 0.0 }) } });
    Ok(())
}
