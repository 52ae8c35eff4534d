//! Largest or smallest along a dimension, and where.
use rushlight_core::{Result, View, backend::ArgReduce};
pub fn arg_reduce(_op: ArgReduce, _x: View, _dim: usize, _values: View, _indices: View) -> Result<()> {
    Ok(())
}
