//! How buckets of gradients are sent: by collectives of the group, compressed or not, or by a hook of the front end's.

use super::buckets::Bucket;
use crate::group::Work;
use rushlight_core::Result;
use rushlight_tensor::Tensor;

/// Compression of gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommHook {
    /// Uncompressed.
    AllReduce,
    /// As `float16`, half the bytes of `float32`.
    Fp16,
    /// As `bfloat16`, half the bytes of `float32`.
    Bf16,
    /// Matrices as products of two low-rank factors, by PowerSGD; the approximation error is added to the next
    /// gradients. A captured step does not change mode: record it after `start_iteration`.
    PowerSgd {
        /// Rank of the factors: 1 to 4.
        rank: usize,
        /// Number of initial iterations with uncompressed gradients; the first ones matter most.
        start_iteration: usize,
    },
}

/// A full bucket, as hooks see it.
pub struct GradBucket<'a> {
    /// Its number.
    pub index: usize,
    /// Whether it is the last one of the pass.
    pub is_last: bool,
    /// All gradients as one flat tensor.
    pub buffer: &'a Tensor,
    /// The parameters in it, by number, and their gradients: views of the buffer.
    pub gradients: &'a [(usize, Tensor)],
}

/// Sends buckets instead of an all-reduce.
pub trait BucketHook: Send + Sync {
    /// Starts sending a bucket.
    fn send(&self, bucket: &GradBucket) -> Result<Box<dyn SentBucket>>;
}

/// A bucket that a [`BucketHook`] is sending.
pub trait SentBucket: Send {
    /// Waits for it and returns its new contents; `None` if they are in the bucket already.
    fn wait(&self) -> Result<Option<Tensor>>;
}

/// A bucket in flight.
pub(super) enum Sent {
    /// The results arrive in the bucket.
    InPlace(Work),
    /// The sums arrive in the bucket, and are divided.
    Divided(Work, usize),
    /// The results arrive in a tensor of lower precision.
    Lowered(Work, Tensor),
    Hooked(Box<dyn SentBucket>),
}

impl Sent {
    /// Waits without looking at the result.
    pub(super) fn drain(&self) {
        let _ = match self {
            Self::InPlace(work) | Self::Divided(work, _) | Self::Lowered(work, _) => work.wait(),
            Self::Hooked(sent) => sent.wait().map(drop),
        };
    }

    /// Waits, and completes the bucket.
    pub(super) fn receive(&self, bucket: &Bucket) -> Result<()> {
        match self {
            Self::InPlace(work) => work.wait(),
            Self::Divided(work, ranks) => {
                work.wait()?;
                bucket.flat.div_(*ranks as f64).map(drop)
            }
            Self::Lowered(work, lowered) => {
                work.wait()?;
                bucket.flat.copy_(lowered).map(drop)
            }
            Self::Hooked(sent) => match sent.wait()? {
                Some(new) if !new.shares_storage(&bucket.flat) => bucket.flat.copy_(&new.reshape([-1])?).map(drop),
                _ => Ok(()),
            },
        }
    }
}
