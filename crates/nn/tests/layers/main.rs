//! Layers, losses, initialisation and the module system.

mod build;
mod containers;
mod goldens;
mod hostile;
mod init;
mod modules;
mod options;
#[allow(dead_code)]
#[path = "../../src/python.rs"]
mod python;
mod random;
