//! Runs on disk: found below a directory, read as they grow, kept in memory for the page.
//!
//! | module | what it does |
//! |---|---|
//! | `scan` | finds the directories of runs and their files |
//! | `beneath` | opens files below the directory only |
//! | `tail` | reads additions to a file; detects truncation and replacement |
//! | `tables` | rows of JSON lines and of CSV files |
//! | `series` | points of a curve, thinned so that memory is bounded |
//! | `run` | everything known of one run |
//! | `status` | what has become of a run |
//! | `store` | all runs, and a thread that keeps them current |

mod beneath;
mod checkpoints;
mod run;
mod scan;
mod series;
mod status;
mod store;
mod tables;
mod tail;

#[cfg(test)]
pub use run::Source;
pub use run::{Encoded, Run};
pub use series::Series;
pub use store::Store;
#[cfg(test)]
pub use tables::Row;
