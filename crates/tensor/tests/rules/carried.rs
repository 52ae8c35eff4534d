//! `uint16` to `uint64` and 8-bit floats: conversion, movement, the few ops they have, and the rejection of the others.

use rushlight_core::rng::Philox;
use rushlight_core::{DType, ErrorKind, Scalar, float8};
use rushlight_tensor::{Tensor, cat, stack, where_};

const UNSIGNED: [DType; 3] = [DType::U16, DType::U32, DType::U64];
const FLOAT8: [DType; 5] = [DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ, DType::F8E8M0FNU];

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/fixtures/float8/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The bits of a carried tensor's elements.
fn codes(t: &Tensor) -> Vec<u8> {
    let t = t.contiguous().unwrap();
    // SAFETY: the same memory, as bytes.
    let bytes = unsafe { Tensor::from_storage(t.storage().clone(), t.layout().clone(), DType::U8) };
    bytes.unwrap().to_vec::<u8>().unwrap()
}

fn from_codes(codes: &[u8], dtype: DType) -> Tensor {
    let t = Tensor::from_slice(codes, [codes.len()]).unwrap();
    // SAFETY: the same memory under a dtype of the same size.
    unsafe { Tensor::from_storage(t.storage().clone(), t.layout().clone(), dtype) }.unwrap()
}

/// Random 64-bit words, many of them beyond `i64`.
fn random_words(n: usize) -> Vec<u64> {
    let mut out: Vec<u64> = (0..n as u64)
        .map(|i| {
            let w = Philox { seed: 7, offset: 0 }.block(i);
            (u64::from(w[0]) << 32 | u64::from(w[1])) >> (w[2] % 60)
        })
        .collect();
    out.extend([0, 1, u64::MAX, 1 << 63, (1 << 63) + 1, (1 << 63) - 1, u64::MAX - 1]);
    out
}

#[test]
fn eight_bit_floats_convert_as_in_pytorch() {
    let inputs: Vec<f32> = words(&fixture("inputs")).into_iter().map(f32::from_bits).collect();
    let numbers = Tensor::from_slice(&inputs, [inputs.len()]).unwrap();
    for dtype in FLOAT8 {
        let golden = fixture(dtype.name());
        let (values, expected) = golden.split_at(1024);
        let all: Vec<u8> = (0..=255).collect();
        let decoded = from_codes(&all, dtype).to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
        for (code, (ours, theirs)) in decoded.iter().zip(words(values)).enumerate() {
            assert_eq!(ours.to_bits(), theirs, "{dtype} {code:#x}: {ours}");
        }
        let encoded = codes(&numbers.to_dtype(dtype).unwrap());
        for ((x, ours), theirs) in inputs.iter().zip(encoded).zip(expected) {
            assert_eq!(ours, *theirs, "{dtype} of {x} ({:#x})", x.to_bits());
        }
        // Through other dtypes, strided, and in place.
        let halves = numbers.to_dtype(DType::BF16).unwrap();
        let wide = halves.to_dtype(DType::F32).unwrap().to_dtype(dtype).unwrap();
        assert_eq!(codes(&halves.to_dtype(dtype).unwrap()), codes(&wide));
        let column = stack(&[&numbers, &numbers], 1).unwrap().select(1, 1).unwrap();
        assert_eq!(codes(&column.to_dtype(dtype).unwrap()), codes(&numbers.to_dtype(dtype).unwrap()));
        let target = Tensor::zeros_with([inputs.len(), 2], dtype).unwrap();
        target.select(1, 0).unwrap().copy_(&numbers).unwrap();
        assert_eq!(codes(&target.select(1, 0).unwrap()), codes(&numbers.to_dtype(dtype).unwrap()));
    }
}

#[test]
fn unsigned_integers_convert_exactly() {
    let values = random_words(400);
    let t = Tensor::from_slice(&values, [values.len()]).unwrap();
    assert_eq!(t.dtype(), DType::U64);
    assert_eq!(t.to_vec::<u64>().unwrap(), values);
    macro_rules! same {
        ($($T:ty)*) => {$(
            let expected: Vec<$T> = values.iter().map(|&v| v as $T).collect();
            assert_eq!(t.to_vec::<$T>().unwrap(), expected, stringify!($T));
            let narrow: Vec<u32> = values.iter().map(|&v| v as u32).collect();
            let expected: Vec<$T> = narrow.iter().map(|&v| v as $T).collect();
            assert_eq!(Tensor::from_iter(narrow).unwrap().to_vec::<$T>().unwrap(), expected, stringify!($T));
            let narrow: Vec<u16> = values.iter().map(|&v| v as u16).collect();
            let expected: Vec<$T> = narrow.iter().map(|&v| v as $T).collect();
            assert_eq!(Tensor::from_iter(narrow).unwrap().to_vec::<$T>().unwrap(), expected, stringify!($T));
        )*};
    }
    same!(f32 f64 i64 i32 i16 i8 u8 u16 u32 u64);
    assert_eq!(t.to_vec::<bool>().unwrap(), values.iter().map(|&v| v != 0).collect::<Vec<_>>());
    // And back.
    for dtype in UNSIGNED {
        let floats = Tensor::from_slice(&[0.0f64, 1.9, 65535.0, 40000.5, -1.0], [5]).unwrap().to_dtype(dtype).unwrap();
        let wrapped = match dtype {
            DType::U16 => u64::from(u16::MAX),
            DType::U32 => u64::from(u32::MAX),
            _ => u64::MAX,
        };
        assert_eq!(floats.to_vec::<u64>().unwrap(), [0, 1, 65535, 40000, wrapped], "{dtype}");
    }
    let large = Tensor::from_slice(&[1e19f32, 9.3e18], [2]).unwrap().to_dtype(DType::U64).unwrap();
    assert_eq!(large.to_vec::<u64>().unwrap(), [1e19f32 as u64, 9.3e18f32 as u64]);
    assert_eq!(Tensor::from_iter([u64::MAX]).unwrap().to_scalar().unwrap(), Scalar::Unsigned(u64::MAX));
    assert_eq!(
        Tensor::from_iter([u64::MAX, 3]).unwrap().to_string(),
        "tensor([18446744073709551615,                    3], dtype=torch.uint64)"
    );
}

