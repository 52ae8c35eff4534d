//! Collectives of the ranks of one node, in rounds over shared memory.

use super::shm::{NodeSegment, SLOT};
use super::{Call, Reduction, SMALL, Span, part};
use rushlight_core::Result;

/// Rounds to move `len` bytes, `each` at a time: at least one, in which the ranks compare signatures.
fn rounds(len: usize, each: usize) -> usize {
    len.div_ceil(each).max(1)
}

// All methods: spans are valid and used by nothing else until the method returns. Slots are written by their rank
// between `begin` and `publish`, and read by others after `wait`.
impl NodeSegment {
    /// Bytes of a slot for each rank.
    fn share(&self) -> usize {
        SLOT / self.count / 64 * 64
    }

    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, index) = (self.count, self.index);
        // Starts with the next rank, so that the ranks do not all read the same slot at once.
        (1..count).map(move |step| (index + step) % count)
    }

    pub(crate) fn barrier(&mut self, call: &Call) -> Result<()> {
        self.begin(&call.signature, &call.limit)?;
        self.publish();
        self.wait_all(&call.limit)
    }

    pub(crate) unsafe fn all_reduce(&mut self, data: Span, how: Reduction, call: &Call) -> Result<()> {
        // SAFETY: see above the impl.
        unsafe {
            if data.len <= SMALL {
                return self.all_reduce_small(data, how, call);
            }
            if self.count == 2 {
                return self.all_reduce_pair(data, how, call);
            }
            let (count, index) = (self.count, self.index);
            let total = rounds(data.len, SLOT);
            let mut previous = Span::EMPTY;
            // A round publishes this rank's chunk and its finished part of the previous chunk.
            for round in 0..=total {
                self.begin(&call.signature, &call.limit)?;
                let chunk = data.part(round * SLOT, SLOT);
                let mine = part(chunk.len, count, index);
                let slot = self.slot(index, 0, false);
                for other in self.others() {
                    let (start, len) = part(chunk.len, count, other);
                    slot.part(start, len).copy_from(chunk.part(start, len));
                }
                self.publish();
                let result = chunk.part(mine.0, mine.1);
                let made = self.slot(index, 0, true).part(0, result.len);
                for (i, other) in self.others().enumerate() {
                    self.wait(other, 0, &call.limit)?;
                    let theirs = self.slot(other, 0, false).part(mine.0, mine.1);
                    match i + 2 == count {
                        true => how.combine_last(result, theirs, made, count),
                        false => how.combine(result, theirs),
                    }
                }
                if round > 0 {
                    for other in self.others() {
                        let (start, len) = part(previous.len, count, other);
                        previous.part(start, len).copy_from(self.slot(other, 1, true));
                    }
                }
                previous = chunk;
            }
            Ok(())
        }
    }

    /// Two ranks: each reads all data of the other and computes the whole result. That moves as many bytes between
    /// cores as exchanging halves and their results. A round publishes a chunk before the previous one is combined.
    unsafe fn all_reduce_pair(&mut self, data: Span, how: Reduction, call: &Call) -> Result<()> {
        let (index, other) = (self.index, 1 - self.index);
        let total = rounds(data.len, SLOT);
        for round in 0..=total {
            if round < total {
                self.begin(&call.signature, &call.limit)?;
                // SAFETY: see above the impl.
                unsafe { self.slot(index, 0, false).copy_from(data.part(round * SLOT, SLOT)) };
                self.publish();
            }
            if round > 0 {
                let back = (round < total) as u32;
                self.wait(other, back, &call.limit)?;
                let theirs = self.slot(other, back, false);
                // SAFETY: see above the impl.
                unsafe { how.combine_pair(data.part((round - 1) * SLOT, SLOT), theirs, index == 0) };
            }
        }
        Ok(())
    }

    /// Every rank reduces everything, in the same order.
    unsafe fn all_reduce_small(&mut self, data: Span, how: Reduction, call: &Call) -> Result<()> {
        self.begin(&call.signature, &call.limit)?;
        // SAFETY: see above the impl.
        unsafe {
            self.slot(self.index, 0, false).copy_from(data);
            self.publish();
            self.wait_all(&call.limit)?;
            data.copy_from(self.slot(0, 0, false));
            for index in 1..self.count {
                how.combine(data, self.slot(index, 0, false));
            }
            how.finish(data, self.count);
        }
        Ok(())
    }

    pub(crate) unsafe fn broadcast(&mut self, data: Span, root: usize, call: &Call) -> Result<()> {
        for round in 0..rounds(data.len, SLOT) {
            let chunk = data.part(round * SLOT, SLOT);
            self.begin(&call.signature, &call.limit)?;
            if self.index == root {
                // SAFETY: see above the impl.
                unsafe { self.slot(root, 0, false).copy_from(chunk) };
                self.publish();
            } else {
                self.publish();
                self.wait(root, 0, &call.limit)?;
                // SAFETY: see above the impl.
                unsafe { chunk.copy_from(self.slot(root, 0, false)) };
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn reduce(&mut self, data: Span, how: Reduction, root: usize, call: &Call) -> Result<()> {
        for round in 0..rounds(data.len, SLOT) {
            let chunk = data.part(round * SLOT, SLOT);
            self.begin(&call.signature, &call.limit)?;
            // SAFETY: see above the impl.
            unsafe {
                if self.index != root {
                    self.slot(self.index, 0, false).copy_from(chunk);
                }
                self.publish();
                if self.index == root {
                    for other in self.others() {
                        self.wait(other, 0, &call.limit)?;
                        how.combine(chunk, self.slot(other, 0, false));
                    }
                    how.finish(chunk, self.count);
                }
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn all_gather(&mut self, input: Span, outputs: &[Span], call: &Call) -> Result<()> {
        let longest = outputs.iter().map(|o| o.len).max().unwrap_or(0);
        for round in 0..rounds(longest, SLOT) {
            self.begin(&call.signature, &call.limit)?;
            // SAFETY: see above the impl.
            unsafe {
                self.slot(self.index, 0, false).copy_from(input.part(round * SLOT, SLOT));
                self.publish();
                for other in self.others() {
                    self.wait(other, 0, &call.limit)?;
                    outputs[other].part(round * SLOT, SLOT).copy_from(self.slot(other, 0, false));
                }
            }
        }
        Ok(())
    }

    /// Without the last step of the reduction.
    pub(crate) unsafe fn reduce_scatter(
        &mut self,
        inputs: &[Span],
        output: Span,
        how: Reduction,
        call: &Call,
    ) -> Result<()> {
        let share = self.share();
        let longest = inputs.iter().map(|i| i.len).max().unwrap_or(0);
        for round in 0..rounds(longest, share) {
            self.begin(&call.signature, &call.limit)?;
            // SAFETY: see above the impl.
            unsafe {
                let slot = self.slot(self.index, 0, false);
                for other in self.others() {
                    slot.part(other * share, share).copy_from(inputs[other].part(round * share, share));
                }
                self.publish();
                for other in self.others() {
                    self.wait(other, 0, &call.limit)?;
                    let theirs = self.slot(other, 0, false).part(self.index * share, share);
                    how.combine(output.part(round * share, share), theirs);
                }
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn all_to_all(&mut self, inputs: &[Span], outputs: &[Span], call: &Call) -> Result<()> {
        let share = self.share();
        let mut longest = inputs.iter().map(|i| i.len).max().unwrap_or(0);
        // No rank knows all lengths: a first round finds the longest.
        self.begin(&call.signature, &call.limit)?;
        // SAFETY: see above the impl; a slot has room for a number, aligned.
        unsafe {
            self.slot(self.index, 0, false).ptr.cast::<usize>().write(longest);
            self.publish();
            for other in self.others() {
                self.wait(other, 0, &call.limit)?;
                longest = longest.max(self.slot(other, 0, false).ptr.cast::<usize>().read());
            }
        }
        for round in 0..longest.div_ceil(share) {
            self.begin(&call.signature, &call.limit)?;
            // SAFETY: see above the impl.
            unsafe {
                let slot = self.slot(self.index, 0, false);
                for other in self.others() {
                    slot.part(other * share, share).copy_from(inputs[other].part(round * share, share));
                }
                self.publish();
                for other in self.others() {
                    self.wait(other, 0, &call.limit)?;
                    let theirs = self.slot(other, 0, false).part(self.index * share, share);
                    outputs[other].part(round * share, share).copy_from(theirs);
                }
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn gather(&mut self, input: Span, outputs: &[Span], root: usize, call: &Call) -> Result<()> {
        for round in 0..rounds(input.len, SLOT) {
            self.begin(&call.signature, &call.limit)?;
            // SAFETY: see above the impl.
            unsafe {
                self.slot(self.index, 0, false).copy_from(input.part(round * SLOT, SLOT));
                self.publish();
                if self.index == root {
                    for other in self.others() {
                        self.wait(other, 0, &call.limit)?;
                        outputs[other].part(round * SLOT, SLOT).copy_from(self.slot(other, 0, false));
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn scatter(&mut self, inputs: &[Span], output: Span, root: usize, call: &Call) -> Result<()> {
        let share = self.share();
        for round in 0..rounds(output.len, share) {
            self.begin(&call.signature, &call.limit)?;
            // SAFETY: see above the impl.
            unsafe {
                if self.index == root {
                    let slot = self.slot(root, 0, false);
                    for other in self.others() {
                        slot.part(other * share, share).copy_from(inputs[other].part(round * share, share));
                    }
                    self.publish();
                } else {
                    self.publish();
                    self.wait(root, 0, &call.limit)?;
                    let own = self.slot(root, 0, false).part(self.index * share, share);
                    output.part(round * share, share).copy_from(own);
                }
            }
        }
        Ok(())
    }
}
