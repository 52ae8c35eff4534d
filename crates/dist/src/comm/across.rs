//! Collectives between nodes, over connections.

use super::links::{Channel, Transfer};
use super::{Call, Communicator, Reduction, SMALL, Span, part};
use rushlight_core::Result;

// All methods: spans are valid and used by nothing else until the method returns.
impl Communicator {
    /// Sends to one rank while receiving from another.
    unsafe fn shift(&mut self, to: usize, out: Span, from: usize, into: Span, call: &Call) -> Result<()> {
        let mut both =
            [Transfer::send(to, Channel::COLLECTIVE, out), Transfer::receive(from, Channel::COLLECTIVE, into)];
        // SAFETY: see above the impl.
        unsafe { self.links.run(&mut both, &call.signature, &call.limit) }
    }

    unsafe fn send(&mut self, to: usize, out: Span, call: &Call) -> Result<()> {
        let mut one = [Transfer::send(to, Channel::COLLECTIVE, out)];
        // SAFETY: see above the impl.
        unsafe { self.links.run(&mut one, &call.signature, &call.limit) }
    }

    unsafe fn receive(&mut self, from: usize, into: Span, call: &Call) -> Result<()> {
        let mut one = [Transfer::receive(from, Channel::COLLECTIVE, into)];
        // SAFETY: see above the impl.
        unsafe { self.links.run(&mut one, &call.signature, &call.limit) }
    }

    pub(super) unsafe fn all_reduce_across(&mut self, data: Span, how: Reduction, call: &Call) -> Result<()> {
        let locals = self.nodes[self.node].len();
        let even = self.nodes.iter().all(|ranks| ranks.len() == locals);
        let sum = how.partial();
        // SAFETY: see above the impl.
        unsafe {
            match &mut self.shared {
                Some(shared) if even => {
                    let index = shared.index;
                    let parts: Vec<Span> = (0..locals)
                        .map(|i| part(data.len, locals, i))
                        .map(|(start, len)| data.part(start, len))
                        .collect();
                    shared.reduce_scatter(&parts, parts[index], sum, call)?;
                    let ring: Vec<usize> = self.nodes.iter().map(|ranks| ranks[index]).collect();
                    self.all_reduce_among(&ring, parts[index], sum, call)?;
                    how.finish(parts[index], self.size);
                    match &mut self.shared {
                        Some(shared) => shared.all_gather(parts[index], &parts, call),
                        None => Ok(()),
                    }
                }
                _ => {
                    let all: Vec<usize> = (0..self.size).collect();
                    self.all_reduce_among(&all, data, sum, call)?;
                    how.finish(data, self.size);
                    Ok(())
                }
            }
        }
    }

    /// All-reduce over a list of ranks that includes this one.
    unsafe fn all_reduce_among(&mut self, ranks: &[usize], data: Span, how: Reduction, call: &Call) -> Result<()> {
        let Some(at) = ranks.iter().position(|&r| r == self.rank) else { return Ok(()) };
        // SAFETY: see above the impl.
        unsafe {
            match data.len {
                _ if ranks.len() == 1 => Ok(()),
                0..=SMALL => self.recursive_doubling(ranks, at, data, how, call),
                _ => self.ring(ranks, at, data, how, call),
            }
        }
    }

    /// Bandwidth: each rank reduces one part and passes it around the ring.
    unsafe fn ring(&mut self, ranks: &[usize], at: usize, data: Span, how: Reduction, call: &Call) -> Result<()> {
        let n = ranks.len();
        let (next, before) = (ranks[(at + 1) % n], ranks[(at + n - 1) % n]);
        let piece = |i: usize| {
            let (start, len) = part(data.len, n, i % n);
            data.part(start, len)
        };
        let scratch = self.scratch(part(data.len, n, 0).1);
        // SAFETY: see above the impl; the scratch is this communicator's own.
        unsafe {
            for step in 0..n - 1 {
                let (out, into) = (piece(at + n - step), piece(at + 2 * n - step - 1));
                let arrived = scratch.part(0, into.len);
                self.shift(next, out, before, arrived, call)?;
                how.combine(into, arrived);
            }
            for step in 0..n - 1 {
                self.shift(next, piece(at + 1 + n - step), before, piece(at + n - step), call)?;
            }
        }
        Ok(())
    }

