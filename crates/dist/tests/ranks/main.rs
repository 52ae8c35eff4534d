//! Tests of several processes on this machine.

#![cfg(target_os = "linux")]

mod collectives;
mod failures;
mod launched;
mod parallel;
mod support;
