//! `torch.tensor` and related constructors: tensors from numbers, nested lists, arrays and other tensors.

use crate::convert::{int, ints, scalar};
use crate::device::{self, PyDevice};
use crate::dtype;
use crate::error::{IntoPyResult, runtime_error, type_error, value_error};
use crate::exchange;
use crate::tensor::as_tensor;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rushlight_core::{DType, Device, Element, Scalar, with_dtype};
use rushlight_tensor::{Options, Tensor};

/// Maximum nesting: Python's own limit does not stop lists that contain themselves.
const DEEPEST: usize = 64;

/// Elements of nested lists, and the sizes of the nesting.
#[derive(Default)]
struct Nested {
    shape: Vec<usize>,
    elements: Vec<Scalar>,
    /// The dtype that holds all elements.
    inferred: Option<DType>,
    /// Whether the elements of a tensor are being read, whose dtype is known.
    in_tensor: bool,
}

impl Nested {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Nested> {
        let mut nested = Nested::default();
        nested.visit(object, 0, true)?;
        Ok(nested)
    }

    /// `first` while the sizes are being determined: along the first element of each list.
    fn visit(&mut self, object: &Bound<'_, PyAny>, depth: usize, first: bool) -> PyResult<()> {
        if depth > DEEPEST {
            return Err(value_error(format!("too many dimensions: lists nested deeper than {DEEPEST}")));
        }
        if !self.in_tensor
            && let Some(known) = own_dtype(object)?
        {
            self.note(known);
            self.in_tensor = true;
            let read = self.visit(object, depth, first);
            self.in_tensor = false;
            return read;
        }
        if let Some(number) = scalar(object)? {
            if depth != self.shape.len() {
                return Err(type_error(format!(
                    "not a sequence: expected a list of length {} at dim {depth}, got a number",
                    self.shape.get(depth).copied().unwrap_or(0)
                )));
            }
            if !self.in_tensor {
                self.note(match number {
                    Scalar::Float(_) => dtype::default(),
                    Scalar::Complex(..) => dtype::default().complex(),
                    Scalar::Bool(_) => DType::Bool,
                    _ => DType::I64,
                });
            }
            self.elements.push(number);
            return Ok(());
        }
        let object = match as_tensor(object).is_some() || object.hasattr("__array_interface__")? {
            true => &object.call_method0("tolist")?,
            false => object,
        };
        if object.is_instance_of::<PyString>()
            || object.is_instance_of::<PyDict>()
            || object.is_instance_of::<PyBytes>()
        {
            return Err(self.no_number(object, depth));
        }
        let Ok(length) = object.len() else {
            return Err(self.no_number(object, depth));
        };
        if first {
            self.shape.push(length);
        } else if self.shape.get(depth) != Some(&length) {
            return Err(match self.shape.get(depth) {
                Some(expected) => {
                    value_error(format!("expected sequence of length {expected} at dim {depth} (got {length})"))
                }
                None => type_error("only tensors, arrays or lists of one depth can be converted to Python scalars"),
            });
        }
        for i in 0..length {
            self.visit(&object.get_item(i)?, depth + 1, first && i == 0)?;
        }
        Ok(())
    }

    fn no_number(&self, object: &Bound<'_, PyAny>, depth: usize) -> PyErr {
        let name = object.get_type().name().map_or_else(|_| "object".into(), |n| n.to_string());
        match depth {
            0 if name == "str" => type_error("new(): invalid data type 'str'"),
            0 => runtime_error(format!("Could not infer dtype of {name}")),
            _ => value_error(format!("too many dimensions '{name}'")),
        }
    }

    /// The dtype that holds all elements: PyTorch's default for their kind.
    fn dtype(&self) -> DType {
        self.inferred.unwrap_or_else(dtype::default)
    }

    fn note(&mut self, dtype: DType) {
        self.inferred = Some(self.inferred.map_or(dtype, |known| known.promote(dtype)));
    }

    fn build(&self, dtype: DType) -> PyResult<Tensor> {
        // Floats beyond a dtype's range become infinite, as in PyTorch.
        if dtype.is_int() {
            self.elements.iter().try_for_each(|&e| rushlight_tensor::fitting("tensor", e, dtype).map(drop)).py()?;
        }
        match dtype {
            DType::U16 => return build(&self.elements.iter().map(|e| e.to()).collect::<Vec<u16>>(), &self.shape),
            DType::U32 => return build(&self.elements.iter().map(|e| e.to()).collect::<Vec<u32>>(), &self.shape),
            DType::U64 => return build(&self.elements.iter().map(|e| e.to()).collect::<Vec<u64>>(), &self.shape),
            _ if dtype.is_complex() => {
                let parts: Vec<f64> = self.elements.iter().flat_map(|e| [e.to_f64(), e.imag()]).collect();
                let mut shape = self.shape.clone();
                shape.push(2);
                let pairs = Tensor::from_slice(&parts, &shape).py()?.to_dtype(dtype.real()).py()?;
                return pairs.view_as_complex().and_then(|t| t.copy()).py();
            }
            _ if dtype.is_float8() => return self.build(DType::F32)?.to_dtype(dtype).py(),
            _ => {}
        }
        with_dtype!(dtype, T => {
            let elements: Vec<T> = self.elements.iter().map(|e| e.to::<T>()).collect();
            build(&elements, &self.shape)
        })
    }
}

