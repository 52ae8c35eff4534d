//! Normal values in pairs, by Box and Muller's transform: the same bits on every instruction set and device.
//!
//! All steps are operations that IEEE 754 rounds correctly, and none is fused. `kernels/random.cu` has the same steps
//! in the same order. Logarithm, sine and cosine are polynomials over reduced arguments, good to about one unit in the
//! last place.

/// The functions for a float and its bits: number of mantissa bits, the bits of √½, ln 2 in two parts, and the
/// polynomials' coefficients, constant first.
macro_rules! normal {
    (
        $pair:ident $float:ident $bits:ident $signed:ident $mantissa:literal
        sqrt_half $sqrt_half:literal ln2 [$ln2_high:literal, $ln2_low:literal]
        log $log:tt sin $sin:tt cos $cos:tt
    ) => {
        /// Two independent standard normals, times `std`, plus `mean`, from two uniforms in `[0, 1)`.
        #[inline(always)]
        pub fn $pair(a: $float, b: $float, mean: $float, std: $float) -> [$float; 2] {
            #[inline(always)]
            fn polynomial<const N: usize>(coefficients: [$float; N], x: $float) -> $float {
                let mut sum = coefficients[N - 1];
                for i in (0..N - 1).rev() {
                    sum = sum * x + coefficients[i];
                }
                sum
            }

            // log(1 - a): x = 2^e m with m in [√½, √2), and log m = 2 atanh(s).
            let x = (1.0 as $float - a).to_bits();
            let e = (x.wrapping_sub($sqrt_half) as $signed) >> $mantissa;
            let m = $float::from_bits(x.wrapping_sub((e << $mantissa) as $bits));
            let e = e as $float;
            let s = (m - 1.0) / (m + 1.0);
            let z = s * s;
            let log = e * $ln2_high + ((s + s) + s * (z * polynomial($log, z)) + e * $ln2_low);
            let radius = (-2.0 * log).sqrt() * std;

            // The angle is b turns: a whole number of quarters and r turns, an eighth at most.
            let quarters = b * 4.0;
            // Counted by comparisons, which vectorise; a checked conversion does not.
            let at_least = |bound: $float| (quarters >= bound) as i32;
            let k = at_least(0.5) + at_least(1.5) + at_least(2.5) + at_least(3.5);
            let r = (quarters - k as $float) * 0.25;
            let z = r * r;
            let sin = r * (core::$float::consts::TAU + z * polynomial($sin, z));
            let cos = 1.0 + z * polynomial($cos, z);
            let (sin, cos) = if k & 1 == 0 { (sin, cos) } else { (cos, sin) };
            // Negates where the sine of the angle, or of the next quadrant for the cosine, is negative.
            let flip =
                |x: $float, half: i32| $float::from_bits(x.to_bits() ^ ((half as $bits & 2) << ($bits::BITS - 2)));
            [radius * flip(cos, k + 1) + mean, radius * flip(sin, k) + mean]
        }
    };
}

normal! {
    pair32 f32 u32 i32 23
    sqrt_half 0x3F35_04F3 ln2 [0.693359375, -0.000212194442]
    log [0.666666687, 0.400001228, 0.285507798, 0.233316138]
    sin [-41.3417015, 81.6052322, -76.7012863, 41.5894966]
    cos [-19.7392082, 64.9393692, -85.448822, 59.4240227]
}

normal! {
    pair64 f64 u64 i64 52
    sqrt_half 0x3FE6_A09E_667F_3BCD ln2 [0.6931467056274414, 4.7493250390316726e-07]
    log [
        0.6666666666666666, 0.40000000000000885, 0.28571428570799784, 0.22222222392581045, 0.18181795547521137,
        0.15386244737621665, 0.13268638369266825, 0.13088034850927555
    ]
    sin [
        -41.34170224039976, 81.60524927607506, -76.70585975306138, 42.05869394489034, -15.094642574983526,
        3.8199523336460497, -0.7181032931106821, 0.10347973052351776
    ]
    cos [
        -19.739208802178716, 64.9393940226683, -85.45681720669369, 60.244641371854556, -26.42625677781518,
        7.903535612111678, -1.7143332579614863, 0.279740560419968
    ]
}
