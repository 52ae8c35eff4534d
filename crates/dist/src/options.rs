//! Helpers for distributed programs: scale the learning rate, print and save once.

use crate::comm::ReduceOp;
use crate::group::Objects;
use crate::world::World;
use rushlight_core::{Device, Error, Result};
use rushlight_tensor::Tensor;
use std::fmt::Display;
use std::str::FromStr;

/// How the learning rate follows the number of ranks, which multiplies the batch.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::LrScaling;
/// assert_eq!(LrScaling::Linear.scale(0.001, 4), 0.004);
/// assert_eq!(LrScaling::Sqrt.scale(0.001, 4), 0.002);
/// assert_eq!("none".parse::<LrScaling>()?.scale(0.001, 4), 0.001);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LrScaling {
    /// Unchanged.
    #[default]
    None,
    /// Times the number of ranks: usual for SGD.
    Linear,
    /// Times the square root of the number of ranks: usual for Adam.
    Sqrt,
}

impl LrScaling {
    /// A learning rate for one rank, scaled to `ranks`.
    pub fn scale(self, lr: f64, ranks: usize) -> f64 {
        match self {
            LrScaling::None => lr,
            LrScaling::Linear => lr * ranks as f64,
            LrScaling::Sqrt => lr * (ranks as f64).sqrt(),
        }
    }
}

impl FromStr for LrScaling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(LrScaling::None),
            "linear" => Ok(LrScaling::Linear),
            "sqrt" => Ok(LrScaling::Sqrt),
            _ => Err(Error::value(format!("LrScaling: {text:?} should be none, linear or sqrt"))),
        }
    }
}

impl World {
    /// Whether this is rank 0, which prints and saves.
    pub fn is_main(&self) -> bool {
        self.rank() == 0
    }

    /// Prints a line on rank 0.
    pub fn print(&self, line: impl Display) {
        if self.is_main() {
            println!("{line}");
        }
    }

    /// Runs a function on rank 0, such as one that saves a checkpoint, while the others wait. Its error is returned on
    /// every rank: none continues as if the file existed.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_dist as dist; }
    /// let world = rushlight::dist::init()?;
    /// assert_eq!(world.on_main(|| Ok(7))?, Some(7));
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn on_main<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        let result = self.is_main().then(f).transpose();
        if self.size() == 1 {
            return result;
        }
        let told = match &result {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        let told = self.broadcast_object(self.is_main().then_some(told.as_bytes()), 0)?;
        match result {
            Ok(value) if told.is_empty() => Ok(value),
            Ok(_) => Err(Error::io(format!("rank 0: {}", String::from_utf8_lossy(&told)))),
            Err(e) => Err(e),
        }
    }

    /// The learning rate for this world, from the one for a single rank.
    pub fn scale_lr(&self, lr: f64, scaling: LrScaling) -> f64 {
        scaling.scale(lr, self.size())
    }

    /// The mean of a number over all ranks, such as a loss to print.
    pub fn mean(&self, value: f64) -> Result<f64> {
        let x = Tensor::from_slice(&[value], [1])?.to(Device::Cpu)?;
        self.all_reduce(&x, ReduceOp::Mean)?;
        x.item()
    }
}
