//! A collective as a value: which operation, on which tensors.

use crate::comm::ReduceOp;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// A send or a receive between two ranks.
#[derive(Clone)]
pub struct P2p {
    /// The tensor to send, or the destination of a receive.
    pub tensor: Tensor,
    /// The other rank.
    pub peer: usize,
    /// Distinguishes messages between the same ranks.
    pub tag: u32,
    /// Whether this rank sends.
    pub sends: bool,
}

/// A collective operation and its tensors. All ranks of a group must call the same ones in the same order.
#[derive(Clone)]
#[non_exhaustive]
pub enum Collective {
    /// Combines each tensor with the other ranks', in place.
    AllReduce {
        /// The tensors, each combined with the tensor at its index on the other ranks.
        tensors: Vec<Tensor>,
        /// How.
        op: ReduceOp,
    },
    /// Copies the root's tensors to all ranks.
    Broadcast {
        /// Read on the root, written elsewhere.
        tensors: Vec<Tensor>,
        /// The rank whose values are copied.
        root: usize,
    },
    /// Combines the ranks' tensors on the root.
    Reduce {
        /// Written on the root only.
        tensor: Tensor,
        /// How.
        op: ReduceOp,
        /// The rank that gets the result.
        root: usize,
    },
    /// Collects every rank's tensor on every rank. Shapes may differ.
    AllGather {
        /// One for each rank.
        outputs: Vec<Tensor>,
        /// This rank's.
        input: Tensor,
    },
    /// Combines the ranks' lists and gives each rank the tensor at its own index.
    ReduceScatter {
        /// This rank's result.
        output: Tensor,
        /// One for each rank.
        inputs: Vec<Tensor>,
        /// How.
        op: ReduceOp,
    },
    /// Sends one tensor to each rank and receives one from each. Shapes may differ.
    AllToAll {
        /// From each rank.
        outputs: Vec<Tensor>,
        /// To each rank.
        inputs: Vec<Tensor>,
    },
    /// Collects the ranks' tensors, of one shape, on the root.
    Gather {
        /// This rank's.
        input: Tensor,
        /// One for each rank on the root, none elsewhere.
        outputs: Vec<Tensor>,
        /// Who collects.
        root: usize,
    },
    /// Gives each rank one of the root's tensors, of one shape.
    Scatter {
        /// This rank's.
        output: Tensor,
        /// One for each rank on the root, none elsewhere.
        inputs: Vec<Tensor>,
        /// Who gives.
        root: usize,
    },
    /// Sends and receives, concurrently.
    P2p(Vec<P2p>),
    /// Receives the next message from any rank.
    RecvAny {
        /// The destination.
        tensor: Tensor,
        /// The messages' tag.
        tag: u32,
        /// The rank that sent it, after the call.
        from: Arc<AtomicUsize>,
    },
    /// Several collectives of all ranks as one call, in this order.
    Several(Vec<Collective>),
    /// Waits for all ranks.
    Barrier,
}

fn one(t: &Tensor) -> String {
    format!("{} {:?}", t.dtype(), t.shape())
}

/// The first few, and how many more.
fn several(tensors: &[Tensor]) -> String {
    let first: Vec<String> = tensors.iter().map(one).collect();
    if first.len() == 1 {
        first.into_iter().next().unwrap_or_default()
    } else {
        format!("{} tensors: {}", first.len(), first.join(", "))
    }
}

