//! NumPy's arrays in pickles.

use super::machine::{Arena, Object, Ref, corrupt};
use super::value::{Containers, dims};
use crate::npy;
use crate::source::{self, ByteOrder, Source};
use rushlight_core::{DType, Error, Result, layout};

/// Dtype, shape and order of an array.
#[derive(Clone, Copy)]
pub(crate) struct ElementType {
    dtype: DType,
    order: ByteOrder,
}

/// `numpy.dtype('u1', False, True)`.
pub(super) fn element_type(arena: &Arena, name: Ref) -> Result<Object> {
    let code = raw(arena, name).and_then(|text| std::str::from_utf8(text).ok());
    let code = code.ok_or_else(|| corrupt("NumPy's dtype without a name"))?;
    let (dtype, order) = npy::element_type(code)?;
    Ok(Object::ElementType(ElementType { dtype, order }))
}

/// The state of a dtype, `(version, byte order, …)`.
pub(super) fn with_order(arena: &Arena, of: ElementType, state: Ref) -> Result<Object> {
    let order = match arena.get(state) {
        Object::Tuple(state) => state.get(1).and_then(|&order| raw(arena, order)),
        _ => None,
    };
    let order = match order {
        Some(b"<" | b"|" | b"=") => ByteOrder::Little,
        Some(b">") => ByteOrder::Big,
        _ => return Err(corrupt("NumPy's dtype without a byte order")),
    };
    Ok(Object::ElementType(ElementType { order, ..of }))
}

/// An array from its state, `(version, shape, dtype, whether in Fortran order, bytes)`.
pub(super) fn array(arena: &Arena, state: Ref, containers: &mut Containers) -> Result<Object> {
    let fail = || corrupt("an array that is not made as NumPy makes it");
    let Object::Tuple(state) = arena.get(state) else { return Err(fail()) };
    let &[_version, shape, elements, fortran, bytes] = &state[..] else { return Err(fail()) };
    let (&Object::ElementType(elements), &Object::Bool(fortran), Some(bytes)) =
        (arena.get(elements), arena.get(fortran), raw(arena, bytes))
    else {
        return Err(fail());
    };
    let shape = dims(arena, shape)?;
    source::check_shape(&shape)?;
    let numel = layout::checked_numel(&shape)?;
    if numel.checked_mul(elements.dtype.size()) != Some(bytes.len()) {
        return Err(Error::io(format!(
            "an array of shape {:?} and dtype {} has {} bytes",
            &shape[..],
            elements.dtype,
            bytes.len()
        )));
    }
    containers.copy(bytes.len())?;
    let source = Source::from_bytes(bytes)?;
    let storage = source.storage(0..bytes.len(), elements.dtype, elements.order)?;
    let strides = npy::strides(&shape, fortran);
    Ok(Object::Tensor(source::tensor(&storage, &shape, &strides, 0, elements.dtype)?))
}

/// Bytes, or a string of Python 2, which happened to be text.
fn raw(arena: &Arena, r: Ref) -> Option<&[u8]> {
    match arena.get(r) {
        Object::Bytes(bytes) => Some(bytes),
        Object::Str(text) => Some(text.as_bytes()),
        _ => None,
    }
}
