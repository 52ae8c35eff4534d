//! Collectives of tensors as operations of a device's communicator, on contiguous memory.

use super::{Collective, P2p};
use crate::comm::ReduceOp;
use rushlight_core::backend::DeviceOp;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;

/// A [`DeviceOp`] that holds its tensors.
pub(super) enum Op {
    AllReduce(Tensor, ReduceOp),
    Broadcast(Tensor, usize),
    Reduce(Tensor, ReduceOp, usize),
    AllGather { input: Tensor, output: Tensor },
    ReduceScatter { input: Tensor, output: Tensor, op: ReduceOp },
    Send(Tensor, usize),
    Recv(Tensor, usize),
}

impl Op {
    pub(super) fn on_device(&self) -> DeviceOp<'_> {
        match self {
            Op::AllReduce(data, op) => DeviceOp::AllReduce { data: data.engine_view(), op: *op },
            Op::Broadcast(data, root) => DeviceOp::Broadcast { data: data.engine_view(), root: *root },
            Op::Reduce(data, op, root) => DeviceOp::Reduce { data: data.engine_view(), op: *op, root: *root },
            Op::AllGather { input, output } => {
                DeviceOp::AllGather { input: input.engine_view(), output: output.engine_view() }
            }
            Op::ReduceScatter { input, output, op } => {
                DeviceOp::ReduceScatter { input: input.engine_view(), output: output.engine_view(), op: *op }
            }
            Op::Send(data, peer) => DeviceOp::Send { data: data.engine_view(), peer: *peer },
            Op::Recv(data, peer) => DeviceOp::Recv { data: data.engine_view(), peer: *peer },
        }
    }
}

/// The device operations of a collective.
#[derive(Default)]
pub(super) struct Lowered {
    pub(super) ops: Vec<Op>,
    /// Tensors that the operations write to.
    pub(super) written: Vec<Tensor>,
    /// Copies to make when the operations are done: destination and source.
    pub(super) after: Vec<(Tensor, Tensor)>,
}

/// Whether a tensor is read, written or both.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Read,
    Write,
    Both,
}

impl Lowered {
    /// A collective of tensors on one device, whose arguments have been checked.
    pub(super) fn new(collective: &Collective, rank: usize, size: usize) -> Result<Self> {
        no_grad(|| {
            let mut lowered = Self::default();
            lowered.add(collective, rank, size)?;
            Ok(lowered)
        })
    }

    /// The tensor itself if it is contiguous; else a contiguous copy, which is copied back at the end.
    fn flat(&mut self, t: &Tensor, access: Access) -> Result<Tensor> {
        let t = t.detach();
        if t.is_contiguous() {
            if access != Access::Read {
                self.written.push(t.clone());
            }
            return Ok(t);
        }
        let copy = match access {
            Access::Write => Tensor::empty_with(t.shape(), (t.dtype(), t.device()))?,
            Access::Read | Access::Both => t.contiguous()?,
        };
        if access != Access::Read {
            self.after.push((t, copy.clone()));
        }
        Ok(copy)
    }

    /// One tensor that holds the list contiguously: their common memory, if they are consecutive; else a copy, which is
    /// copied back at the end.
    fn joined(&mut self, list: &[Tensor], access: Access) -> Result<Tensor> {
        let first = list[0].detach();
        let each = first.numel();
        let side_by_side = list.iter().enumerate().all(|(i, t)| {
            t.is_contiguous() && t.shares_storage(&first) && t.layout().offset() == first.layout().offset() + i * each
        });
        if side_by_side {
            let whole = first.as_strided(&[each * list.len()], &[1], first.layout().offset())?.detach();
            if access != Access::Read {
                self.written.push(whole.clone());
            }
            return Ok(whole);
        }
        let whole = Tensor::empty_with([each * list.len()], (first.dtype(), first.device()))?;
        for (i, t) in list.iter().enumerate() {
            let part = whole.narrow(0, (i * each) as isize, each)?.reshape(t.shape())?;
            match access {
                Access::Read => drop(part.copy_(&t.detach())?),
                _ => self.after.push((t.detach(), part)),
            }
        }
        Ok(whole)
    }

    fn send(&mut self, t: &Tensor, peer: usize) -> Result<()> {
        if t.numel() > 0 {
            let data = self.flat(t, Access::Read)?;
            self.ops.push(Op::Send(data, peer));
        }
        Ok(())
    }

    fn recv(&mut self, t: &Tensor, peer: usize) -> Result<()> {
        if t.numel() > 0 {
            let data = self.flat(t, Access::Write)?;
            self.ops.push(Op::Recv(data, peer));
        }
        Ok(())
    }

