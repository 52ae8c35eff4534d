//! Pointwise steps that run in one pass over memory: the parameters of the call `fused`.

use super::call::Numbers;
use super::spec;
use crate::{DType, Pointwise, Scalar};
use smallvec::SmallVec;
use std::fmt;

/// Most inputs of a fused call.
pub const MAX_INPUTS: usize = 16;
/// Most outputs of a fused call.
pub const MAX_OUTPUTS: usize = 8;
/// Most steps of a fused call.
pub const MAX_STEPS: usize = 192;

/// A reduction of a row to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowReduce {
    /// The sum.
    Sum,
    /// The sum over the count.
    Mean,
    /// The largest; NaN wins.
    Max,
    /// The smallest; NaN wins.
    Min,
}

impl RowReduce {
    /// The reduction that a call makes, if rows have it.
    pub fn of(op: spec::Reduce) -> Option<Self> {
        Some(match op {
            spec::Reduce::Sum => Self::Sum,
            spec::Reduce::Mean => Self::Mean,
            spec::Reduce::Max => Self::Max,
            spec::Reduce::Min => Self::Min,
            _ => return None,
        })
    }

    /// The same as a call's.
    pub fn op(self) -> spec::Reduce {
        match self {
            Self::Sum => spec::Reduce::Sum,
            Self::Mean => spec::Reduce::Mean,
            Self::Max => spec::Reduce::Max,
            Self::Min => spec::Reduce::Min,
        }
    }
}

/// The computation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepOp {
    /// A row's value.
    Row(Pointwise),
    /// A row's derivative by an input; the arguments are the gradient, three inputs and the output.
    Derivative(Pointwise, u8),
    /// The second or the third argument, by the first.
    Select,
    /// The argument, converted.
    Copy,
    /// One value for each row of the argument: only in the call `fused_rows`.
    Reduced(RowReduce),
}

/// An argument of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepArg {
    /// An input of the call.
    Input(u16),
    /// The value of an earlier step.
    Step(u16),
    /// A number.
    Number(Scalar),
    /// Nothing: a value that a derivative does not read.
    Unused,
}

/// One pointwise computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What is computed.
    pub op: StepOp,
    /// The dtype that a row is computed in.
    pub compute: DType,
    /// The dtype of the value: it is rounded as if it were stored.
    pub out: DType,
    /// The arguments.
    pub args: SmallVec<[StepArg; 3]>,
    /// The row's parameters.
    pub params: Numbers,
}

/// Steps in order, and the steps whose values are the outputs.
#[derive(Clone, PartialEq)]
pub struct Steps {
    /// The steps; each may use those before it.
    pub steps: Vec<Step>,
    /// For each output the step whose value it is.
    pub stores: SmallVec<[u16; 4]>,
}

impl Steps {
    /// The names of the rows, in order: `mul, add, gelu`.
    pub fn names(&self) -> String {
        let names: Vec<String> = self.steps.iter().map(|step| step.op.to_string()).collect();
        names.join(", ")
    }

    /// For each step whether it has one value per row, where `inputs` says which inputs do: the result of a reduction,
    /// and what is computed of such values alone.
    pub fn per_row(&self, inputs: &[bool]) -> Vec<bool> {
        let mut per_row: Vec<bool> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let one = |arg: &StepArg| match arg {
                StepArg::Input(x) => inputs.get(*x as usize).copied().unwrap_or(false),
                StepArg::Step(t) => per_row.get(*t as usize).copied().unwrap_or(false),
                StepArg::Number(_) | StepArg::Unused => true,
            };
            per_row.push(matches!(step.op, StepOp::Reduced(_)) || step.args.iter().all(one));
        }
        per_row
    }

    /// Whether rows are reduced.
    pub fn reduces(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.op, StepOp::Reduced(_)))
    }
}

impl fmt::Display for StepOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepOp::Row(op) => f.write_str(op.name()),
            StepOp::Derivative(op, wrt) => write!(f, "{}_backward_{wrt}", op.name()),
            StepOp::Select => f.write_str("select"),
            StepOp::Copy => f.write_str("copy"),
            StepOp::Reduced(op) => f.write_str(match op {
                RowReduce::Sum => "row_sum",
                RowReduce::Mean => "row_mean",
                RowReduce::Max => "row_max",
                RowReduce::Min => "row_min",
            }),
        }
    }
}

/// `t0 = mul(x0, x1) float32; t1 = relu(t0) float32; out t1`.
impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            write!(f, "t{i} = {}(", step.op)?;
            for (k, arg) in step.args.iter().enumerate() {
                let comma = if k > 0 { ", " } else { "" };
                match arg {
                    StepArg::Input(x) => write!(f, "{comma}x{x}")?,
                    StepArg::Step(t) => write!(f, "{comma}t{t}")?,
                    StepArg::Number(s) => write!(f, "{comma}{s:?}")?,
                    StepArg::Unused => write!(f, "{comma}_")?,
                }
            }
            write!(f, ")")?;
            if !step.params.is_empty() {
                write!(f, " {:?}", &step.params[..])?;
            }
            write!(f, " {}; ", step.out)?;
        }
        f.write_str("out")?;
        self.stores.iter().try_for_each(|t| write!(f, " t{t}"))
    }
}
