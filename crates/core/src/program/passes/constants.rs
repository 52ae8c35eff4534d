//! Constants: numbers instead of tensors that are filled with one.

use super::{covers, uses};
use crate::backend::Call;
use crate::backend::call::{self, Operand, Operands};
use crate::program::{Program, Slot};
use crate::{DType, Scalar};
use half::{bf16, f16};
use std::collections::HashMap;

/// Lets rows and selections read a number where they read a tensor that a fill made.
pub fn constants(program: &Program) -> Program {
    let mut filled: HashMap<usize, (Scalar, DType)> = HashMap::new();
    let mut kept = Vec::with_capacity(program.calls().len());
    for call in program.calls() {
        let number = |operand: &Operand<Slot>| match operand {
            Operand::Tensor(slot) => match filled.get(&slot.buffer) {
                Some(&(value, dtype)) if dtype == slot.dtype => Operand::Scalar(value),
                _ => operand.clone(),
            },
            Operand::Scalar(_) => operand.clone(),
        };
        let call = match call {
            Call::Pointwise(c) => {
                let inputs = replaced(&c.inputs, number);
                Call::Pointwise(call::Pointwise { inputs, ..c.clone() })
            }
            Call::PointwiseGrad(c) => {
                let values = c.values.each_ref().map(|value| value.as_ref().map(number));
                let tensors = values.iter().flatten().filter(|v| matches!(v, Operand::Tensor(_))).count();
                let values = if tensors > 0 { values } else { c.values.clone() };
                Call::PointwiseGrad(call::PointwiseGrad { values, ..c.clone() })
            }
            Call::Select(c) => Call::Select(call::Select { a: number(&c.a), b: number(&c.b), ..c.clone() }),
            other => other.clone(),
        };
        for slot in uses(&call).1 {
            filled.retain(|&buffer, _| !program.alias(buffer, slot.buffer));
        }
        if let Call::Fill(fill) = &call
            && let Some(value) = stored(fill.value, fill.out.dtype)
            && covers(program, &fill.out)
        {
            filled.insert(fill.out.buffer, (value, fill.out.dtype));
        }
        kept.push(call);
    }
    program.with_calls(kept)
}

/// Operands with numbers for constants; one tensor is left.
fn replaced(inputs: &Operands<Slot>, number: impl Fn(&Operand<Slot>) -> Operand<Slot>) -> Operands<Slot> {
    let all = [0, 1, 2].map(|i| inputs.get(i).map_or(Operand::Scalar(Scalar::Int(0)), &number));
    let tensors = all.iter().take(inputs.len()).filter(|x| matches!(x, Operand::Tensor(_))).count();
    if tensors > 0 { Operands::first(all, inputs.len()) } else { inputs.clone() }
}

/// A number as an element of this dtype holds it.
fn stored(value: Scalar, dtype: DType) -> Option<Scalar> {
    Some(match dtype {
        DType::F64 => Scalar::Float(value.to::<f64>()),
        DType::F32 => Scalar::Float(value.to::<f32>() as f64),
        DType::F16 => Scalar::Float(value.to::<f16>().to_f64()),
        DType::BF16 => Scalar::Float(value.to::<bf16>().to_f64()),
        DType::I64 => Scalar::Int(value.to::<i64>()),
        DType::I32 => Scalar::Int(value.to::<i32>() as i64),
        DType::Bool => Scalar::Bool(value.to::<bool>()),
        _ => return None,
    })
}
