//! Pipeline schedules and plans: no process but this one.

#![cfg(target_os = "linux")]

mod pipeline;
mod plan;
