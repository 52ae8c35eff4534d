//! Deep-learning training with PyTorch's names and meanings.
//!
//! Programs start with `use rushlight::prelude::*;`. The book in `docs/book` of the repository has a guide; this is the
//! reference.
//!
//! Features, all on by default but `cpu`, which names what is always there: `cuda`, `hip`, `xpu` (engines of GPUs),
//! `dist` (several ranks), `graph` (exported models), `command` (the command `rushlight` with its page).
//!
//! ```
//! use rushlight::prelude::*;
//!
//! let x = Tensor::randn([64, 3])?;
//! let model = Linear::new(3, 1)?;
//! let mut optimizer = Sgd::new(model.parameters(), 0.1)?;
//! let loss = model.forward(&x)?.square()?.mean(..)?;
//! loss.backward()?;
//! optimizer.step()?;
//! # Ok::<(), Error>(())
//! ```

pub use rushlight_core::backend::{allow_tf32, allow_tf32_conv, set_allow_tf32, set_allow_tf32_conv};
pub use rushlight_core::rng::{default_generator, manual_seed};
pub use rushlight_core::{DType, Device, Element, Error, ErrorKind, Generator, Result, Scalar};
pub use rushlight_cpu::pool::{num_threads, set_num_threads};
pub use rushlight_tensor::*;

#[doc(inline)]
pub use rushlight_data as data;
#[cfg(feature = "dist")]
#[doc(inline)]
pub use rushlight_dist as dist;
#[doc(inline)]
pub use rushlight_engines as engines;
#[cfg(feature = "graph")]
#[doc(inline)]
pub use rushlight_graph as graph;
#[cfg(feature = "graph")]
#[doc(inline)]
pub use rushlight_graph::{export, jit};
#[doc(inline)]
pub use rushlight_io as io;
#[doc(inline)]
pub use rushlight_nn as nn;
#[doc(inline)]
pub use rushlight_optim as optim;
#[doc(inline)]
pub use rushlight_train as train;

/// Everything a program usually needs: `use rushlight::prelude::*;`.
///
/// ```
/// use rushlight::prelude::*;
///
/// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
/// let layer = Linear::new(2, 1)?;
/// let copy = layer.deepcopy()?;
/// let difference = (layer.forward(&x)? - copy.forward(&x)?).abs()?.sum(..)?;
/// assert_eq!(difference.item::<f32>()?, 0.0);
/// # Ok::<(), Error>(())
/// ```
pub mod prelude {
    pub use rushlight_core::rng::manual_seed;
    pub use rushlight_core::{DType, Device, Error, Generator, Result, Scalar};
    pub use rushlight_data::{DataLoader, Dataset, TensorDataset};
    pub use rushlight_nn::*;
    pub use rushlight_optim::lr_scheduler::LrScheduler;
    pub use rushlight_optim::{lr_scheduler, *};
    pub use rushlight_tensor::autograd::{Backward, enable_grad, grad, inference_mode, no_grad};
    pub use rushlight_tensor::state::Stateful;
    pub use rushlight_tensor::*;
    pub use rushlight_train::{
        Callback, Checkpoints, Interval, LogOptions, Optimizers, Position, Run, StepContext, TrainModule, Trainer,
    };
}

/// The programs in the README and the book, run as tests.
#[cfg(doctest)]
mod book {
    macro_rules! pages {
        ($($name:ident $file:literal)*) => { $(#[doc = include_str!(concat!("../../../", $file))] mod $name {})* };
    }
    pages! {
        readme "README.md"
        getting_started_rust "docs/book/src/getting-started-rust.md"
        coming_from_pytorch "docs/book/src/coming-from-pytorch.md"
        how_do_i "docs/book/src/how-do-i.md"
        own_kernel "docs/book/src/own-kernel.md"
        own_optimizer "docs/book/src/own-optimizer.md"
        captured_steps "docs/book/src/captured-steps.md"
        profiling "docs/book/src/profiling.md"
        sharded "docs/book/src/sharded.md"
        extending_layer "docs/book/src/extending/layer.md"
    }
    #[cfg(feature = "graph")]
    pages! { exported_models "docs/book/src/exported-models.md" }
}