#[test]
fn elements_move_as_their_bits() {
    let index = Tensor::new([2i64, 0, 5]).unwrap();
    for dtype in UNSIGNED.into_iter().chain(FLOAT8) {
        let bits: Vec<u8> = (0..6 * dtype.size()).map(|i| (i * 37 + 11) as u8).collect();
        let t = Tensor::zeros_with([6], dtype).unwrap();
        // SAFETY: the same memory as bytes.
        let raw = unsafe {
            Tensor::from_storage(
                t.storage().clone(),
                rushlight_core::Layout::contiguous(&[bits.len()]).unwrap(),
                DType::U8,
            )
        };
        raw.unwrap().copy_(&Tensor::from_slice(&bits, [bits.len()]).unwrap()).unwrap();
        let element = |i: usize| t.narrow(0, i as isize, 1).unwrap();
        let pick = |places: &[usize]| {
            cat(&places.iter().map(|&i| element(i)).collect::<Vec<_>>().iter().collect::<Vec<_>>(), 0).unwrap()
        };
        let alike = |a: Tensor, places: &[usize]| {
            assert_eq!(a.dtype(), dtype);
            let b = pick(places);
            assert_eq!(a.numel(), b.numel());
            let read = |x: &Tensor| {
                let x = x.contiguous().unwrap();
                let layout = rushlight_core::Layout::contiguous(&[x.numel() * dtype.size()]).unwrap();
                // SAFETY: as above.
                unsafe { Tensor::from_storage(x.storage().clone(), layout, DType::U8) }.unwrap().to_vec::<u8>().unwrap()
            };
            assert_eq!(read(&a), read(&b), "{dtype}");
        };
        alike(t.index_select(0, &index).unwrap(), &[2, 0, 5]);
        alike(t.gather(0, &index).unwrap(), &[2, 0, 5]);
        alike(t.flip([0]).unwrap(), &[5, 4, 3, 2, 1, 0]);
        alike(t.reshape([2usize, 3]).unwrap().t().unwrap().contiguous().unwrap(), &[0, 3, 1, 4, 2, 5]);
        alike(t.roll([1], [0]).unwrap(), &[5, 0, 1, 2, 3, 4]);
        alike(t.copy().unwrap(), &[0, 1, 2, 3, 4, 5]);
        let mask = Tensor::new([true, false, true, false, false, true]).unwrap();
        alike(t.masked_select(&mask).unwrap(), &[0, 2, 5]);
        alike(where_(&mask, &t, &t.flip([0]).unwrap()).unwrap(), &[0, 4, 2, 2, 1, 5]);
        let ones = Tensor::ones_with([3], dtype).unwrap();
        assert_eq!(ones.to_vec::<f32>().unwrap(), [1.0; 3]);
        assert!(ones.equal(&Tensor::full_with([3], 1.0, dtype).unwrap()).unwrap());
        assert!(ones.all(..).unwrap().item::<bool>().unwrap() && t.any(..).unwrap().item::<bool>().unwrap());
        let meta = t.to(rushlight_core::Device::Meta).unwrap();
        assert_eq!(meta.to_dtype(DType::F32).unwrap().dtype(), DType::F32);
    }
}