    /// Latency: pairs at doubling distance exchange all data. Ranks beyond the largest power of two first send theirs
    /// to a partner.
    unsafe fn recursive_doubling(
        &mut self,
        ranks: &[usize],
        at: usize,
        data: Span,
        how: Reduction,
        call: &Call,
    ) -> Result<()> {
        let n = ranks.len();
        let power = 1 << n.ilog2();
        let scratch = self.scratch(data.len);
        // SAFETY: see above the impl; the scratch is this communicator's own.
        unsafe {
            if at >= power {
                self.send(ranks[at - power], data, call)?;
                return self.receive(ranks[at - power], data, call);
            }
            let extra = (at + power < n).then(|| ranks[at + power]);
            if let Some(extra) = extra {
                self.receive(extra, scratch, call)?;
                how.combine(data, scratch);
            }
            let mut distance = 1;
            while distance < power {
                let partner = ranks[at ^ distance];
                self.shift(partner, data, partner, scratch, call)?;
                how.combine(data, scratch);
                distance *= 2;
            }
            match extra {
                Some(extra) => self.send(extra, data, call),
                None => Ok(()),
            }
        }
    }

    /// One rank of each node: the root of its node, the first of others. `root` is the first of the list.
    fn leaders(&self, root: usize) -> Vec<usize> {
        let lead = |ranks: &Vec<usize>| if ranks.contains(&root) { root } else { ranks[0] };
        let mut leaders: Vec<usize> = self.nodes.iter().map(lead).collect();
        let first = leaders.iter().position(|&r| r == root).unwrap_or(0);
        leaders.rotate_left(first);
        leaders
    }

    /// Ranks of the tree between nodes, and the index on this node of its member. Without shared memory every rank is a
    /// member.
    pub(super) fn tree(&self, root: usize) -> (Vec<usize>, usize) {
        if self.nodes.iter().any(|ranks| ranks.len() > 1) && self.shared_everywhere {
            let leaders = self.leaders(root);
            let local = &self.nodes[self.node];
            return (leaders.clone(), local.iter().position(|r| leaders.contains(r)).unwrap_or(0));
        }
        ((0..self.size).map(|i| (root + i) % self.size).collect(), 0)
    }

    pub(super) unsafe fn broadcast_across(&mut self, data: Span, root: usize, call: &Call) -> Result<()> {
        let (tree, local_root) = self.tree(root);
        // SAFETY: see above the impl.
        unsafe {
            if let Some(at) = tree.iter().position(|&r| r == self.rank) {
                // A binomial tree: receive from the rank without the highest bit, then send to those with a higher one.
                let mut bit = 1;
                while bit < tree.len() {
                    if at >= bit && at < 2 * bit {
                        self.receive(tree[at - bit], data, call)?;
                    } else if at < bit && at + bit < tree.len() {
                        self.send(tree[at + bit], data, call)?;
                    }
                    bit *= 2;
                }
            }
            match &mut self.shared {
                Some(shared) if tree.len() < self.size => shared.broadcast(data, local_root, call),
                _ => Ok(()),
            }
        }
    }

