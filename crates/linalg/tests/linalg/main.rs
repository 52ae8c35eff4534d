//! The public functions, against PyTorch's numbers, against their definitions, and on input that is out of the
//! ordinary.

mod degenerate;
mod pytorch;
mod reconstruction;
mod spectra;
mod support;
