//! Every op of the table against the same formula evaluated in `f64` or `i64`.

use crate::isa::{self, Level, Portable};
use crate::lane::Lane;
use crate::testing::Array;
use rushlight_core::rows::*;
use rushlight_core::{DType, Operand, Pointwise};
use rushlight_cpu::pointwise::{pointwise, pointwise_grad};

type Wide = Lane<f64, Portable>;

fn lanes(x: [f64; 3]) -> [Wide; 3] {
    x.map(Wide::new)
}

fn literals(p: [f64; 4]) -> [Wide; 4] {
    p.map(Wide::new)
}

/// The op's value computed in `f64`, one element at a time; integers in `i64`, then wrapped.
struct Reference {
    x: [f64; 3],
    p: [f64; 4],
    dtype: DType,
}

impl Reference {
    fn ints(&self) -> [Lane<i64, Portable>; 3] {
        self.x.map(|v| Lane::new(v as i64))
    }
}

fn wrapped(v: i64, dtype: DType) -> f64 {
    use rushlight_core::Element;
    rushlight_core::with_dtype!(dtype, T => T::from_i64(v).to_f64())
}

impl Visitor for Reference {
    type Out = f64;
    fn num<O: NumRow>(self) -> f64 {
        if self.dtype.is_int() {
            let p = self.p.map(|v| Lane::new(v as i64));
            return wrapped(O::eval(self.ints(), p).0, self.dtype);
        }
        O::eval(lanes(self.x), literals(self.p)).0
    }
    fn real<O: RealRow>(self) -> f64 {
        O::eval(lanes(self.x), literals(self.p)).0
    }
    fn compare<O: CompareRow>(self) -> f64 {
        O::eval(lanes(self.x), literals(self.p)) as u8 as f64
    }
    fn test<O: TestRow>(self) -> f64 {
        O::eval(lanes(self.x), literals(self.p)) as u8 as f64
    }
    fn bits<O: BitsRow>(self) -> f64 {
        wrapped(O::eval(self.ints()).0, self.dtype)
    }
}

struct Gradient {
    wrt: usize,
    dy: f64,
    x: [f64; 3],
    y: f64,
    p: [f64; 4],
}

impl Gradient {
    fn row<O: Row>(self) -> f64 {
        let (dy, x, y, p) = (Wide::new(self.dy), lanes(self.x), Wide::new(self.y), literals(self.p));
        match self.wrt {
            0 => O::grad::<Wide, 0>(dy, x, y, p).0,
            1 => O::grad::<Wide, 1>(dy, x, y, p).0,
            _ => O::grad::<Wide, 2>(dy, x, y, p).0,
        }
    }
}

impl Visitor for Gradient {
    type Out = f64;
    fn num<O: NumRow>(self) -> f64 {
        self.row::<O>()
    }
    fn real<O: RealRow>(self) -> f64 {
        self.row::<O>()
    }
    fn compare<O: CompareRow>(self) -> f64 {
        self.row::<O>()
    }
    fn test<O: TestRow>(self) -> f64 {
        self.row::<O>()
    }
    fn bits<O: BitsRow>(self) -> f64 {
        self.row::<O>()
    }
}

const N: usize = 131;

/// Deterministic inputs: exact in every dtype they are stored in, within the op's domain mostly.
fn sample(op: Pointwise, dtype: DType, input: usize, i: usize) -> f64 {
    let k = (i * 37 + input * 53 + 11) % 97;
    if dtype.is_int() {
        let v = k as f64 - if dtype == DType::U8 { 0.0 } else { 48.0 };
        return if op == Pointwise::Pow && input == 1 { (k % 7) as f64 } else { v };
    }
    let v = (k as f64 - 48.0) / 16.0;
    match op {
        // Poles and jumps amplify the rounding of the input.
        Pointwise::Lgamma | Pointwise::Digamma | Pointwise::Polygamma => v.abs() + 0.25,
        _ => v,
    }
}

fn params(op: Pointwise) -> [f64; 4] {
    match op {
        Pointwise::RoundDecimals => [10.0, 0.0, 0.0, 0.0],
        Pointwise::Polygamma => [2.0, 0.0, 0.0, 0.0],
        Pointwise::Logit => [0.25, 0.0, 0.0, 0.0],
        Pointwise::Softplus => [1.5, 4.0, 0.0, 0.0],
        Pointwise::Hardtanh => [1.0, 2.0, 0.0, 0.0],
        Pointwise::Nextafter => [1.0, 0.0, -1.0, f64::INFINITY],
        _ => [0.5, 2.0, 0.25, 0.0],
    }
}

