//! Random fills and dropout: Philox words by the vector, turned into values in the same pass.
//!
//! Every element's words are numbered by its position alone, and every step rounds the same everywhere, so results do
//! not depend on threads, instruction sets or devices.

use crate::isa::Isa;
use crate::multiversion;
use crate::normal;
use crate::pointwise::convert::converter;
use crate::pointwise::produce::produce;
use crate::pointwise::walk::{Strided, is_dense};
use crate::pointwise::{CHUNK, PARALLEL_FROM_HEAVY};
use crate::pool;
use rushlight_core::half::{bf16, f16};
use rushlight_core::layout::Nest;
use rushlight_core::rng::{self, Distribution, LONGEST_PERMUTATION, uniform_f32, uniform_f64};
use rushlight_core::{DType, Element, Error, Philox, Result, View};
use std::mem::MaybeUninit;

/// Random values (see `call::Random`).
pub fn random(distribution: Distribution, stream: Philox, out: View) -> Result<()> {
    // Half types draw `f32` values and round them.
    let narrow = matches!(out.dtype(), DType::F32 | DType::F16 | DType::BF16);
    match distribution {
        Distribution::Uniform { low, high } if narrow => {
            let top = largest_below(out.dtype(), low, high) as f32;
            let (low, range) = (low as f32, (high - low) as f32);
            fill_from_words(out, DType::F32, stream, move |words, len, chunk| {
                // SAFETY: there are `len` words and as much room.
                unsafe { uniform(words, len, chunk.cast(), low, range, top) }
            });
        }
        Distribution::Uniform { low, high } => {
            let top = largest_below(out.dtype(), low, high);
            fill_from_words64(out, DType::F64, stream, |word| (low + uniform_f64(word) * (high - low)).min(top));
        }
        Distribution::Normal { mean, std } if narrow => {
            let (mean, std) = (mean as f32, std as f32);
            fill_from_words(out, DType::F32, stream, move |words, len, chunk| {
                // SAFETY: there is room for `len` elements; words are there for a whole chunk.
                unsafe { normals(words, len, chunk.cast(), mean, std) }
            });
        }
        Distribution::Normal { mean, std } => {
            fill_in_pairs64(out, stream, |a, b| normal::pair64(a, b, mean, std));
        }
        Distribution::Integers { low, high } => {
            let range = if high > low { high.wrapping_sub(low) as u64 } else { 0 };
            fill_from_words64(out, DType::I64, stream, |word| {
                low.wrapping_add(((word as u128 * range as u128) >> 64) as i64)
            });
        }
        Distribution::Bernoulli { p } if narrow || out.dtype() == DType::Bool => {
            let below = words_below(p);
            fill_from_words(out, DType::Bool, stream, move |words, len, chunk| {
                // SAFETY: there are `len` words and as much room.
                unsafe { bernoulli(words, len, chunk, below) }
            });
        }
        Distribution::Bernoulli { p } => {
            fill_from_words64(out, DType::I64, stream, |word| (uniform_f64(word) < p) as i64);
        }
    }
    Ok(())
}

/// See `call::Permutation`.
pub fn permutation(stream: Philox, out: View) -> Result<bool> {
    if out.dtype() != DType::I64 || !out.layout().is_contiguous() || out.numel() > LONGEST_PERMUTATION {
        return Err(Error::value(format!("permutation: {} elements of {}", out.numel(), out.dtype())));
    }
    // SAFETY: the output is contiguous; any bits are an `i64`.
    let out = unsafe { std::slice::from_raw_parts_mut(out.ptr().cast::<i64>(), out.numel()) };
    // SAFETY: no precondition but the machine's level.
    rng::permutation(|first, words| unsafe { philox(stream, first / 4, words) }, out);
    Ok(true)
}