    pub(super) unsafe fn reduce_across(&mut self, data: Span, how: Reduction, root: usize, call: &Call) -> Result<()> {
        let (tree, local_root) = self.tree(root);
        let sum = how.partial();
        let scratch = self.scratch(data.len.next_multiple_of(64) * 2);
        let (own, arrived) = (scratch.part(0, data.len), scratch.part(data.len.next_multiple_of(64), data.len));
        // SAFETY: see above the impl; the scratch is this communicator's own.
        unsafe {
            let total = if self.rank == root { data } else { own };
            if self.rank != root {
                own.copy_from(data);
            }
            if let Some(shared) = &mut self.shared
                && tree.len() < self.size
            {
                shared.reduce(total, sum, local_root, call)?;
            }
            if let Some(at) = tree.iter().position(|&r| r == self.rank) {
                let mut bit = tree.len().next_power_of_two() / 2;
                while bit > 0 {
                    if at >= bit && at < 2 * bit {
                        self.send(tree[at - bit], total, call)?;
                    } else if at < bit && at + bit < tree.len() {
                        self.receive(tree[at + bit], arrived, call)?;
                        sum.combine(total, arrived);
                    }
                    bit /= 2;
                }
            }
            if self.rank == root {
                how.finish(data, self.size);
            }
        }
        Ok(())
    }

    pub(super) unsafe fn all_gather_across(&mut self, outputs: &[Span], call: &Call) -> Result<()> {
        let (n, at) = (self.size, self.rank);
        for step in 0..n - 1 {
            let (out, into) = (outputs[(at + n - step) % n], outputs[(at + 2 * n - step - 1) % n]);
            // SAFETY: see above the impl.
            unsafe { self.shift((at + 1) % n, out, (at + n - 1) % n, into, call)? };
        }
        Ok(())
    }

    /// Without the last step of the reduction.
    pub(super) unsafe fn reduce_scatter_across(
        &mut self,
        inputs: &[Span],
        output: Span,
        how: Reduction,
        call: &Call,
    ) -> Result<()> {
        let (n, at) = (self.size, self.rank);
        let scratch = self.scratch(output.len);
        for step in 1..n {
            let (to, from) = ((at + step) % n, (at + n - step) % n);
            // SAFETY: see above the impl; the scratch is this communicator's own.
            unsafe {
                self.shift(to, inputs[to], from, scratch, call)?;
                how.combine(output, scratch);
            }
        }
        Ok(())
    }

    pub(super) unsafe fn all_to_all_across(&mut self, inputs: &[Span], outputs: &[Span], call: &Call) -> Result<()> {
        let (n, at) = (self.size, self.rank);
        for step in 1..n {
            let (to, from) = ((at + step) % n, (at + n - step) % n);
            // SAFETY: see above the impl.
            unsafe { self.shift(to, inputs[to], from, outputs[from], call)? };
        }
        Ok(())
    }

    pub(super) unsafe fn gather_across(
        &mut self,
        input: Span,
        outputs: &[Span],
        root: usize,
        call: &Call,
    ) -> Result<()> {
        // SAFETY: see above the impl.
        unsafe {
            if self.rank != root {
                return self.send(root, input, call);
            }
            let all = outputs.iter().enumerate().filter(|(rank, _)| *rank != root);
            let mut all: Vec<Transfer> = all.map(|(r, o)| Transfer::receive(r, Channel::COLLECTIVE, *o)).collect();
            self.links.run(&mut all, &call.signature, &call.limit)
        }
    }

    pub(super) unsafe fn scatter_across(
        &mut self,
        inputs: &[Span],
        output: Span,
        root: usize,
        call: &Call,
    ) -> Result<()> {
        // SAFETY: see above the impl.
        unsafe {
            if self.rank != root {
                return self.receive(root, output, call);
            }
            let all = inputs.iter().enumerate().filter(|(rank, _)| *rank != root);
            let mut all: Vec<Transfer> = all.map(|(r, i)| Transfer::send(r, Channel::COLLECTIVE, *i)).collect();
            self.links.run(&mut all, &call.signature, &call.limit)
        }
    }

    /// Dissemination: each step doubles the number of ranks that every rank has heard from.
    pub(super) fn barrier_across(&mut self, call: &Call) -> Result<()> {
        let (n, at) = (self.size, self.rank);
        let mut distance = 1;
        while distance < n {
            // SAFETY: empty spans.
            unsafe { self.shift((at + distance) % n, Span::EMPTY, (at + n - distance) % n, Span::EMPTY, call)? };
            distance *= 2;
        }
        Ok(())
    }
}
