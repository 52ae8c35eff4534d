//! The op table, by family. A row is documented at [`rows!`](crate::rows).

mod activation;
mod arithmetic;
mod compare;
pub(crate) mod create;
mod fft;
mod index;
mod integers;
mod layers;
mod linalg;
mod loss;
mod pointwise;
mod recurrent;
mod reduce;
mod sampling;
mod shape;

use crate::dispatch::Entry;

pub static TABLES: &[&[Entry]] = &[
    activation::ROWS,
    activation::TORCH,
    arithmetic::ROWS,
    compare::COMPARISONS,
    compare::METHODS,
    compare::ROWS,
    create::ROWS,
    fft::ROWS,
    fft::TRANSFORMS,
    index::ROWS,
    layers::ADAPTIVE1,
    layers::ADAPTIVE2,
    layers::CONV1,
    layers::CONV2,
    layers::CONV3,
    layers::POOL1,
    layers::POOL2,
    layers::POOL3,
    layers::ROWS,
    linalg::ROWS,
    linalg::TORCH,
    loss::ROWS,
    pointwise::ROWS,
    pointwise::UNARY,
    recurrent::GRU,
    recurrent::LSTM,
    recurrent::RNN_RELU,
    recurrent::RNN_TANH,
    reduce::ROWS,
    sampling::ROWS,
    shape::METHODS,
    shape::ROWS,
];