/// `out = uniform(word i) >= p ? x / (1 - p) : 0` (see `call::Dropout`).
pub fn dropout(x: View, p: f64, stream: Philox, out: View) -> Result<()> {
    if !out.dtype().is_float() {
        return Err(Error::dtype(format!("dropout takes floats, not {}", out.dtype())));
    }
    let numel = out.numel();
    if numel == 0 {
        return Ok(());
    }
    let compute = out.dtype().compute();
    let nest = Nest::new(out.shape(), [x.strides(), out.strides()]);
    let src = Strided { ptr: x.ptr(), size: x.dtype().size(), convert: converter(x.dtype(), compute) };
    let dst = Strided { ptr: out.ptr(), size: out.dtype().size(), convert: converter(compute, out.dtype()) };
    // If the output overwrites its input, a buffer separates them: kernels promise the compiler that the two differ.
    let src_direct = x.dtype() == compute && is_dense(&nest, 0) && x.ptr() != out.ptr();
    let dst_direct = out.dtype() == compute && is_dense(&nest, 1);
    let below = words_below(p);
    let chunks = numel.div_ceil(CHUNK);
    let tasks = if numel < PARALLEL_FROM_HEAVY { 1 } else { pool::num_threads() * 4 };
    pool::parallel_ranges(chunks, chunks.div_ceil(tasks), |first, last| {
        let (src, dst) = (&src, &dst);
        let mut words = [0; CHUNK];
        let mut from: [MaybeUninit<u64>; CHUNK] = [MaybeUninit::uninit(); CHUNK];
        let mut to: [MaybeUninit<u64>; CHUNK] = [MaybeUninit::uninit(); CHUNK];
        let (from, to) = (from.as_mut_ptr().cast::<u8>(), to.as_mut_ptr().cast::<u8>());
        for start in (first..last).map(|c| c * CHUNK) {
            let len = CHUNK.min(numel - start);
            // SAFETY: the views describe elements of the nest's shape, chunks are disjoint, buffers hold a chunk.
            unsafe {
                philox(stream, start as u64 / 4, &mut words);
                let input = if src_direct {
                    src.ptr.add(start * src.size)
                } else {
                    src.gather(&nest, 0, start, len, from, compute.size());
                    from
                };
                let output = if dst_direct { dst.ptr.add(start * dst.size) } else { to };
                if compute == DType::F64 {
                    drop64(&words, len, input.cast(), output.cast(), below, 1.0 - p);
                } else {
                    drop32(&words, len, input.cast(), output.cast(), below, (1.0 - p) as f32);
                }
                if !dst_direct {
                    dst.scatter(&nest, 1, start, len, to, compute.size());
                }
            }
        }
    });
    Ok(())
}

/// Number of 24-bit values whose uniform is below `p`: comparing integers is equivalent to comparing floats.
fn words_below(p: f64) -> u32 {
    (p * 16_777_216.0).ceil().clamp(0.0, 16_777_216.0) as u32
}

/// The largest value of a dtype that is below `high`, but at least `low`.
fn largest_below(dtype: DType, low: f64, high: f64) -> f64 {
    /// The bit pattern of the next smaller half.
    fn down(bits: u16) -> u16 {
        match bits {
            0 => 0x8001,
            b if b & 0x8000 == 0 => b - 1,
            b => b + 1,
        }
    }
    let below = match dtype {
        DType::F32 => {
            let h = high as f32;
            if h as f64 >= high { h.next_down() as f64 } else { h as f64 }
        }
        DType::F16 => {
            let h = f16::from_f64(high);
            if h.to_f64() >= high { f16::from_bits(down(h.to_bits())).to_f64() } else { h.to_f64() }
        }
        DType::BF16 => {
            let h = bf16::from_f64(high);
            if h.to_f64() >= high { bf16::from_bits(down(h.to_bits())).to_f64() } else { h.to_f64() }
        }
        _ => high.next_down(),
    };
    below.max(low)
}

/// Fills `out` by `make(words, len, chunk)`, with word `i` for element `i`.
fn fill_from_words(out: View, dtype: DType, stream: Philox, make: impl Fn(&[u32; CHUNK], usize, *mut u8) + Sync) {
    produce(out, dtype, PARALLEL_FROM_HEAVY, |start, len, chunk| {
        let mut words = [0; CHUNK];
        // SAFETY: no precondition but the machine's level.
        unsafe { philox(stream, start as u64 / 4, &mut words) };
        make(&words, len, chunk);
    });
}

