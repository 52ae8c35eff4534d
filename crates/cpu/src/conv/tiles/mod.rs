//! bf16 convolutions on AMX: images and weights are copied to the layout of tiles as bf16, and sums are `f32`.

mod gradient;
mod images;
mod kernel;
mod layout;

pub(super) use gradient::{backward_weight, suits_weight};
pub(super) use images::{backward_input, forward};

use super::Conv;
use crate::amx::{Bf16Path, bf16_path};
use crate::isa::{Level, level};
use rushlight_core::DType;

/// Whether the machine has AMX and the convolution, over at most two dimensions, fills the tiles.
pub(super) fn suits(c: &Conv) -> bool {
    let flat = c.input[0] == 1 && c.kernel[0] == 1 && c.output[0] == 1 && c.padding[0] == 0;
    c.dtype == DType::BF16
        && flat
        && c.groups == 1
        && c.in_channels.min(c.out_channels) >= 16
        && c.batch * c.output_size() >= 16
        && level() == Level::Avx512
        && bf16_path() == Bf16Path::Amx
}
