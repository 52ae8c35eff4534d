//! `rushlight._C`: the compiled part of the Python package.
//!
//! | module | what |
//! |---|---|
//! | `rows` | the op table: PyTorch's signatures and their functions |
//! | `dispatch`, `register` | calls of a row, and its registration in Python |
//! | `bind`, `signature`, `params`, `convert`, `value` | from the arguments of a call to Rust values |
//! | `tensor`, `tensor_values`, `tensor_grad`, `operators`, `index`, `objects` | the class `Tensor` |
//! | `construct`, `exchange`, `dlpack` | tensors from Python data, memory shared with other libraries |
//! | `overrides` | `__torch_function__` and its modes |
//! | `foreach` | lists of tensors in one call, for clipping and scaling |
//! | `autograd` | modes, differentiation, hooks, functions written in Python |
//! | `dtype`, `device`, `generator` | the small classes |
//! | `stream`, `capture` | streams and events; steps recorded and replayed |
//! | `kernel` | kernels that users write |
//! | `dist` | process groups, stores, launch detection |
//! | `sharded` | meshes, distributed tensors, sharded parameters |
//! | `long` | attention over split sequences, dispatch to experts |
//! | `pipeline` | pipeline schedules |
//! | `optim`, `lbfgs` | optimizer steps |
//! | `schedule`, `grad_scaler` | learning-rate schedules and averages, loss scaling |
//! | `vision` | images |
//! | `program` | exported models |
//! | `extension` | extensions in C++ |
//! | `serialize` | files of `torch.save` |
//! | `tensorboard`, `loggers` | event files and other logs of runs |
//! | `profile` | the profiler |
//! | `functions` | functions outside the op table |

mod autograd;
mod bind;
mod capture;
mod checkpoint;
mod compile;
mod construct;
mod convert;
mod device;
mod dispatch;
#[cfg(target_os = "linux")]
mod dist;
mod dlpack;
mod dtype;
mod error;
mod exchange;
mod extension;
mod foreach;
mod functions;
mod generator;
mod grad_scaler;
mod graph;
mod index;
#[cfg(target_os = "linux")]
mod kernel;
mod launch;
mod lbfgs;
mod loggers;
#[cfg(target_os = "linux")]
mod long;
mod objects;
// The lint mistakes the expansion of `pymethods` for hand-written code.
#[allow(unsafe_op_in_unsafe_fn)]
mod operators;
mod optim;
mod overrides;
mod params;
#[cfg(target_os = "linux")]
mod pipeline;
mod profile;
mod program;
mod recorded;
#[cfg(target_os = "linux")]
mod reducer;
mod register;
mod rows;
mod schedule;
mod serialize;
#[cfg(target_os = "linux")]
mod sharded;
mod signature;
mod stream;
mod tensor;
mod tensor_grad;
mod tensor_values;
mod tensorboard;
mod value;
mod vision;

use dispatch::Home;
use pyo3::prelude::*;
use value::MemoryFormat;

#[pymodule]
#[pyo3(name = "_C")]
fn python_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<tensor::PyTensor>()?;
    module.add("LinAlgError", py.get_type::<error::LinAlgError>())?;
    module.add("OutOfMemoryError", py.get_type::<error::OutOfMemoryError>())?;
    module.add_class::<generator::PyGenerator>()?;
    module.add_class::<convert::PyLayout>()?;
    module.add_class::<convert::PyMemoryFormat>()?;
    for name in convert::LAYOUTS {
        module.add(name, Bound::new(py, convert::PyLayout(name))?)?;
    }
    for format in
        [MemoryFormat::Contiguous, MemoryFormat::Preserve, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d]
    {
        let object = Bound::new(py, convert::PyMemoryFormat(format))?;
        module.add(object.call_method0("__reduce__")?.extract::<String>()?.as_str(), object)?;
    }
    dtype::add_to(module)?;
    device::add_to(module)?;
    functions::add_to(module)?;
    module.add_function(wrap_pyfunction!(register::_rows, module)?)?;
    autograd::add_to(module)?;
    graph::add_to(module)?;
    objects::add_to(module)?;
    optim::add_to(module)?;
    grad_scaler::add_to(module)?;
    lbfgs::add_to(module)?;
    schedule::add_to(module)?;
    overrides::add_to(module)?;
    vision::add_to(module)?;
    foreach::add_to(module)?;
    dlpack::add_to(module)?;
    stream::add_to(module)?;
    capture::add_to(module)?;
    kernel::add_to(module)?;
    program::add_to(module)?;
    extension::add_to(module)?;
    compile::add_to(module)?;
    serialize::add_to(module)?;
    checkpoint::add_to(module)?;
    tensorboard::add_to(module)?;
    loggers::add_to(module)?;
    profile::add_to(module)?;
    #[cfg(target_os = "linux")]
    dist::add_to(module)?;
    #[cfg(target_os = "linux")]
    reducer::add_to(module)?;
    #[cfg(target_os = "linux")]
    sharded::add_to(module)?;
    #[cfg(target_os = "linux")]
    long::add_to(module)?;
    #[cfg(target_os = "linux")]
    pipeline::add_to(module)?;
    #[cfg(target_os = "linux")]
    launch::add_to(module)?;
    let child = |name: &str| -> PyResult<Bound<'_, PyModule>> {
        let child = PyModule::new(py, &format!("rushlight._C.{name}"))?;
        module.add(name, &child)?;
        Ok(child)
    };
    let (torch, functional, linalg, special) = (child("_torch")?, child("_nn")?, child("_linalg")?, child("_special")?);
    let fft = child("_fft")?;
    let class = py.get_type::<tensor::PyTensor>();
    for table in rows::TABLES {
        for entry in *table {
            let home = |home| match home {
                Home::Functional => functional.clone(),
                Home::Linalg => linalg.clone(),
                Home::Special => special.clone(),
                Home::Fft => fft.clone(),
                Home::Torch | Home::Method | Home::Inplace => torch.clone(),
            };
            register::register(entry, home, &class)?;
        }
    }
    Ok(())
}