/// The 64-bit words of a chunk from element `start` on.
pub fn words64(stream: Philox, start: usize) -> [u64; CHUNK] {
    let mut halves = [[0; CHUNK]; 2];
    for (i, half) in halves.iter_mut().enumerate() {
        // SAFETY: no precondition but the machine's level.
        unsafe { philox(stream, (start / 2 + i * CHUNK / 4) as u64, half) };
    }
    let (pairs, _) = halves.as_flattened().as_chunks::<2>();
    let mut words = [0; CHUNK];
    for (word, &[low, high]) in words.iter_mut().zip(pairs) {
        *word = low as u64 | (high as u64) << 32;
    }
    words
}

/// Fills `out` by `make(word)`, with the 64-bit word `i` for element `i`.
fn fill_from_words64<T: Element>(out: View, dtype: DType, stream: Philox, make: impl Fn(u64) -> T + Sync) {
    produce(out, dtype, PARALLEL_FROM_HEAVY, |start, len, chunk| {
        for (i, &word) in words64(stream, start)[..len].iter().enumerate() {
            // SAFETY: the chunk has room for `len` elements.
            unsafe { chunk.cast::<T>().add(i).write(make(word)) };
        }
    });
}

/// Fills `out` with pairs of `f64` values, each pair from two uniforms.
fn fill_in_pairs64(out: View, stream: Philox, make: impl Fn(f64, f64) -> [f64; 2] + Sync) {
    produce(out, DType::F64, PARALLEL_FROM_HEAVY, |start, len, chunk| {
        let words = words64(stream, start);
        for i in (0..len).step_by(2) {
            let [a, b] = make(uniform_f64(words[i]), uniform_f64(words[i + 1]));
            // SAFETY: the chunk has room for `len` elements.
            unsafe {
                chunk.cast::<f64>().add(i).write(a);
                if i + 1 < len {
                    chunk.cast::<f64>().add(i + 1).write(b);
                }
            }
        }
    });
}

multiversion! {
    /// Words `4 * first ..` of a stream, the same as [`Philox::block`] gives.
    ///
    /// # Safety
    /// None; the form is [`multiversion!`]'s.
    pub unsafe fn philox(stream: Philox, first: u64, words: &mut [u32; CHUNK]) = philox_kernel;
}

