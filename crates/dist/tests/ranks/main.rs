//! Tests of several processes on this machine.

mod collectives;
mod failures;
mod launched;
mod parallel;
mod support;
