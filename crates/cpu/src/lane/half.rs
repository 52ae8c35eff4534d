//! Half types to and from `f32` by bit operations that vectorise everywhere.

/// The value of IEEE half-precision bits.
#[inline(always)]
pub fn f16_to_f32(h: u16) -> f32 {
    let magnitude = (h as u32 & 0x7FFF) << 13;
    // With the exponent field shifted, the value is 2^112 too small; the product also normalises denormals.
    let finite = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
    let bits = if magnitude >= 0x0F80_0000 { magnitude | 0x7F80_0000 } else { finite.to_bits() };
    f32::from_bits(bits | (h as u32 & 0x8000) << 16)
}

/// The nearest half-precision bits, ties to even.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7FFF_FFFF;
    let normal = magnitude.wrapping_add(0xC800_0FFF).wrapping_add(magnitude >> 13 & 1) >> 13;
    // Below 2^-14: adding 0.5 puts the denormal's bits at the end of the mantissa, rounded.
    let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3F00_0000);
    let huge = if magnitude > 0x7F80_0000 { 0x7E00 } else { 0x7C00 };
    let h = if magnitude < 0x3880_0000 { denormal } else { normal };
    let h = if magnitude >= 0x4780_0000 { huge } else { h };
    (h | bits >> 16 & 0x8000) as u16
}

/// The value of bfloat16 bits.
#[inline(always)]
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits((h as u32) << 16)
}

/// The nearest bfloat16 bits, ties to even.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF).wrapping_add(bits >> 16 & 1) >> 16;
    (if bits & 0x7FFF_FFFF > 0x7F80_0000 { bits >> 16 | 0x40 } else { rounded }) as u16
}
