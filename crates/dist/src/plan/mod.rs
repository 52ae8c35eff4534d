//! `rushlight plan`: what a training step of a transformer would take on a machine, for each way to split it.
//!
//! A [`Model`] and a [`Machine`] are constants; a [`Strategy`] is a mesh of ranks and options. [`estimate`] gives the
//! memory of a rank, the bytes it communicates, the pipeline's bubble and the time of a step; [`plans`] tries every
//! strategy and sorts those that fit by time. A [`Configuration`] is the file of the one that is chosen.
//!
//! Constants of machines are published ones: peaks and links from the vendors and the machines' manuals, the share of
//! the peak that large products reach from published training runs; [`Machine::from_json`] reads others, such as
//! measured ones. Estimates are to choose between strategies; tests
//! compare them with published throughputs.

mod configuration;
mod estimate;
mod files;
mod machine;
mod memory;
mod model;

pub use configuration::{Configuration, VARIABLE};
pub use estimate::{Estimate, Job, Recompute, Strategy, estimate, plans, reach};
pub use machine::{MACHINES, Machine};
pub use memory::Precision;
pub use model::{MODELS, Model};
