//! `rushlight run` as users start it: real processes, killed in every way.

mod nodes;
mod ranks;
mod support;
