//! `rushlight run` as users start it: real processes, killed in every way.

#![cfg(target_os = "linux")]

mod doctor;
mod jobs;
mod models;
mod nodes;
mod plan;
mod ranks;
mod support;
mod training;
