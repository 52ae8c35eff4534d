//! Formulas of elements and the numbers of random draws, as the engines of GPUs programmed in C share them.

use rushlight_core::half::{bf16, f16};
use rushlight_core::rows::Class;
use rushlight_core::{DType, Error, Operand, Pointwise, Result, Scalar};

/// Maximum inputs: a derivative reads the gradient, three inputs and the output.
pub const INPUTS: usize = 5;

/// The formula of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// A row's value.
    Row(Pointwise),
    /// A row's derivative by an input.
    Derivative(Pointwise, u8),
    /// The first input.
    Copy,
    /// The second or the third input, by the first.
    Select,
}

impl Formula {
    /// Its number in the key of a kernel.
    pub fn number(self) -> u16 {
        match self {
            Formula::Row(op) => op as u16,
            Formula::Derivative(op, wrt) => op as u16 | (wrt as u16 + 1) << 8,
            Formula::Copy => 0xFF00,
            Formula::Select => 0xFF01,
        }
    }

    /// A row and its operands, if the row is defined for numbers of the dtype that it computes in.
    pub fn of_row<'a>(
        op: Pointwise,
        compute: DType,
        inputs: &[Operand<'a>],
    ) -> Result<(Self, [Option<Operand<'a>>; INPUTS])> {
        let takes = match op.class() {
            Class::Real | Class::Test => compute.is_float(),
            Class::Bits => !compute.is_float(),
            Class::Num | Class::Compare => true,
        };
        if !takes {
            return Err(Error::dtype(format!("{} is not defined for {compute}", op.name())));
        }
        let mut operands = [None; INPUTS];
        for (place, input) in operands.iter_mut().zip(inputs) {
            *place = Some(*input);
        }
        Ok((Formula::Row(op), operands))
    }
}

/// A scalar among integers of a dtype.
pub fn integer(value: Scalar, dtype: DType) -> i64 {
    match dtype {
        DType::I32 => value.to::<i32>() as i64,
        DType::I16 => value.to::<i16>() as i64,
        DType::I8 => value.to::<i8>() as i64,
        DType::U8 => value.to::<u8>() as i64,
        DType::Bool => value.to::<bool>() as i64,
        _ => value.to::<i64>(),
    }
}

/// Number of 24-bit values whose uniform is below `p`.
pub fn words_below(p: f64) -> u32 {
    (p * 16_777_216.0).ceil().clamp(0.0, 16_777_216.0) as u32
}

/// The largest value of a dtype that is below `high`, but at least `low`.
pub fn largest_below(dtype: DType, low: f64, high: f64) -> f64 {
    /// The bit pattern of the next smaller half.
    fn down(bits: u16) -> u16 {
        match bits {
            0 => 0x8001,
            b if b & 0x8000 == 0 => b - 1,
            b => b + 1,
        }
    }
    let nearest = match dtype {
        DType::F32 => high as f32 as f64,
        DType::F16 => f16::from_f64(high).to_f64(),
        DType::BF16 => bf16::from_f64(high).to_f64(),
        _ => high,
    };
    let below = match dtype {
        _ if nearest < high => nearest,
        DType::F32 => (nearest as f32).next_down() as f64,
        DType::F16 => f16::from_bits(down(f16::from_f64(nearest).to_bits())).to_f64(),
        DType::BF16 => bf16::from_bits(down(bf16::from_f64(nearest).to_bits())).to_f64(),
        _ => nearest.next_down(),
    };
    below.max(low)
}
