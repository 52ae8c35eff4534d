//! What every example takes: where to run, with how many threads, from which seed.

use clap::Args;
use rushlight::prelude::*;

#[derive(Args)]
pub struct Machine {
    /// Where to train: cpu
    #[arg(long, default_value = "cpu")]
    pub device: Device,
    /// Threads to compute with; all cores unless said otherwise
    #[arg(long)]
    pub threads: Option<usize>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl Machine {
    /// Sets threads and seed; says at once if the device is not there.
    pub fn prepare(&self) -> Result<Device> {
        if let Some(threads) = self.threads {
            rushlight::set_num_threads(threads);
        }
        manual_seed(self.seed);
        Tensor::zeros_with([1], self.device)?;
        Ok(self.device)
    }
}