/// The dtype of a tensor, or of an array or a number of NumPy's.
fn own_dtype(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if let Some(tensor) = as_tensor(object) {
        return Ok(Some(tensor.get().with(Tensor::dtype)));
    }
    let plain = object.cast_exact::<PyFloat>().is_ok()
        || object.cast_exact::<PyInt>().is_ok()
        || object.cast_exact::<PyBool>().is_ok()
        || object.cast_exact::<PyList>().is_ok()
        || object.cast_exact::<PyTuple>().is_ok();
    if plain || !object.hasattr("__array_interface__")? {
        return Ok(None);
    }
    exchange::dtype_of(object)
}

fn build<T: Element>(elements: &[T], shape: &[usize]) -> PyResult<Tensor> {
    Tensor::from_slice(elements, shape).py()
}

/// A tensor with a copy of the data: numbers, nested lists, arrays, tensors.
pub fn tensor(data: &Bound<'_, PyAny>, dtype: Option<DType>, device: Option<Device>) -> PyResult<Tensor> {
    let made = if let Some(tensor) = as_tensor(data) {
        let copy = tensor.get().tensor().detach().copy().py()?;
        match dtype {
            Some(dtype) => copy.to_dtype(dtype).py()?,
            None => copy,
        }
    } else if let Some(number) = scalar(data)? {
        let dtype = dtype.unwrap_or(match number {
            Scalar::Float(_) if !data.hasattr("dtype")? => dtype::default(),
            Scalar::Float(_) => exchange::dtype_of(data)?.unwrap_or(DType::F64),
            Scalar::Complex(..) if !data.hasattr("dtype")? => dtype::default().complex(),
            Scalar::Complex(..) => exchange::dtype_of(data)?.unwrap_or(DType::C128),
            other => other.dtype(),
        });
        Nested { elements: vec![number], ..Default::default() }.build(dtype)?
    } else if let Some(shared) = exchange::array_to_copy(data)? {
        let copy = data.py().detach(|| shared.copy()).py()?;
        match dtype {
            Some(dtype) => copy.to_dtype(dtype).py()?,
            None => copy,
        }
    } else {
        let nested = Nested::read(data)?;
        nested.build(dtype.unwrap_or_else(|| nested.dtype()))?
    };
    made.to(device.unwrap_or_else(device::default)).py()
}

/// `torch.as_tensor`: shares memory if possible.
pub fn share(data: &Bound<'_, PyAny>, dtype: Option<DType>, device: Option<Device>) -> PyResult<Tensor> {
    let shared = match as_tensor(data) {
        Some(tensor) => tensor.get().tensor(),
        None => match exchange::from_array_interface(data)? {
            Some(shared) => shared,
            None => return tensor(data, dtype, device),
        },
    };
    let shared = match dtype {
        Some(dtype) => shared.to_dtype(dtype).py()?,
        None => shared,
    };
    match device {
        Some(device) => shared.to(device).py(),
        None => Ok(shared),
    }
}

/// `torch.Tensor(…)`, also of a class like `torch.LongTensor`: sizes, or data.
pub fn legacy(
    args: &Bound<'_, PyTuple>,
    dtype: Option<DType>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: bool,
) -> PyResult<Tensor> {
    let device = match device {
        Some(device) => PyDevice::from_object(device)?.resolve(device.py())?,
        None => device::default(),
    };
    let options = Options::from(dtype.unwrap_or_else(dtype::default)).device(device);
    let made = match args.len() {
        0 => Tensor::empty_with([0usize], options).py()?,
        1 => {
            let only = args.get_item(0)?;
            if let Some(n) = int(&only)?
                && as_tensor(&only).is_none()
            {
                Tensor::empty_with(crate::value::sizes(&[n]).py()?, options).py()?
            } else if only.cast::<PyTuple>().is_ok() && only.hasattr("numel")? {
                let sizes = ints(&only)?.unwrap_or_default();
                Tensor::empty_with(crate::value::sizes(&sizes).py()?, options).py()?
            } else if let Some(tensor) = as_tensor(&only) {
                tensor.get().tensor().detach()
            } else if only.is_instance_of::<PyList>() || only.len().is_ok() {
                tensor(&only, Some(dtype.unwrap_or_else(dtype::default)), Some(device))?
            } else {
                return Err(type_error(format!("new(): data must be a sequence (got {})", only.get_type().name()?)));
            }
        }
        _ => match ints(args.as_any())? {
            Some(sizes) => Tensor::empty_with(crate::value::sizes(&sizes).py()?, options).py()?,
            None => return Err(type_error("new() received an invalid combination of arguments: sizes must be ints")),
        },
    };
    made.requires_grad_(requires_grad).py()
}
