//! The modules of the vendors' libraries, without the feature `devices`: there are no GPUs.

use crate::Gpu;
use rushlight_core::Result;

pub mod nvml {
    use super::*;

    pub fn gpus() -> Result<Option<Vec<Gpu>>> {
        Ok(None)
    }

    pub fn has_gpus() -> bool {
        false
    }

    pub fn gpu(_ordinal: usize) -> Result<Option<Gpu>> {
        Ok(None)
    }
}

pub mod rocm {
    pub use super::nvml::{gpu, gpus};
}

pub mod sysman {
    use super::*;

    #[derive(Clone, Debug, Default)]
    pub struct Counters;

    pub fn gpus(_counters: &mut Counters) -> Result<Option<Vec<Gpu>>> {
        Ok(None)
    }
}
