//! The families of engine calls: a module each, beside its kernels' text in `kernels/`.

pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod chain;
pub(crate) mod complex;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod cross_entropy;
pub(crate) mod ctc;
pub(crate) mod foreach;
pub(crate) mod fused;
pub(crate) mod fused_reduce;
pub(crate) mod fused_rows;
pub(crate) mod index;
pub(crate) mod linalg;
pub(crate) mod matmul;
pub(crate) mod padded_products;
pub(crate) mod pointwise;
pub(crate) mod pooling;
pub(crate) mod random;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod resample;
pub(crate) mod row_norm;
pub(crate) mod scan;
pub(crate) mod softmax;
pub(crate) mod sort;
