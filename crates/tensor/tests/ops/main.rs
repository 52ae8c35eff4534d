//! Every op: PyTorch's answers, derivatives, hostile arguments, other devices. One program, since all share the table
//! of ops.

mod capture;
mod coverage;
mod device;
mod device_attention;
mod device_complex;
mod device_images;
mod device_sums;
mod goldens;
mod gradcheck;
mod hostile;
mod kernels;
mod support;
