//! Tests of several processes on this machine.

#![cfg(target_os = "linux")]

mod collectives;
mod failures;
mod hosts;
mod launched;
mod launchers;
mod mpi;
mod parallel;
mod slurm;
mod support;
