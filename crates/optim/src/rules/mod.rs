//! The optimizers by formula.

mod adam;
mod muon;
mod rmsprop;
mod sgd;

pub use adam::{
    Adam, AdamOptions, AdamW, AdamWOptions, Adamax, AdamaxOptions, NAdam, NAdamOptions, RAdam, RAdamOptions,
};
pub use muon::{AdjustLr, Muon, MuonOptions};
pub use rmsprop::{Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, RmsProp, RmsPropOptions};
pub use sgd::{Sgd, SgdOptions};
