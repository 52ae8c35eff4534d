//! The model interface of a Trainer: `TrainModule`.

use crate::batch::Batch;
use crate::optimizers::Optimizers;
use crate::run::Run;
use crate::step::StepContext;
use rushlight_core::{Error, Result};
use rushlight_nn::Module;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Value;

/// A model with its training step: Lightning's `LightningModule`.
///
/// `training_step` and `configure_optimizers` are all a model needs. The Trainer moves batches to the device, sets
/// precision and training mode, clears gradients, calls `backward`, clips and steps.
///
/// ```
/// # mod rushlight {
/// #     pub use rushlight_core::{DType, Result};
/// #     pub use rushlight_tensor::*;
/// #     pub use rushlight_nn as nn;
/// #     pub use rushlight_optim as optim;
/// #     pub use rushlight_data as data;
/// #     pub use rushlight_train as train;
/// # }
/// use rushlight::{DType, Result};
/// use rushlight::data::{DataLoader, TensorDataset};
/// use rushlight::nn::{Forward, Linear, Module};
/// use rushlight::optim::Sgd;
/// use rushlight::{Reduction, Tensor};
/// use rushlight::train::{Optimizers, Run, StepContext, TrainModule, Trainer};
///
/// #[derive(Module)]
/// struct Line {
///     layer: Linear,
/// }
///
/// impl TrainModule for Line {
///     type Batch = (Tensor, Tensor);
///
///     fn training_step(&self, (x, y): &Self::Batch, _: &mut StepContext) -> Result<Tensor> {
///         self.layer.forward(x)?.mse_loss(y, Reduction::Mean)
///     }
///
///     fn validation_step(&self, (x, y): &Self::Batch, step: &mut StepContext) -> Result<()> {
///         step.log("val_loss", self.layer.forward(x)?.mse_loss(y, Reduction::Mean)?)
///     }
///
///     fn configure_optimizers(&self, _: &Run) -> Result<Optimizers> {
///         Ok(Optimizers::new(Sgd::new(self.parameters(), 0.1)?))
///     }
/// }
///
/// let x = Tensor::randn([64, 3])?;
/// let y = x.matmul(&Tensor::new([[1.0f32], [-2.0], [0.5]])?)?;
/// let loader = || DataLoader::new(TensorDataset::new((x.clone(), y.clone()))?, 16);
/// let mut model = Line { layer: Linear::new(3, 1)? };
/// let mut trainer = Trainer::builder().max_epochs(30).run_directory(None).progress(false).build()?;
/// trainer.fit(&mut model, &mut loader()?, Some(&mut loader()?))?;
/// assert!(trainer.metrics()["val_loss"] < 1e-3);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
///
/// On a GPU `training_step` is recorded and replayed ([`Capture`](rushlight_tensor::Capture)): its host code runs only
/// during the recording. Pass values that change from step to step with the batch, or set `capture(false)` on the
/// Trainer.
#[allow(unused_variables)]
pub trait TrainModule: Module + Sized {
    /// The loaders' batches.
    type Batch: Batch;

    /// The loss of a batch. It may also log values.
    fn training_step(&self, batch: &Self::Batch, step: &mut StepContext) -> Result<Tensor>;

    /// The optimizers and their schedules. The model already has its device and dtype.
    fn configure_optimizers(&self, run: &Run) -> Result<Optimizers>;

    /// Computes and logs values of a validation batch.
    fn validation_step(&self, batch: &Self::Batch, step: &mut StepContext) -> Result<()> {
        Err(missing("validation_step", "a validation loader was given"))
    }

    /// Computes and logs values of a test batch.
    fn test_step(&self, batch: &Self::Batch, step: &mut StepContext) -> Result<()> {
        Err(missing("test_step", "test was called"))
    }

    /// The model's output for a batch: a tensor, or several in a [`Value`].
    fn predict_step(&self, batch: &Self::Batch, step: &mut StepContext) -> Result<Value> {
        Err(missing("predict_step", "predict was called"))
    }

    /// Whether the Trainer calls `backward` and steps. If not, `training_step` does, by [`StepContext::backward`] and
    /// [`StepContext::optimizer`], and is responsible for accumulation and clipping.
    fn automatic_optimization(&self) -> bool {
        true
    }

    /// Before the first batch, when model, optimizers and loggers are ready and a checkpoint was restored.
    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// After the last batch.
    fn on_fit_end(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// At the beginning of an epoch.
    fn on_train_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// At the end of an epoch, before its values are computed; [`Run::log`] adds to them.
    fn on_train_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// Before a batch.
    fn on_train_batch_start(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// After a batch.
    fn on_train_batch_end(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// Before validation.
    fn on_validation_start(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// After validation, when its values are known.
    fn on_validation_end(&mut self, run: &mut Run) -> Result<()> {
        Ok(())
    }

    /// Additional state of the model that checkpoints save besides parameters and buffers.
    fn extra_state(&self) -> Result<Value> {
        Ok(Value::None)
    }

    /// Restores a state of [`TrainModule::extra_state`].
    fn load_extra_state(&mut self, state: &Value) -> Result<()> {
        Ok(())
    }
}

fn missing(method: &str, why: &str) -> Error {
    Error::unsupported(format!("Trainer: {why}, but the model has no {method}; implement TrainModule::{method}"))
}
