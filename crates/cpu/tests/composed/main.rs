//! The default bodies of the engine trait against the CPU engine's own kernels.

mod attention;
mod conv;
mod losses;
mod norms;
mod order;
mod rearrange;
mod recurrent;
mod support;
mod updates;
