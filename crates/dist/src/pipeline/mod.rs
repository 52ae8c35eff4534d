//! Pipeline parallelism: a model's layers split into stages on different ranks, a batch split into microbatches.
//!
//! A [`Schedule`] is a value: the list of actions of every rank. It is generated, verified and simulated before
//! anything runs, so that a schedule that cannot finish is an error and its bubbles are known. [`Pipeline`] runs one
//! over a process group; the Python front runs the same lists.
//!
//! | module | what it has |
//! |---|---|
//! | `schedule` | actions, placements, GPipe, 1F1B, interleaved, looped breadth-first |
//! | `dual` | DualPipeV |
//! | `zero_bubble` | schedules that compute the gradients of weights in the bubbles |
//! | `simulate` | verification, simulated times, peak activations |
//! | `chart` | a schedule as text or SVG |
//! | `balance` | layers split into stages by their costs |
//! | `backward` | a backward pass in two parts: gradients of inputs, then of weights |
//! | `runner` | a step over sends and receives |

mod backward;
mod balance;
mod chart;
mod dual;
mod runner;
mod schedule;
mod simulate;
mod zero_bubble;

pub use backward::SplitBackward;
pub use balance::balance;
pub use runner::{Pipeline, PipelineStage};
pub use schedule::{Action, Message, Phase, Schedule};
pub use simulate::{Costs, Simulation};
