//! Tests of several processes on this machine.

#![cfg(target_os = "linux")]

mod collectives;
mod devices;
mod failures;
mod launched;
mod parallel;
mod support;
