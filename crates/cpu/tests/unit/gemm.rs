//! Every kernel against a plain loop in `f64` (integers: wrapping `i64`).

#[allow(unused, clippy::all)]
#[path = "../../src/gemm/activation.rs"]
mod activation;
#[allow(unused, clippy::all)]
#[path = "../../src/gemm/scalar.rs"]
mod scalar;

use crate::isa::{self, Level};
use crate::pool;
use half::{bf16, f16};
use rushlight_core::DType;
use rushlight_core::{Element, with_dtype};
#[cfg(target_arch = "x86_64")]
use rushlight_cpu::amx::{Bf16Path, force_bf16_path};
use rushlight_cpu::gemm::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
    fn value(&mut self, dtype: DType) -> f64 {
        if dtype.is_int() { (self.next() % 19) as f64 - 9.0 } else { (self.next() % 1024) as f64 / 512.0 - 1.0 }
    }
}

/// A matrix or vector inside a larger buffer.
#[derive(Clone)]
struct Operand<T> {
    data: Vec<T>,
    origin: usize,
    strides: [isize; 3],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Rows,
    /// Rows of at least 64 bytes start at multiples of 64 bytes.
    Aligned,
    Columns,
    Padded,
    Backwards,
    Sparse,
    Broadcast,
}

impl<T: Element> Operand<T> {
    fn new(shape: Shape, batch: usize, rows: usize, cols: usize, mut value: impl FnMut() -> f64) -> Self {
        let (r, c) = (rows as isize, cols as isize);
        let strides = match shape {
            Shape::Rows | Shape::Aligned => [r * c, c, 1],
            Shape::Columns => [r * c, 1, r],
            Shape::Padded => [r * (c + 3) + 5, c + 3, 1],
            Shape::Backwards => [-r * c, -c, -1],
            Shape::Sparse => [2 * r * (3 * c + 1), 3 * c + 1, 3],
            Shape::Broadcast => [0, 0, 1],
        };
        let extents = [batch, rows, cols];
        let span = |sign: isize| -> usize {
            (0..3).map(|d| (strides[d] * sign).max(0) as usize * extents[d].saturating_sub(1)).sum()
        };
        let (below, above) = (span(-1), span(1));
        let spare = if shape == Shape::Aligned { 64 } else { 0 };
        let mut data = vec![T::from_f64(0.0); below + above + 1 + spare];
        let skip = data.as_ptr().align_offset(64).min(spare);
        data[skip..=skip + below + above].fill_with(|| T::from_f64(value()));
        Operand { data, origin: below + skip, strides }
    }
    fn index(&self, b: usize, i: usize, j: usize) -> usize {
        (self.origin as isize
            + b as isize * self.strides[0]
            + i as isize * self.strides[1]
            + j as isize * self.strides[2]) as usize
    }
    fn at(&self, b: usize, i: usize, j: usize) -> T {
        self.data[self.index(b, i, j)]
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: [usize; 4],
    shapes: [Shape; 3],
    alpha: f64,
    beta: f64,
    bias: Option<(BiasAxis, isize)>,
    activation: Activation,
}

impl Case {
    fn plain(batch: usize, m: usize, n: usize, k: usize) -> Self {
        let shapes = [Shape::Rows; 3];
        Case { sizes: [batch, m, n, k], shapes, alpha: 1.0, beta: 0.0, bias: None, activation: Activation::None }
    }
}

struct Made<T> {
    a: Operand<T>,
    b: Operand<T>,
    c: Operand<T>,
    bias: Operand<T>,
}

fn make<T: Element>(case: &Case, random: &mut Random) -> Made<T> {
    let [batch, m, n, k] = case.sizes;
    let dtype = T::DTYPE;
    let a = Operand::new(case.shapes[0], batch, m, k, || random.value(dtype));
    let b = Operand::new(case.shapes[1], batch, k, n, || random.value(dtype));
    let unread = case.beta == 0.0 && dtype.is_float();
    let c = Operand::new(case.shapes[2], batch, m, n, || if unread { f64::NAN } else { random.value(dtype) });
    let bias = Operand::new(Shape::Sparse, 1, 1, m.max(n), || random.value(dtype));
    Made { a, b, c, bias }
}

fn multiply<T: Element>(case: &Case, made: &mut Made<T>) {
    let [batch, m, n, k] = case.sizes;
    let bias = case.bias.map(|(per, stride)| Bias { ptr: made.bias.data.as_ptr().cast(), stride, per });
    let spec = Gemm {
        dtype: T::DTYPE,
        batch,
        m,
        n,
        k,
        a: made.a.data.as_ptr().wrapping_add(made.a.origin).cast(),
        a_strides: made.a.strides,
        b: made.b.data.as_ptr().wrapping_add(made.b.origin).cast(),
        b_strides: made.b.strides,
        c: made.c.data.as_mut_ptr().wrapping_add(made.c.origin).cast(),
        c_strides: made.c.strides,
        alpha: case.alpha,
        beta: case.beta,
        bias,
        activation: case.activation,
    };
    // SAFETY: the operands hold every element that sizes and strides reach.
    unsafe { gemm(&spec) }
}

/// What an element of C should be, and the error it may have.
#[derive(Clone, Copy)]
enum Wanted {
    Integer(i64),
    Float(f64, f64),
}

/// The elements of C by a plain loop, each with its indices.
fn expected<T: Element>(case: &Case, made: &Made<T>) -> Vec<([usize; 3], Wanted)> {
    let [batch, m, n, k] = case.sizes;
    let places = (0..batch).flat_map(|b| (0..m).flat_map(move |i| (0..n).map(move |j| [b, i, j])));
    let element = |[b, i, j]: [usize; 3]| {
        let bias = case.bias.map_or(T::from_f64(0.0), |(axis, stride)| {
            made.bias.data[if axis == BiasAxis::Row { i } else { j } * stride as usize]
        });
        let before = made.c.at(b, i, j);
        let terms = (0..k).map(|p| (made.a.at(b, i, p), made.b.at(b, p, j)));
        if T::DTYPE.is_int() {
            let sum = terms.fold(0i64, |s, (x, y)| s.wrapping_add(x.to_i64().wrapping_mul(y.to_i64())));
            let old = (case.beta as i64).wrapping_mul(before.to_i64());
            let value = (case.alpha as i64).wrapping_mul(sum).wrapping_add(old).wrapping_add(bias.to_i64());
            let wrapped = T::from_i64(value).to_i64();
            return Wanted::Integer(if case.activation == Activation::Relu { wrapped.max(0) } else { wrapped });
        }
        let (mut sum, mut size) = (0.0, 0.0);
        for (x, y) in terms {
            let term = x.to_f64() * y.to_f64();
            sum += term;
            size += term.abs();
        }
        let old = if case.beta == 0.0 { 0.0 } else { case.beta * before.to_f64() };
        let value = case.alpha * sum + old + bias.to_f64();
        let want = match case.activation {
            Activation::None => value,
            Activation::Relu => value.max(0.0),
            Activation::Gelu => 0.5 * value * libm::erfc(-value * std::f64::consts::FRAC_1_SQRT_2),
            Activation::GeluTanh => {
                0.5 * value * (1.0 + (0.7978845608028654 * (value + 0.044715 * value.powi(3))).tanh())
            }
        };
        let (sums, stored) = match T::DTYPE {
            DType::F64 => (1e-15, 1e-15),
            DType::F32 => (3e-7, 3e-7),
            DType::F16 => (3e-7, 1e-3),
            _ => (3e-7, 8e-3),
        };
        Wanted::Float(want, sums * (case.alpha.abs() * size + old.abs() + 2.0) * 4.0 + stored * want.abs())
    };
    places.map(|place| (place, element(place))).collect()
}

/// Multiplies and compares every element. What is not C must not change.
fn compare<T: Element>(
    case: &Case,
    made: &mut Made<T>,
    expected: &[([usize; 3], Wanted)],
    multiply: fn(&Case, &mut Made<T>),
) {
    let before = made.c.clone();
    multiply(case, made);
    let mut touched = vec![false; before.data.len()];
    for &([b, i, j], want) in expected {
        touched[before.index(b, i, j)] = true;
        let got = made.c.at(b, i, j);
        match want {
            Wanted::Integer(want) => assert_eq!(got.to_i64(), want, "{:?} {case:?} at {b},{i},{j}", T::DTYPE),
            Wanted::Float(want, allowed) => {
                let error = (got.to_f64() - want).abs();
                let level = isa::level();
                assert!(
                    error <= allowed,
                    "{:?} {case:?} at {b},{i},{j}: {got:?} for {want}, off {error:e}, {level:?}",
                    T::DTYPE
                );
            }
        }
    }
    for (index, touched) in touched.into_iter().enumerate() {
        let (now, then) = (made.c.data[index].to_f64(), before.data[index].to_f64());
        assert!(touched || now.to_bits() == then.to_bits(), "{:?} {case:?} wrote outside C", T::DTYPE);
    }
    made.c = before;
}

/// Compares on every engine. The plain loop runs once: under qemu it takes most of the time.
fn check<T: Element>(case: Case, random: &mut Random) {
    let mut made = make::<T>(&case, random);
    let expected = expected(&case, &made);
    with_each_engine(|| compare(&case, &mut made, &expected, multiply));
}

const DTYPES: [DType; 9] =
    [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::I16, DType::I8, DType::U8];

/// Calls `f` with every level, bf16 path and 2 threads, and restores the settings.
fn with_each_engine(mut f: impl FnMut()) {
    let _turn = crate::testing::turn();
    let before = isa::level();
    pool::set_num_threads(2);
    for level in Level::ALL {
        isa::force(level);
        #[cfg(target_arch = "x86_64")]
        for path in [Bf16Path::Widen, Bf16Path::Dot, Bf16Path::Amx] {
            if level == Level::Avx512 || path == Bf16Path::Amx {
                force_bf16_path(path);
                f();
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        f();
    }
    isa::force(before);
}

#[test]
fn sizes_around_the_blocks() {
    let mut random = Random(1);
    for (m, n, k) in [
        (1, 1, 1),
        (2, 2, 2),
        (3, 5, 7),
        (13, 31, 33),
        (14, 32, 32),
        (15, 33, 31),
        (17, 16, 65),
        (6, 16, 8),
        (7, 17, 9),
        (29, 63, 1),
        (33, 70, 300),
        (5, 2, 700),
        (64, 65, 1100),
        (300, 40, 20),
        (290, 70, 390),
        (40, 600, 17),
        (9, 1100, 530),
    ] {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            with_dtype!(dtype, T => check::<T>(Case::plain(1, m, n, k), &mut random));
        }
    }
    for dtype in DTYPES {
        with_dtype!(dtype, T => check::<T>(Case::plain(2, 19, 35, 21), &mut random));
    }
}

#[test]
fn layouts_and_epilogues() {
    let mut random = Random(2);
    let inputs = [Shape::Rows, Shape::Columns, Shape::Padded, Shape::Backwards, Shape::Sparse, Shape::Broadcast];
    let activations = [Activation::None, Activation::Relu, Activation::Gelu, Activation::GeluTanh];
    for round in 0..700 {
        let mut pick = |from: &[usize]| from[random.below(from.len())];
        let sizes = [
            pick(&[1, 1, 2, 3]),
            pick(&[0, 1, 2, 13, 14, 31, 47, 130]),
            pick(&[0, 1, 3, 16, 32, 33, 65, 100]),
            pick(&[0, 1, 2, 15, 32, 33, 70, 130]),
        ];
        let shapes =
            [inputs[pick(&[0, 1, 2, 3, 4, 5])], inputs[pick(&[0, 1, 2, 3, 4, 5])], inputs[pick(&[0, 1, 2, 3, 4])]];
        let alpha = [1.0, 1.0, 2.0, -1.0][random.below(4)];
        let beta = [0.0, 0.0, 1.0, 3.0][random.below(4)];
        let bias = [None, Some((BiasAxis::Row, 1)), Some((BiasAxis::Column, 1)), Some((BiasAxis::Column, 3))];
        let bias = bias[random.below(4)];
        let dtype = DTYPES[round % DTYPES.len()];
        // Integers: there is no reference for GELU.
        let activation = activations[random.below(if dtype.is_int() { 2 } else { 4 })];
        let case = Case { sizes, shapes, alpha, beta, bias, activation };
        with_dtype!(dtype, T => check::<T>(case, &mut random));
    }
}

#[test]
fn rows_read_where_they_lie_and_blocks_of_rows() {
    let mut random = Random(6);
    for (m, n, k) in [(64, 64, 64), (70, 200, 96), (290, 70, 704), (600, 140, 32), (33, 300, 96)] {
        for dtype in [DType::F32, DType::BF16] {
            let case = Case { shapes: [Shape::Aligned, Shape::Rows, Shape::Rows], ..Case::plain(1, m, n, k) };
            with_dtype!(dtype, T => check::<T>(case, &mut random));
        }
    }
}

/// The operands of a product with a packed one, with their strides of rows and columns, and what follows it.
type Operands = ((*const f32, [isize; 2]), (*const f32, [isize; 2]), (*mut f32, [isize; 2]), Epilogue);

fn operands(case: &Case, made: &mut Made<f32>) -> Operands {
    let strides = |s: [isize; 3]| [s[1], s[2]];
    let a = (made.a.data.as_ptr().wrapping_add(made.a.origin), strides(made.a.strides));
    let b = (made.b.data.as_ptr().wrapping_add(made.b.origin), strides(made.b.strides));
    let c = (made.c.data.as_mut_ptr().wrapping_add(made.c.origin), strides(made.c.strides));
    let bias = case.bias.map(|(_, stride)| (made.bias.data.as_ptr(), stride));
    (a, b, c, Epilogue { beta: case.beta as f32, bias, activation: case.activation })
}

/// The product with B packed before.
fn multiply_right(case: &Case, made: &mut Made<f32>) {
    let ([_, m, n, k], (a, b, c, end)) = (case.sizes, operands(case, made));
    // SAFETY: as for `multiply`. The strips are a copy, so B may change afterwards.
    unsafe { PackedRight::new(b.0, b.1, k, n).expect("it is not empty").multiply(m, a, (c.0, c.1[0]), end) };
}

#[test]
fn a_right_operand_packed_once() {
    let mut random = Random(10);
    let layouts = [Shape::Rows, Shape::Columns, Shape::Padded, Shape::Backwards];
    for (round, (m, n, k)) in
        [(1, 4, 1), (14, 32, 33), (30, 5, 700), (129, 64, 300), (300, 133, 1100), (16, 513, 64), (40, 256, 20)]
            .into_iter()
            .cycle()
            .take(28)
            .enumerate()
    {
        // The columns of C are adjacent.
        let shapes = [layouts[random.below(4)], layouts[random.below(4)], [Shape::Rows, Shape::Padded][round % 2]];
        let bias = [None, Some((BiasAxis::Column, 1)), Some((BiasAxis::Column, 3))][round % 3];
        let activation = [Activation::None, Activation::GeluTanh, Activation::Gelu][random.below(3)];
        let case = Case { shapes, beta: [0.0, 1.0, 3.0][round % 3], bias, activation, ..Case::plain(1, m, n, k) };
        let mut made = make::<f32>(&case, &mut random);
        let expected = expected(&case, &made);
        with_each_engine(|| compare(&case, &mut made, &expected, multiply_right));
    }
    // SAFETY: nothing is read.
    assert!(unsafe { PackedRight::new([0f32; 4].as_ptr(), [2, 1], 0, 4) }.is_none());
}

#[test]
fn a_strip_of_rows_times_a_matrix_that_lies_along_k() {
    let mut random = Random(7);
    for (m, n, k) in [(8, 70, 33), (16, 65, 900), (17, 300, 512), (31, 200, 1100), (32, 129, 64)] {
        let plain = Case { shapes: [Shape::Rows, Shape::Columns, Shape::Rows], ..Case::plain(1, m, n, k) };
        let bias = Some((BiasAxis::Column, 1));
        let finished = Case { alpha: 2.0, beta: 3.0, bias, activation: Activation::Relu, ..plain };
        let added = Case { beta: 1.0, bias: Some((BiasAxis::Row, 1)), ..plain };
        for case in [plain, finished, added] {
            for dtype in [DType::F32, DType::F64, DType::BF16] {
                with_dtype!(dtype, T => check::<T>(case, &mut random));
            }
        }
    }
}

#[test]
fn long_sums_and_vectors() {
    let mut random = Random(3);
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32] {
        for (m, n, k) in [
            (5, 9, 20_000),
            (4, 4, 16_500),
            (8, 2, 20_000),
            (1, 1, 140_000),
            (1, 70, 3000),
            (2100, 1, 40),
            (3, 1, 70_000),
        ] {
            for shapes in [[Shape::Rows; 3], [Shape::Columns; 3], [Shape::Columns, Shape::Rows, Shape::Sparse]] {
                let case = Case { shapes, bias: Some((BiasAxis::Row, 1)), ..Case::plain(1, m, n, k) };
                with_dtype!(dtype, T => check::<T>(case, &mut random));
            }
        }
    }
}

#[test]
fn a_long_k_goes_block_by_block() {
    let mut random = Random(12);
    // Split by rows and by columns; A read in place and packed from either layout.
    for (m, n, k) in [(300, 70, 3000), (160, 300, 2600), (640, 40, 1100), (90, 420, 1600)] {
        for (a, b, bias, activation) in [
            (Shape::Rows, Shape::Rows, None, Activation::None),
            (Shape::Padded, Shape::Columns, Some((BiasAxis::Column, 1)), Activation::None),
            (Shape::Rows, Shape::Columns, Some((BiasAxis::Column, 1)), Activation::Relu),
            (Shape::Columns, Shape::Rows, Some((BiasAxis::Row, 1)), Activation::Gelu),
        ] {
            let shapes = [a, b, Shape::Rows];
            let case = Case { shapes, alpha: 0.5, beta: 1.5, bias, activation, ..Case::plain(1, m, n, k) };
            check::<f32>(case, &mut random);
        }
        check::<f64>(Case::plain(1, m, n, k), &mut random);
    }
}

#[test]
fn a_shared_right_side_is_folded_into_the_rows() {
    let mut random = Random(4);
    let shapes = [Shape::Rows, Shape::Broadcast, Shape::Rows];
    for bias in [None, Some((BiasAxis::Row, 1)), Some((BiasAxis::Column, 1))] {
        check::<f32>(Case { shapes, bias, ..Case::plain(5, 7, 20, 12) }, &mut random);
    }
}

#[test]
fn the_number_of_threads_does_not_show() {
    let _turn = crate::testing::turn();
    let before = pool::num_threads();
    for (batch, m, n, k) in [
        (1, 150, 210, 500),
        (7, 30, 50, 40),
        (1, 30, 20, 20_000),
        (1, 1, 3000, 600),
        (1, 40, 1, 70_000),
        (1, 20, 900, 64),
        (2, 200, 200, 130),
        (1, 700, 300, 96),
        (1, 600, 130, 700),
        (1, 90, 420, 1600),
    ] {
        fn bits<T: Element>(case: &Case) -> Vec<u64> {
            let mut made = make::<T>(case, &mut Random(5));
            multiply(case, &mut made);
            made.c.data.iter().map(|v| v.to_f64().to_bits()).collect()
        }
        for shapes in [[Shape::Rows; 3], [Shape::Columns; 3], [Shape::Aligned, Shape::Rows, Shape::Rows]] {
            let case = Case { shapes, ..Case::plain(batch, m, n, k) };
            for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
                let results: Vec<_> = [1, 2, 3]
                    .into_iter()
                    .map(|threads| {
                        pool::set_num_threads(threads);
                        with_dtype!(dtype, T => bits::<T>(&case))
                    })
                    .collect();
                assert!(results[0] == results[1] && results[1] == results[2], "{dtype} {case:?}");
            }
        }
    }
    pool::set_num_threads(before);
}

