//! Dead code.

use super::{covers, uses};
use crate::backend::Call;
use crate::program::{Program, Slot};

/// Leaves out calls whose results nobody reads.
pub fn dead(program: &Program) -> Program {
    let mut needed: Vec<bool> = (0..program.buffers().len()).map(|b| program.is_result(b)).collect();
    let mut kept: Vec<Call<Slot>> = Vec::with_capacity(program.calls().len());
    for call in program.calls().iter().rev() {
        let (reads, writes) = uses(call);
        // A call without outputs has an effect of another kind.
        if !writes.is_empty() && !writes.iter().any(|slot| needed[slot.buffer]) {
            continue;
        }
        for slot in writes {
            if covers(program, slot) && !program.buffers()[slot.buffer].outside {
                needed[slot.buffer] = false;
            }
        }
        for slot in reads {
            needed[slot.buffer] = true;
        }
        kept.push(call.clone());
    }
    kept.reverse();
    program.with_calls(kept)
}
