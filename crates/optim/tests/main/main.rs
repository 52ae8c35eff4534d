//! The optimizers, schedules and scaling against PyTorch's answers (`tests/goldens/optim.py`) and against their own
//! promises.

mod composed;
mod lbfgs;
mod optimizers;
mod own;
mod scaling;
mod schedulers;
mod support;
