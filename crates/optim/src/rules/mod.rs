//! The optimizers by formula.

mod adafactor;
mod adam;
mod asgd;
mod muon;
mod rmsprop;
mod rprop;
mod sgd;

pub use adafactor::{Adafactor, AdafactorOptions};
pub use adam::{
    Adam, AdamOptions, AdamW, AdamWOptions, Adamax, AdamaxOptions, NAdam, NAdamOptions, RAdam, RAdamOptions,
};
pub use asgd::{Asgd, AsgdOptions};
pub use muon::{AdjustLr, Muon, MuonOptions};
pub use rmsprop::{Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, RmsProp, RmsPropOptions};
pub use rprop::{Rprop, RpropOptions};
pub use sgd::{Sgd, SgdOptions};
