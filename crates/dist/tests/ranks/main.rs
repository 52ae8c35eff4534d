//! Tests of several processes on this machine.

#![cfg(target_os = "linux")]

mod collectives;
mod devices;
mod failures;
mod hosts;
mod launched;
mod launchers;
mod long;
mod mpi;
mod parallel;
mod pipeline;
mod sharded;
mod slurm;
mod support;