/// # Safety
/// None; the form is [`multiversion!`]'s.
#[inline(always)]
unsafe fn philox_kernel<I: Isa>(stream: Philox, first: u64, words: &mut [u32; CHUNK]) {
    const LOW: u64 = 0xFFFF_FFFF;
    let start = stream.offset.wrapping_add(first);
    let (blocks, _) = words.as_chunks_mut::<4>();
    for (i, block) in blocks.iter_mut().enumerate() {
        // Words are in the low halves of 64-bit lanes: a product's high half is one shift away, and the bits above the
        // low half are harmless, because products use low halves only.
        let counter = start.wrapping_add(i as u64);
        let (mut c0, mut c1, mut c2, mut c3) = (counter & LOW, counter >> 32, 0, 0);
        let (mut k0, mut k1) = (stream.seed as u32, (stream.seed >> 32) as u32);
        for _ in 0..10 {
            let (p0, p1) = ((c0 & LOW) * 0xD251_1F53, (c2 & LOW) * 0xCD9E_8D57);
            (c0, c1, c2, c3) = (p1 >> 32 ^ c1 ^ k0 as u64, p1, p0 >> 32 ^ c3 ^ k1 as u64, p0);
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        *block = [c0 as u32, c1 as u32, c2 as u32, c3 as u32];
    }
}

multiversion! {
    /// `low + u * range`, kept at most `top`.
    ///
    /// # Safety
    /// `out` has room for `len <= CHUNK` elements.
    unsafe fn uniform(words: &[u32; CHUNK], len: usize, out: *mut f32, low: f32, range: f32, top: f32) = uniform_kernel;
}

/// # Safety
/// As [`uniform`].
#[inline(always)]
unsafe fn uniform_kernel<I: Isa>(words: &[u32; CHUNK], len: usize, out: *mut f32, low: f32, range: f32, top: f32) {
    // SAFETY: the caller's.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<MaybeUninit<f32>>(), len) };
    for (out, &word) in out.iter_mut().zip(words) {
        // Not fused, so that every level draws the same numbers.
        let v = uniform_f32(word) * range + low;
        out.write(if v > top { top } else { v });
    }
}

multiversion! {
    /// Normal values, two from each pair of words.
    ///
    /// # Safety
    /// `out` has room for `len <= CHUNK` elements.
    unsafe fn normals(words: &[u32; CHUNK], len: usize, out: *mut f32, mean: f32, std: f32) = normal_kernel;
}

/// # Safety
/// As [`normals`].
#[inline(always)]
unsafe fn normal_kernel<I: Isa>(words: &[u32; CHUNK], len: usize, out: *mut f32, mean: f32, std: f32) {
    #[inline(always)]
    fn pairs(words: &[[u32; 2]], out: &mut [[MaybeUninit<f32>; 2]], mean: f32, std: f32) {
        for (out, &[a, b]) in out.iter_mut().zip(words) {
            let [first, second] = normal::pair32(uniform_f32(a), uniform_f32(b), mean, std);
            *out = [MaybeUninit::new(first), MaybeUninit::new(second)];
        }
    }
    // SAFETY: the caller's.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<MaybeUninit<f32>>(), len) };
    let (words, _) = words.as_chunks::<2>();
    let (whole, odd) = out.as_chunks_mut::<2>();
    pairs(words, whole, mean, std);
    if let [last] = odd {
        let mut pair = [[MaybeUninit::uninit(); 2]];
        pairs(&words[whole.len()..][..1], &mut pair, mean, std);
        *last = pair[0][0];
    }
}

multiversion! {
    /// One where a word's 24 bits are below `below`, else zero.
    ///
    /// # Safety
    /// `out` has room for `len <= CHUNK` bytes.
    unsafe fn bernoulli(words: &[u32; CHUNK], len: usize, out: *mut u8, below: u32) = bernoulli_kernel;
}

/// # Safety
/// As [`bernoulli`].
#[inline(always)]
unsafe fn bernoulli_kernel<I: Isa>(words: &[u32; CHUNK], len: usize, out: *mut u8, below: u32) {
    // SAFETY: the caller's.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<MaybeUninit<u8>>(), len) };
    for (out, &word) in out.iter_mut().zip(words) {
        out.write((word >> 8 < below) as u8);
    }
}

macro_rules! drop_kernel {
    ($name:ident $kernel:ident $t:ty) => {
        multiversion! {
            /// `x / keep`, or zero where a word's 24 bits are below `below`.
            ///
            /// # Safety
            /// `x` has `len <= CHUNK` elements and `out` room for as many; they do not overlap.
            unsafe fn $name(words: &[u32; CHUNK], len: usize, x: *const $t, out: *mut $t, below: u32, keep: $t) = $kernel;
        }

        /// # Safety
        /// As the function compiled from it.
        #[inline(always)]
        unsafe fn $kernel<I: Isa>(
            words: &[u32; CHUNK],
            len: usize,
            x: *const $t,
            out: *mut $t,
            below: u32,
            keep: $t,
        ) {
            #[inline(always)]
            fn each(words: &[u32], x: &[$t], out: &mut [MaybeUninit<$t>], below: u32, keep: $t) {
                for ((out, &word), &x) in out.iter_mut().zip(words).zip(x) {
                    let kept = x / keep;
                    out.write(if word >> 8 < below { 0.0 } else { kept });
                }
            }
            // SAFETY: the caller's.
            unsafe {
                let out = std::slice::from_raw_parts_mut(out.cast::<MaybeUninit<$t>>(), len);
                each(words, std::slice::from_raw_parts(x, len), out, below, keep)
            }
        }
    };
}
drop_kernel!(drop32 drop32_kernel f32);
drop_kernel!(drop64 drop64_kernel f64);
