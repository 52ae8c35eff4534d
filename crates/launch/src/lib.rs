//! The launcher: `rushlight run` starts the ranks of a job and keeps them together; `rushlight job` writes batch
//! scripts.
//!
//! | module | what it does |
//! |---|---|
//! | `options` | the command line, which is torchrun's |
//! | `plan` | alone, one node of several, in a scheduler's allocation |
//! | `guard` | the two processes of a launcher; no rank outlives them |
//! | `agent` | a node: its ranks, their signals, their exits |
//! | `link` | an agent's connection to the coordinator, re-established after a loss |
//! | `coordinator` | the job: nodes that come and go, rounds, restarts |
//! | `job` | batch scripts for schedulers |
//! | `worker`, `output`, `failures`, `affinity`, `signals`, `console` | ranks as processes, their output, errors and processors |
//! | `python` | Python programs and their `torch` |
//! | `completion` | completions of the command line for shells |
//!
//! The crate is empty on systems other than Linux.

#![cfg(target_os = "linux")]

mod affinity;
mod agent;
mod completion;
mod console;
mod coordinator;
mod failures;
mod guard;
mod job;
mod link;
mod options;
mod output;
mod plan;
mod python;
mod run;
mod signals;
mod worker;

pub use job::{REQUEUE_CODE, job};
pub use run::{command, run, run_with_report};