#[track_caller]
fn check(what: &str, got: f64, want: f64, tolerance: f64) {
    let same = got == want || got.is_nan() && want.is_nan();
    let close = (got - want).abs() <= tolerance * (1.0 + want.abs());
    assert!(same || close, "{what}: got {got:e}, want {want:e}");
}

fn computes(class: Class) -> &'static [DType] {
    use DType::*;
    match class {
        Class::Num | Class::Compare => &[F32, F64, I64, I32, I16, I8, U8],
        Class::Real | Class::Test => &[F32, F64],
        Class::Bits => &[I64, I32, I16, I8, U8],
    }
}

fn every_value() {
    for &op in Pointwise::ALL {
        for &dtype in computes(op.class()) {
            let inputs: Vec<Array> =
                (0..op.inputs().len()).map(|k| Array::new(dtype, &[N], |i| sample(op, dtype, k, i))).collect();
            let operands: Vec<Operand> = inputs.iter().map(|a| Operand::Tensor(a.view())).collect();
            let gives = if matches!(op.class(), Class::Compare | Class::Test) { DType::Bool } else { dtype };
            let out = Array::new(gives, &[N], |_| 1.0);
            let p = params(op);
            pointwise(op, dtype, &operands, &p[..op.params().len()], out.view()).unwrap();
            let p: [f64; 4] = std::array::from_fn(|i| if i < op.params().len() { p[i] } else { 0.0 });
            for i in 0..N {
                let mut x = [0.0; 3];
                inputs.iter().zip(&mut x).for_each(|(a, x)| *x = a.get(i));
                let want = op.visit(Reference { x, p, dtype });
                let tolerance = if dtype == DType::F32 { 2e-6 } else { 1e-14 };
                check(&format!("{} {dtype} {x:?}", op.name()), out.get(i), want, tolerance);
            }
        }
    }
}

fn every_derivative() {
    for &op in Pointwise::ALL {
        for wrt in 0..op.grad_text().len() {
            for dtype in [DType::F32, DType::F64] {
                // Away from zero, where a derivative may divide by the value.
                let values: Vec<Array> = (0..5)
                    .map(|k| {
                        Array::new(dtype, &[N], |i| sample(op, dtype, k, i).abs() + 0.0625 + (k == 4) as u8 as f64)
                    })
                    .collect();
                let reads = op.grad_reads(wrt).mask;
                let operands =
                    std::array::from_fn(|k| (reads >> k & 1 == 1).then(|| Operand::Tensor(values[k].view())));
                let out = Array::new(dtype, &[N], |_| 1.0);
                let mut p = params(op);
                p[op.params().len()..].fill(0.0);
                pointwise_grad(op, wrt, dtype, operands, &p, out.view()).unwrap();
                for i in 0..N {
                    let at = |k: usize| values[k].get(i);
                    let x = [at(1), at(2), at(3)];
                    let want = op.visit(Gradient { wrt, dy: at(0), x, y: at(4), p });
                    let tolerance = if dtype == DType::F32 { 1e-5 } else { 1e-14 };
                    check(&format!("{} by {wrt} {dtype} {x:?}", op.name()), out.get(i), want, tolerance);
                }
            }
        }
    }
}

/// One test for all levels, because the level is process-wide.
#[test]
fn every_op_dtype_and_level() {
    let _turn = crate::testing::turn();
    let before = isa::level();
    for level in Level::ALL {
        isa::force(level);
        every_value();
        every_derivative();
    }
    isa::force(before);
}

#[test]
fn a_dtype_the_op_does_not_take_is_an_error() {
    let (a, out) = (Array::new(DType::I32, &[2], |_| 1.0), Array::new(DType::I32, &[2], |_| 1.0));
    assert!(pointwise(Pointwise::Exp, DType::I32, &[Operand::Tensor(a.view())], &[], out.view()).is_err());
    assert!(pointwise_grad(Pointwise::Eq, 0, DType::F32, [None; 5], &[], out.view()).is_err());
}
