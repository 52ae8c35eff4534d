//! Losses as modules. They are made by `new`, take their options by PyTorch's names, and compare with `forward`.

mod classification;
mod ctc;
mod define;
mod margin;
mod regression;

pub use classification::{BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, NLLLoss};
pub use ctc::{CTCLoss, ctc_loss};
pub use margin::{
    CosineEmbeddingLoss, HingeEmbeddingLoss, MarginRankingLoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss,
    MultiMarginLoss, SoftMarginLoss, TripletMarginLoss,
};
pub use regression::{GaussianNLLLoss, HuberLoss, KLDivLoss, L1Loss, MSELoss, PoissonNLLLoss, SmoothL1Loss};

use define::losses;