impl Collective {
    /// All tensors of this rank.
    pub(crate) fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Collective::AllReduce { tensors, .. } | Collective::Broadcast { tensors, .. } => tensors.iter().collect(),
            Collective::Reduce { tensor, .. } | Collective::RecvAny { tensor, .. } => vec![tensor],
            Collective::AllGather { outputs: list, input: one }
            | Collective::ReduceScatter { output: one, inputs: list, .. }
            | Collective::Gather { input: one, outputs: list, .. }
            | Collective::Scatter { output: one, inputs: list, .. } => list.iter().chain([one]).collect(),
            Collective::AllToAll { outputs, inputs } => outputs.iter().chain(inputs).collect(),
            Collective::P2p(all) => all.iter().map(|p| &p.tensor).collect(),
            Collective::Several(all) => all.iter().flat_map(Collective::tensors).collect(),
            Collective::Barrier => Vec::new(),
        }
    }

    /// The tensors whose values are sent.
    pub(crate) fn inputs(&self) -> Vec<&Tensor> {
        match self {
            Collective::AllGather { input, .. } | Collective::Gather { input, .. } => vec![input],
            Collective::ReduceScatter { inputs, .. }
            | Collective::AllToAll { inputs, .. }
            | Collective::Scatter { inputs, .. } => inputs.iter().collect(),
            Collective::Several(all) => all.iter().flat_map(Collective::inputs).collect(),
            _ => self.tensors(),
        }
    }

    /// The arguments that must be equal on all ranks, in words: `all_reduce(sum) float32 [2, 3]`.
    pub fn describe(&self) -> String {
        match self {
            Collective::AllReduce { tensors, op } => format!("all_reduce({op}) {}", several(tensors)),
            Collective::Broadcast { tensors, root } => format!("broadcast(from {root}) {}", several(tensors)),
            Collective::Reduce { tensor, op, root } => format!("reduce({op}, to {root}) {}", one(tensor)),
            Collective::AllGather { outputs, .. } => format!("all_gather {}", several(outputs)),
            Collective::ReduceScatter { inputs, op, .. } => format!("reduce_scatter({op}) {}", several(inputs)),
            Collective::AllToAll { inputs, .. } => {
                format!("all_to_all {}", inputs.first().map_or(String::new(), |t| t.dtype().to_string()))
            }
            Collective::Gather { input, root, .. } => format!("gather(to {root}) {}", one(input)),
            Collective::Scatter { output, root, .. } => format!("scatter(from {root}) {}", one(output)),
            Collective::P2p(all) => {
                let name = |p: &P2p| match p.sends {
                    true => format!("send(to {}, tag {}) {}", p.peer, p.tag, one(&p.tensor)),
                    false => format!("recv(from {}, tag {}) {}", p.peer, p.tag, one(&p.tensor)),
                };
                all.iter().map(name).collect::<Vec<_>>().join(", ")
            }
            Collective::RecvAny { tensor, tag, .. } => format!("recvAnySource(tag {tag}) {}", one(tensor)), // PyTorch's name
            Collective::Several(all) => all.iter().map(Collective::describe).collect::<Vec<_>>().join(", "),
            Collective::Barrier => "barrier".into(),
        }
    }

    /// Checks that need no communication.
    pub fn check(&self, rank: usize, size: usize) -> Result<()> {
        let call = || self.describe();
        let in_group = |what: &str, r: usize| match r < size {
            true => Ok(()),
            false => Err(Error::value(format!("{}: {what} {r} is not in the group of {size}", call()))),
        };
        let one_each = |what: &str, n: usize| match n == size {
            true => Ok(()),
            false => {
                Err(Error::value(format!("{}: {n} {what} for a group of {size}; one for each rank is needed", call())))
            }
        };
        let one_dtype = |tensors: &[&Tensor]| match tensors.windows(2).find(|w| w[0].dtype() != w[1].dtype()) {
            None => Ok(()),
            Some(w) => Err(Error::dtype(format!("{}: dtypes {} and {} differ", call(), w[0].dtype(), w[1].dtype()))),
        };
        let same = |what: &str, a: &Tensor, b: &Tensor| match a.numel() == b.numel() && a.dtype() == b.dtype() {
            true => Ok(()),
            false => Err(Error::shape(format!("{}: {what}: {} and {}", call(), one(a), one(b)))),
        };
        let reducible = |op: ReduceOp, dtype: DType| op.check(dtype).map_err(|e| e.within(&call()));
        match self {
            Collective::AllReduce { tensors, op } => tensors.iter().try_for_each(|t| reducible(*op, t.dtype())),
            Collective::Broadcast { root, .. } => in_group("root", *root),
            Collective::Reduce { tensor, op, root } => {
                in_group("root", *root)?;
                reducible(*op, tensor.dtype())
            }
            Collective::AllGather { outputs, input } => {
                one_each("outputs", outputs.len())?;
                same("this rank's output does not fit its input", &outputs[rank], input)?;
                one_dtype(&outputs.iter().collect::<Vec<_>>())
            }
            Collective::ReduceScatter { output, inputs, op } => {
                one_each("inputs", inputs.len())?;
                same("this rank's output does not fit its input", output, &inputs[rank])?;
                one_dtype(&inputs.iter().collect::<Vec<_>>())?;
                reducible(*op, output.dtype())
            }
            Collective::AllToAll { outputs, inputs } => {
                one_each("outputs", outputs.len())?;
                one_each("inputs", inputs.len())?;
                same("this rank's output does not fit its input", &outputs[rank], &inputs[rank])?;
                one_dtype(&outputs.iter().chain(inputs).collect::<Vec<_>>())
            }
            Collective::Gather { input, outputs: list, root }
            | Collective::Scatter { output: input, inputs: list, root } => {
                in_group("root", *root)?;
                if *root != rank {
                    return match list.is_empty() {
                        true => Ok(()),
                        false => Err(Error::value(format!("{}: only the root passes a list", call()))),
                    };
                }
                one_each("tensors", list.len())?;
                list.iter().try_for_each(|t| same("a tensor of the list differs from the root's", t, input))
            }
            Collective::P2p(all) => all.iter().try_for_each(|p| {
                in_group("rank", p.peer)?;
                match p.peer == rank {
                    true => Err(Error::value(format!(
                        "{}: rank {rank} cannot send to itself or receive from itself",
                        call()
                    ))),
                    false => Ok(()),
                }
            }),
            Collective::RecvAny { .. } if size == 1 => {
                Err(Error::value(format!("{}: there is no other rank in the group", call())))
            }
            Collective::Several(all) => all.iter().try_for_each(|one| match one.is_message() {
                true => Err(Error::value(format!("{}: messages between ranks go by P2p", call()))),
                false => one.check(rank, size),
            }),
            Collective::RecvAny { .. } | Collective::Barrier => Ok(()),
        }
    }

    /// Whether it is between some ranks only: the others need not call anything.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Collective::P2p(_) | Collective::RecvAny { .. })
    }
}
