//! Tests of several processes on this machine.

mod collectives;
mod failures;
mod parallel;
mod support;
