use crate::testing::{Array, at_every_level};
use rushlight_core::rng::{Distribution, uniform_f32, uniform_f64};
use rushlight_core::{DType, Layout, Philox};
use rushlight_cpu::pointwise::CHUNK;
use rushlight_cpu::random::*;

const STREAM: Philox = Philox { seed: 0x1234_5678_9ABC_DEF0, offset: 0xFFFF_FFF0 };

fn drawn(distribution: Distribution, dtype: DType, n: usize) -> Array {
    let out = Array::new(dtype, &[n], |_| 0.0);
    random(distribution, STREAM, out.view()).unwrap();
    out
}

#[test]
fn words_are_the_stream_s() {
    let mut words = [0; CHUNK];
    // SAFETY: no precondition.
    unsafe { philox(STREAM, 5, &mut words) };
    assert!((0..CHUNK).all(|i| words[i] == STREAM.word(20 + i as u64)));
    assert!(words64(STREAM, CHUNK).iter().enumerate().all(|(i, &w)| w == STREAM.word64((CHUNK + i) as u64)));
}

#[test]
fn uniforms_follow_their_words_and_stay_below_high() {
    let d = Distribution::Uniform { low: -1.5, high: 2.5 };
    let (a, b) = (drawn(d, DType::F32, 9001), drawn(d, DType::F64, 2001));
    assert!((0..9001).all(|i| a.get(i) as f32 == uniform_f32(STREAM.word(i as u64)).mul_add(4.0, -1.5)));
    assert!((0..2001).all(|i| b.get(i) == -1.5 + uniform_f64(STREAM.word64(i as u64)) * 4.0));
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let d = Distribution::Uniform { low: 3.0, high: 3.0 + 1.0 / 64.0 };
        assert!(drawn(d, dtype, 5000).to_f64().iter().all(|&v| (3.0..3.0 + 1.0 / 64.0).contains(&v)), "{dtype}");
    }
    assert!(drawn(Distribution::Uniform { low: 2.0, high: 2.0 }, DType::F32, 9).to_f64().iter().all(|&v| v == 2.0));
}

#[test]
fn normals_come_in_pairs() {
    let n = 20_001;
    for dtype in [DType::F32, DType::F64] {
        let z = drawn(Distribution::Normal { mean: 1.0, std: 2.0 }, dtype, n).to_f64();
        for j in [0, 1, 511, 7000] {
            let u = |i: u64| {
                if dtype == DType::F64 { uniform_f64(STREAM.word64(i)) } else { uniform_f32(STREAM.word(i)) as f64 }
            };
            let (a, b) = (u(2 * j), u(2 * j + 1));
            let radius = (-2.0 * (1.0 - a).ln()).sqrt();
            let angle = std::f64::consts::TAU * b;
            assert!((z[2 * j as usize] - 1.0 - 2.0 * radius * angle.cos()).abs() < 1e-5);
            assert!((z[2 * j as usize + 1] - 1.0 - 2.0 * radius * angle.sin()).abs() < 1e-5);
        }
        let mean = z.iter().sum::<f64>() / n as f64;
        let variance = z.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean - 1.0).abs() < 0.05 && (variance - 4.0).abs() < 0.15, "{mean} {variance}");
    }
}

/// The values themselves are pinned: the fingerprints are those of the same steps in NumPy.
#[test]
fn normals_are_the_same_everywhere() {
    let mix = |hash: u64, bits: u64| hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ bits;
    at_every_level(|| {
        let d = Distribution::Normal { mean: 0.0, std: 1.0 };
        let narrow = drawn(d, DType::F32, 100_003).to_f64();
        let narrow = narrow.iter().fold(0, |hash, &x| mix(hash, (x as f32).to_bits().into()));
        let wide = drawn(d, DType::F64, 10_001).to_f64().iter().fold(0, |hash, x| mix(hash, x.to_bits()));
        assert_eq!([narrow, wide], [0x6b0f_15c0_6858_23ed, 0x5eaa_fd2d_11e0_b4f0]);
    });
}

#[test]
fn integers_of_any_range_and_dtype() {
    for dtype in [DType::I64, DType::I32, DType::U8, DType::F32, DType::F16] {
        let out = drawn(Distribution::Integers { low: 3, high: 10 }, dtype, 3000);
        for i in 0..3000 {
            let want = 3 + ((STREAM.word64(i as u64) as u128 * 7) >> 64) as i64;
            assert_eq!(out.int(i), want);
        }
    }
    let out = drawn(Distribution::Integers { low: i64::MIN, high: i64::MAX }, DType::I64, 2000);
    assert!((0..2000).any(|i| out.int(i) < -(1 << 62)) && (0..2000).any(|i| out.int(i) > 1 << 62));
    assert!(drawn(Distribution::Integers { low: 5, high: 5 }, DType::I64, 3).to_f64().iter().all(|&v| v == 5.0));
}

#[test]
fn bernoulli_draws_ones_below_p() {
    for dtype in [DType::F32, DType::Bool, DType::BF16, DType::F64, DType::I64] {
        for p in [0.0, 0.3, 1.0] {
            let out = drawn(Distribution::Bernoulli { p }, dtype, 4001);
            for i in 0..4001 {
                let wide = dtype == DType::F64 || dtype.is_int();
                let u = if wide { uniform_f64(STREAM.word64(i)) } else { uniform_f32(STREAM.word(i)) as f64 };
                assert_eq!(out.get(i as usize), (u < p) as u8 as f64, "{dtype}");
            }
        }
    }
}

#[test]
fn dropout_in_one_pass() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let layout = Layout::contiguous(&[70, 43]).unwrap().transpose(0, 1);
        let x = Array::with_layout(dtype, layout.clone(), |i| (i % 50) as f64 + 1.0);
        for out in [Array::new(dtype, &[43, 70], |_| 9.0), Array::with_layout(dtype, layout.clone(), |_| 9.0)] {
            dropout(x.view(), 0.5, STREAM, out.view()).unwrap();
            for i in 0..3010 {
                let keep = uniform_f32(STREAM.word(i as u64)) as f64 >= 0.5;
                assert_eq!(out.get(i), if keep { x.get(i) * 2.0 } else { 0.0 });
            }
        }
    }
    let x = Array::new(DType::F32, &[5000], |i| i as f64);
    dropout(x.view(), 0.0, STREAM, x.view()).unwrap();
    assert!((0..5000).all(|i| x.get(i) == i as f64));
    assert!(dropout(x.view(), 0.1, STREAM, Array::new(DType::I32, &[5000], |_| 0.0).view()).is_err());
}

#[test]
fn threads_do_not_matter() {
    let d = Distribution::Uniform { low: -0.7, high: 1.9 };
    let out = drawn(d, DType::F32, 50_000).to_f64();
    // Any part drawn separately is the same.
    let alone = Array::new(DType::F32, &[4096], |_| 0.0);
    random(d, Philox { offset: STREAM.offset.wrapping_add(8192 / 4), ..STREAM }, alone.view()).unwrap();
    assert_eq!(alone.to_f64(), out[8192..12_288]);
}
