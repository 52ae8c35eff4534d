//! The rules of a program.

use super::{Program, Slot};
use crate::backend::call::Access;
use crate::{Error, Result};

impl Program {
    /// Checks that every view is within its buffer, that shapes and dtypes fit each call
    /// ([`Call::check`](crate::backend::Call::check)), that a call's outputs do not overlap themselves or each other,
    /// and that the program reads no buffer of its own before it wrote to it. The error names the call.
    pub fn verify(&self) -> Result<()> {
        let mut written: Vec<bool> = self.buffers.iter().map(|buffer| buffer.outside).collect();
        for (i, call) in self.calls.iter().enumerate() {
            let fault = |what: String| Error::value(format!("program: call {i}, {}: {what}", call.op_name()));
            call.check().map_err(|e| fault(e.to_string()))?;
            let (mut result, mut outputs) = (Ok(()), Vec::new());
            call.visit(&mut |access, slot| {
                let found = self.check(slot).and_then(|()| {
                    if call.effective(access) != Access::Write && !written[slot.buffer] && slot.layout.numel() > 0 {
                        return Err(format!("reads buffer %{}, which was not written yet", slot.buffer));
                    }
                    if access != Access::Read {
                        if slot.layout.overlaps() {
                            return Err(format!("writes %{} through a view that overlaps itself", slot.buffer));
                        }
                        outputs.push(slot);
                    }
                    Ok(())
                });
                if let (Ok(()), Err(what)) = (&result, found) {
                    result = Err(fault(what));
                }
            });
            result?;
            for (k, a) in outputs.iter().enumerate() {
                if let Some(b) = outputs[..k].iter().find(|b| a == *b && a.layout.numel() > 0) {
                    return Err(fault(format!("writes %{} twice", b.buffer)));
                }
                written[a.buffer] = true;
            }
        }
        Ok(())
    }

    fn check(&self, slot: &Slot) -> std::result::Result<(), String> {
        let Some(buffer) = self.buffers.get(slot.buffer) else {
            return Err(format!("there is no buffer %{}", slot.buffer));
        };
        let end = slot.layout.span().map_err(|e| e.to_string())?;
        if slot.layout.numel() > 0 && end * slot.dtype.size() > buffer.bytes {
            let bytes = end * slot.dtype.size();
            return Err(format!("a view ends at byte {bytes} of %{}, which has {}", slot.buffer, buffer.bytes));
        }
        Ok(())
    }
}
