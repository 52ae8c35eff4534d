//! Optimizers, learning-rate schedules, gradient scaling.
