//! Neural networks: modules, layers, losses, initialisation.