#[test]
fn half_types_round_once() {
    // 1 + 2⁻⁹·512 = 2 only if the small terms are not rounded away one by one.
    let small = 1.0 / 512.0;
    let k = 513;
    fn sum<T: Element>(small: f64, k: usize) -> f64 {
        let a: Vec<T> = (0..4 * k).map(|i| T::from_f64(if i % k == 0 { 1.0 } else { small })).collect();
        let b = vec![T::from_f64(1.0); 4 * k];
        let case = Case::plain(1, 4, 4, k);
        let made = |data| Operand { data, origin: 0, strides: [0, k as isize, 1] };
        let c = Operand { data: vec![T::from_f64(0.0); 16], origin: 0, strides: [0, 4, 1] };
        let mut all = Made { a: made(a), b: Operand { strides: [0, 4, 1], ..made(b) }, c, bias: made(vec![]) };
        multiply(&case, &mut all);
        all.c.data[5].to_f64()
    }
    assert_eq!(sum::<bf16>(small, k), 2.0);
    assert_eq!(sum::<f16>(small, k), 2.0);
}

/// Products of complex matrices against a loop in `f64`, of sizes around strips and blocks.
fn check_complex<T: Element>([batch, m, n, k]: [usize; 4], random: &mut Random) {
    let mut numbers = |count: usize| (0..2 * count).map(|_| T::from_f64(random.value(T::DTYPE))).collect::<Vec<T>>();
    let (a, b) = (numbers(batch * m * k), numbers(batch * k * n));
    let part = |of: &[T], at: usize| of[at].to_f64();
    let mut expected = vec![(0.0, 0.0); 2 * batch * m * n];
    for (place, wanted) in expected.chunks_exact_mut(2).enumerate() {
        let (matrix, i, j) = (place / (m * n), place / n % m, place % n);
        for p in 0..k {
            let (x, y) = (2 * (matrix * m * k + i * k + p), 2 * (matrix * k * n + p * n + j));
            let (c, d) = ((part(&a, x), part(&a, x + 1)), (part(&b, y), part(&b, y + 1)));
            for (to, terms) in wanted.iter_mut().zip([[c.0 * d.0, -c.1 * d.1], [c.0 * d.1, c.1 * d.0]]) {
                *to = (to.0 + terms[0] + terms[1], to.1 + terms[0].abs() + terms[1].abs());
            }
        }
    }
    let allowed = if T::DTYPE == DType::F64 { 4e-15 } else { 1.2e-6 };
    with_each_engine(|| {
        let mut c = vec![T::from_f64(f64::NAN); expected.len()];
        let (a, b) = (a.as_ptr().cast(), b.as_ptr().cast());
        let product = ComplexProduct { dtype: T::DTYPE, batch, m, n, k, a, b, c: c.as_mut_ptr().cast() };
        // SAFETY: the vectors hold the matrices.
        assert!(unsafe { product.run() });
        for (at, (got, want)) in c.iter().zip(&expected).enumerate() {
            let error = (got.to_f64() - want.0).abs();
            assert!(error <= allowed * (want.1 + 1.0), "{:?} {batch} {m} {n} {k} at {at}: {got:?}, {want:?}", T::DTYPE);
        }
    });
}

#[test]
fn complex_matrices() {
    let mut random = Random(8);
    let sizes = [
        [1, 1, 1, 1],
        [1, 3, 5, 7],
        [2, 9, 7, 0],
        [1, 1, 40, 33],
        [1, 40, 1, 33],
        [1, 8, 8, 8],
        [3, 17, 33, 20],
        [5, 64, 16, 17],
        [1, 15, 9, 401],
        [1, 70, 90, 330],
        // Several blocks of K, and several of rows.
        [1, 9, 35, 1601],
        [1, 290, 33, 5],
        // Long sums.
        [1, 3, 5, 16_500],
        [1, 12, 9, 16_500],
    ];
    for size in sizes {
        check_complex::<f32>(size, &mut random);
        check_complex::<f64>(size, &mut random);
    }
}