#[test]
fn unsigned_arithmetic_wraps() {
    let a = random_words(300);
    let b: Vec<u64> = a.iter().rev().copied().collect();
    let (x, y) = (Tensor::from_iter(a.clone()).unwrap(), Tensor::from_iter(b.clone()).unwrap());
    let map = |f: fn(u64, u64) -> u64| a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect::<Vec<u64>>();
    assert_eq!(x.mul(&y).unwrap().to_vec::<u64>().unwrap(), map(u64::wrapping_mul));
    assert_eq!(x.bitwise_xor(&y).unwrap().to_vec::<u64>().unwrap(), map(|a, b| a ^ b));
    assert_eq!(x.bitwise_and(&y).unwrap().to_vec::<u64>().unwrap(), map(|a, b| a & b));
    assert_eq!(x.maximum(&y).unwrap().to_vec::<u64>().unwrap(), map(u64::max));
    assert_eq!(x.minimum(&y).unwrap().to_vec::<u64>().unwrap(), map(u64::min));
    assert_eq!(x.eq(&y).unwrap().to_vec::<bool>().unwrap(), a.iter().zip(&b).map(|(a, b)| a == b).collect::<Vec<_>>());
    assert_eq!(x.eq(u64::MAX).unwrap().to_vec::<bool>().unwrap(), a.iter().map(|&a| a == u64::MAX).collect::<Vec<_>>());
    let clamped = x.clamp(5u64, (1u64 << 63) + 5).unwrap().to_vec::<u64>().unwrap();
    assert_eq!(clamped, a.iter().map(|&v| v.clamp(5, (1 << 63) + 5)).collect::<Vec<_>>());
    let (values, places) = x.sort(0, false).unwrap();
    let mut sorted = a.clone();
    sorted.sort();
    assert_eq!(values.to_vec::<u64>().unwrap(), sorted);
    assert!(x.index_select(0, &places).unwrap().equal(&values).unwrap());
    assert_eq!(x.sum(..).unwrap().item::<i64>().unwrap(), a.iter().fold(0i64, |s, &v| s.wrapping_add(v as i64)));
    let short: Vec<u16> = a.iter().map(|&v| v as u16).collect();
    let z = Tensor::from_iter(short.clone()).unwrap();
    assert_eq!(z.sum(..).unwrap().item::<i64>().unwrap(), short.iter().map(|&v| i64::from(v)).sum::<i64>());
    assert_eq!(z.cumsum(0).unwrap().dtype(), DType::I64);
    assert_eq!(z.mul(3).unwrap().to_vec::<u16>().unwrap(), short.iter().map(|v| v.wrapping_mul(3)).collect::<Vec<_>>());
    z.mul_(3).unwrap();
    assert_eq!(z.to_vec::<u16>().unwrap(), short.iter().map(|v| v.wrapping_mul(3)).collect::<Vec<_>>());
    let floats = Tensor::ones([short.len()]).unwrap();
    assert_eq!(floats.mul(&z).unwrap().dtype(), DType::F32);
    assert_eq!(z.div(&z).unwrap().dtype(), DType::F32);
    assert_eq!(floats.add_(&z).unwrap().dtype(), DType::F32);
}

#[test]
fn what_is_not_there_is_refused() {
    for dtype in UNSIGNED.into_iter().chain(FLOAT8) {
        let x = Tensor::ones_with([2, 2], dtype).unwrap();
        let refused = [
            ("add", x.add(&x)),
            ("lt", x.lt(&x)),
            ("sub", x.sub(1)),
            ("neg", x.neg()),
            ("max", x.max(..)),
            ("amax", x.amax([0], false)),
            ("matmul", x.matmul(&x)),
            ("cummax", x.cummax(0).map(|(v, _)| v)),
            ("topk", x.topk(1, 0, true).map(|(v, _)| v)),
            ("nonzero", x.nonzero()),
            ("softmax", x.softmax(0)),
            ("mean", x.mean(..)),
            ("std", x.std(..)),
            ("searchsorted", x.select(0, 0).unwrap().searchsorted(&x.select(0, 0).unwrap(), false)),
            ("cross_entropy", x.cross_entropy(&Tensor::new([0i64, 1]).unwrap())),
            ("arange", Tensor::arange_with(0, 4, 1, dtype)),
        ];
        for (name, result) in refused {
            match result {
                Ok(t) => panic!("{name} of {dtype} gave {t}"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::DType, "{name}: {e}"),
            }
        }
        let other = Tensor::ones_with([2, 2], DType::I32).unwrap();
        for result in [x.mul(&other), other.mul(&x), cat(&[&x, &other], 0), x.eq(&other)] {
            assert!(result.unwrap_err().to_string().contains("Promotion for"), "{dtype}");
        }
        let floats = Tensor::ones([2, 2]).unwrap();
        assert_eq!(x.mul(&floats).is_ok(), !dtype.is_float());
    }
    let rows = Tensor::new([1i64, 0]).unwrap();
    let beyond = rows.add(u64::MAX).unwrap_err();
    assert!(beyond.to_string().contains("without overflow"), "{beyond}");
}

#[test]
fn gradients_pass_through_conversion() {
    let x = Tensor::new([1.0f32, -2.5, 300.0]).unwrap().requires_grad_(true).unwrap();
    let y = x.to_dtype(DType::F8E4M3FN).unwrap().to_dtype(DType::F32).unwrap();
    assert_eq!(y.detach().to_vec::<f32>().unwrap(), [1.0, -2.5, 288.0]);
    y.mul(2.0).unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [2.0; 3]);
    assert_eq!(float8::encode(DType::F8E4M3FN, 300.0), 0x79);
}