    fn add(&mut self, collective: &Collective, rank: usize, size: usize) -> Result<()> {
        let even = |list: &[Tensor]| list.windows(2).all(|w| w[0].numel() == w[1].numel());
        match collective {
            Collective::AllReduce { tensors, op } => {
                for t in tensors.iter().filter(|t| t.numel() > 0) {
                    let data = self.flat(t, Access::Both)?;
                    self.ops.push(Op::AllReduce(data, *op));
                }
            }
            Collective::Broadcast { tensors, root } => {
                let access = if rank == *root { Access::Read } else { Access::Write };
                for t in tensors.iter().filter(|t| t.numel() > 0) {
                    let data = self.flat(t, access)?;
                    self.ops.push(Op::Broadcast(data, *root));
                }
            }
            Collective::Reduce { tensor, op, root } if tensor.numel() > 0 => {
                let data = self.flat(tensor, if rank == *root { Access::Both } else { Access::Read })?;
                self.ops.push(Op::Reduce(data, *op, *root));
            }
            Collective::AllGather { outputs, input } if even(outputs) => {
                if input.numel() > 0 {
                    let (input, output) = (self.flat(input, Access::Read)?, self.joined(outputs, Access::Write)?);
                    self.ops.push(Op::AllGather { input, output });
                }
            }
            Collective::AllGather { outputs, input } => {
                outputs[rank].detach().copy_(&input.detach().reshape(outputs[rank].shape())?)?;
                for (root, t) in outputs.iter().enumerate().filter(|(_, t)| t.numel() > 0) {
                    let data = self.flat(t, if root == rank { Access::Read } else { Access::Write })?;
                    self.ops.push(Op::Broadcast(data, root));
                }
            }
            Collective::ReduceScatter { output, inputs, op } if even(inputs) => {
                if output.numel() > 0 {
                    let (input, output) = (self.joined(inputs, Access::Read)?, self.flat(output, Access::Write)?);
                    self.ops.push(Op::ReduceScatter { input, output, op: *op });
                }
            }
            Collective::ReduceScatter { output, inputs, op } => {
                output.detach().copy_(&inputs[rank].detach().reshape(output.shape())?)?;
                for (root, t) in inputs.iter().enumerate().filter(|(_, t)| t.numel() > 0) {
                    let data =
                        if root == rank { self.flat(output, Access::Both)? } else { self.flat(t, Access::Read)? };
                    self.ops.push(Op::Reduce(data, *op, root));
                }
            }
            Collective::AllToAll { outputs, inputs } => {
                outputs[rank].detach().copy_(&inputs[rank].detach().reshape(outputs[rank].shape())?)?;
                for peer in (0..size).filter(|&peer| peer != rank) {
                    self.send(&inputs[peer], peer)?;
                    self.recv(&outputs[peer], peer)?;
                }
            }
            Collective::Gather { input, outputs, root } => {
                for (peer, output) in outputs.iter().enumerate() {
                    if peer == rank {
                        output.detach().copy_(&input.detach().reshape(output.shape())?)?;
                    } else {
                        self.recv(output, peer)?;
                    }
                }
                if rank != *root {
                    self.send(input, *root)?;
                }
            }
            Collective::Scatter { output, inputs, root } => {
                for (peer, input) in inputs.iter().enumerate() {
                    if peer == rank {
                        output.detach().copy_(&input.detach().reshape(output.shape())?)?;
                    } else {
                        self.send(input, peer)?;
                    }
                }
                if rank != *root {
                    self.recv(output, *root)?;
                }
            }
            Collective::P2p(all) => {
                for P2p { tensor, peer, sends, .. } in all {
                    if *sends {
                        self.send(tensor, *peer)?;
                    } else {
                        self.recv(tensor, *peer)?;
                    }
                }
            }
            Collective::RecvAny { .. } => {
                return Err(Error::unsupported(
                    "a tensor on this device cannot be received from any rank: name the sender, or receive on the CPU",
                ));
            }
            Collective::Several(all) => all.iter().try_for_each(|one| self.add(one, rank, size))?,
            Collective::Reduce { .. } | Collective::Barrier => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(n: usize) -> Vec<Tensor> {
        (0..n).map(|i| Tensor::full([2], i as f64).unwrap()).collect()
    }

    #[test]
    fn parts_of_one_tensor_are_used_where_they_lie() {
        let whole = Tensor::zeros([6]).unwrap();
        let outputs: Vec<Tensor> = (0..3).map(|i| whole.narrow(0, 2 * i, 2).unwrap()).collect();
        let lowered =
            Lowered::new(&Collective::AllGather { outputs, input: Tensor::ones([2]).unwrap() }, 1, 3).unwrap();
        assert!(matches!(&lowered.ops[..], [Op::AllGather { output, .. }] if output.shares_storage(&whole)));
        assert!(lowered.after.is_empty() && lowered.written.len() == 1);
        // Separate tensors are copied from a joined one.
        let gather = Collective::AllGather { outputs: list(3), input: Tensor::ones([2]).unwrap() };
        assert_eq!(Lowered::new(&gather, 1, 3).unwrap().after.len(), 3);
    }

    #[test]
    fn uneven_lists_go_one_by_one() {
        let outputs = vec![Tensor::zeros([1]).unwrap(), Tensor::zeros([3]).unwrap(), Tensor::zeros([0]).unwrap()];
        let gather = Collective::AllGather { outputs, input: Tensor::ones([3]).unwrap() };
        let lowered = Lowered::new(&gather, 1, 3).unwrap();
        assert!(matches!(&lowered.ops[..], [Op::Broadcast(_, 0), Op::Broadcast(_, 1)]));
        let scatter = Collective::Scatter { output: Tensor::zeros([2]).unwrap(), inputs: list(3), root: 0 };
        let lowered = Lowered::new(&scatter, 0, 3).unwrap();
        assert!(matches!(&lowered.ops[..], [Op::Send(_, 1), Op::Send(_, 2)]));
    }

    #[test]
    fn strided_tensors_are_copied_and_written_back() {
        let column = Tensor::zeros([3, 2]).unwrap().narrow(1, 0, 1).unwrap();
        let reduce = Collective::AllReduce { tensors: vec![column], op: ReduceOp::Sum };
        let lowered = Lowered::new(&reduce, 0, 2).unwrap();
        assert!(lowered.written.is_empty() && lowered.after.len() == 1);
        assert!(matches!(&lowered.ops[..], [Op::AllReduce(data, _)] if data.is_contiguous()));
    }
}
