//! Passes: each a function from a program to one that does the same with less.
//!
//! A pass relies on what calls say of themselves and on [`Program::is_result`] and [`Program::alias`] alone. Every pass
//! keeps the memory that a program has: buffers keep their numbers, and a program over fixed memory stays valid in it.

mod common;
mod constants;
mod dead;
mod fuse;
mod grouped;
mod narrow;
mod norms;
mod pack;
mod recompute;
mod split;
#[cfg(test)]
mod tests;

pub use common::common;
pub use constants::constants;
pub use dead::dead;
pub use fuse::fuse;
pub use grouped::grouped;
pub use narrow::narrow;
pub use norms::norms;
pub use pack::{Use, pack};
pub use recompute::recompute;
pub use split::split;

use super::{Program, Slot};
use crate::Result;
use crate::backend::call::Access;
use crate::backend::{Call, Packed};

/// The variable that turns [`fuse`] off: `RUSHLIGHT_FUSE=0`.
pub const FUSE: &str = "RUSHLIGHT_FUSE";

/// Whether programs are fused.
pub fn is_fusing() -> bool {
    std::env::var_os(FUSE).is_none_or(|v| v != "0")
}

/// A pass with its name.
pub type Pass = (&'static str, fn(&Program) -> Program);

/// All passes, in order.
pub const PASSES: &[Pass] = &[
    ("constants", constants),
    ("common", common),
    ("dead", dead),
    ("grouped", grouped),
    ("norms", norms),
    ("narrow", narrow),
    ("recompute", recompute),
    ("split", split),
    ("fuse", fuse),
    ("dead", dead),
];

/// Runs all passes and verifies the program after each; an error names the pass.
pub fn optimize(program: &Program) -> Result<Program> {
    optimize_with(program, |_, _| None)
}

/// [`optimize`] for a program with constant weights: `packed` brings those of a product or a convolution into its
/// engine's layout ([`pack`]).
pub fn optimize_with(program: &Program, mut packed: impl FnMut(Use, &Slot) -> Option<Packed>) -> Result<Program> {
    let mut program = program.clone();
    if program.foreign().is_some() {
        return Ok(program);
    }
    for (name, pass) in PASSES {
        if *name == "fuse" {
            program = pack(&program, &mut packed);
            program.verify().map_err(|e| e.within("pass pack"))?;
        }
        if matches!(*name, "split" | "fuse") && !is_fusing() {
            continue;
        }
        program = pass(&program);
        program.verify().map_err(|e| e.within(&format!("pass {name}")))?;
    }
    Ok(program)
}

/// Whether a call writes all bytes of a buffer through this view.
fn covers(program: &Program, slot: &Slot) -> bool {
    let bytes = slot.layout.numel() * slot.dtype.size();
    slot.layout.offset() == 0
        && slot.layout.is_dense()
        && program.buffers().get(slot.buffer).is_some_and(|b| b.bytes == bytes)
}

/// Whether a call is determined by its inputs and parameters, and does nothing but write its outputs.
fn is_pure(call: &Call<Slot>) -> bool {
    !matches!(call, Call::Update(_) | Call::ForeachScale(_) | Call::Linalg(_) | Call::PackedMatMul(_))
}

/// The buffers that a call reads and those that it writes.
fn uses(call: &Call<Slot>) -> (Vec<&Slot>, Vec<&Slot>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    call.visit(&mut |access, slot| {
        let access = call.effective(access);
        if access != Access::Write {
            reads.push(slot);
        }
        if access != Access::Read {
            writes.push(slot);
        }
    });
    (reads, writes)
}
