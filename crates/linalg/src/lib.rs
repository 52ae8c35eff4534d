//! Dense factorisations over plain slices.
