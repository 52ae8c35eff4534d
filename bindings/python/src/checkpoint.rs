//! Distributed checkpoints, for `torch.distributed.checkpoint`.

use crate::error::{to_py, value_error};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rushlight_core::DType;
use rushlight_io::dcp::{self, Chunk, Entry, Metadata, Part, Place, Reader, SafetensorsPlan, Step};
use std::path::PathBuf;

/// A file's name, an offset and a length.
type PlaceRow = Option<(String, u64, u64)>;

/// A name; a dtype's name, or none for values that are no tensors; the whole shape; whether it needs gradients; and of
/// each part its offsets, its shape and its place.
type Row = (String, Option<String>, Vec<usize>, bool, Vec<(Vec<usize>, Vec<usize>, PlaceRow)>);

/// A name and its path: keys and indices.
type PathRow = (String, Vec<PathStep>);

#[derive(FromPyObject, IntoPyObject)]
enum PathStep {
    Key(String),
    Index(i64),
}

fn place_row(place: &Option<Place>) -> PlaceRow {
    place.as_ref().map(|place| (place.file.clone(), place.offset, place.length))
}

fn rows(metadata: &Metadata) -> Vec<Row> {
    let row = |(name, entry): &(String, Entry)| match entry {
        Entry::Bytes(place) => {
            (name.clone(), None, Vec::new(), false, vec![(Vec::new(), Vec::new(), place_row(place))])
        }
        Entry::Tensor { dtype, size, requires_grad, chunks } => {
            let chunks = chunks.iter().map(|c| (c.offsets.to_vec(), c.sizes.to_vec(), place_row(&c.place))).collect();
            (name.clone(), Some(dtype.name().to_string()), size.to_vec(), *requires_grad, chunks)
        }
    };
    metadata.entries().iter().map(row).collect()
}

fn dtype_of(name: &str) -> PyResult<DType> {
    let found = DType::ALL.into_iter().find(|d| d.name() == name);
    found.ok_or_else(|| value_error(format!("there is no dtype '{name}'")))
}

fn add_rows(metadata: &mut Metadata, rows: Vec<Row>) -> PyResult<()> {
    for (name, dtype, size, requires_grad, chunks) in rows {
        let place = |row: PlaceRow| row.map(|(file, offset, length)| Place { file, offset, length });
        let entry = match dtype {
            None => Entry::Bytes(chunks.into_iter().next().and_then(|(_, _, row)| place(row))),
            Some(dtype) => Entry::Tensor {
                dtype: dtype_of(&dtype)?,
                size: size.into(),
                requires_grad,
                chunks: chunks
                    .into_iter()
                    .map(|(o, s, row)| Chunk { offsets: o.into(), sizes: s.into(), place: place(row) })
                    .collect(),
            },
        };
        metadata.insert(&name, entry).map_err(to_py)?;
    }
    Ok(())
}

/// A part to write: a name, and either a part of a tensor with the whole shape and its offsets, or bytes.
#[derive(FromPyObject)]
enum PyPart<'py> {
    Tensor(String, Bound<'py, PyTensor>, Vec<usize>, Vec<usize>),
    Bytes(String, Vec<u8>),
}

/// Writes parts to one file; returns their rows.
#[pyfunction]
fn _checkpoint_write(py: Python<'_>, folder: PathBuf, file: &str, parts: Vec<PyPart<'_>>) -> PyResult<Vec<Row>> {
    let parts = parts
        .into_iter()
        .map(|part| match part {
            PyPart::Tensor(name, tensor, size, offsets) => Part::tensor(&name, &size, &offsets, &tensor.get().tensor()),
            PyPart::Bytes(name, bytes) => Ok(Part::bytes(&name, bytes)),
        })
        .collect::<rushlight_core::Result<Vec<_>>>()
        .map_err(to_py)?;
    let metadata = py.detach(|| dcp::write_parts(&folder, file, &parts)).map_err(to_py)?;
    Ok(rows(&metadata))
}

/// Makes a checkpoint of the rows of all ranks valid.
#[pyfunction]
fn _checkpoint_commit(py: Python<'_>, folder: PathBuf, ranks: Vec<Vec<Row>>, paths: Vec<PathRow>) -> PyResult<()> {
    let mut metadata = Metadata::default();
    for rows in ranks {
        add_rows(&mut metadata, rows)?;
    }
    let step = |step| match step {
        PathStep::Key(key) => Step::Key(key),
        PathStep::Index(i) => Step::Index(i),
    };
    metadata.set_paths(paths.into_iter().map(|(name, path)| (name, path.into_iter().map(step).collect())).collect());
    py.detach(|| dcp::commit(&folder, &metadata)).map_err(to_py)
}

/// A committed checkpoint.
#[pyclass(name = "_CheckpointReader", module = "rushlight._C", frozen)]
struct PyReader(Reader);

#[pymethods]
impl PyReader {
    /// Opens a checkpoint, or a folder of safetensors.
    #[new]
    #[pyo3(signature = (folder, safetensors=false))]
    fn new(py: Python<'_>, folder: PathBuf, safetensors: bool) -> PyResult<Self> {
        let open = || if safetensors { Reader::open_safetensors(folder) } else { Reader::open(folder) };
        py.detach(open).map(Self).map_err(to_py)
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.0.metadata())
    }

    fn paths(&self) -> Vec<PathRow> {
        let step = |step: &Step| match step {
            Step::Key(key) => PathStep::Key(key.clone()),
            Step::Index(i) => PathStep::Index(*i),
        };
        self.0.metadata().paths().iter().map(|(n, p)| (n.clone(), p.iter().map(step).collect())).collect()
    }

    /// A part of a tensor.
    fn read(&self, py: Python<'_>, name: &str, offsets: Vec<usize>, sizes: Vec<usize>) -> PyResult<Py<PyAny>> {
        let tensor = py.detach(|| self.0.read(name, &offsets, &sizes)).map_err(to_py)?;
        Ok(wrap(py, tensor)?.into_any().unbind())
    }

    /// What `torch.save` wrote for a value that is no tensor.
    fn saved<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &py.detach(|| self.0.saved(name)).map_err(to_py)?))
    }
}

/// Hugging Face's files, written by ranks together.
#[pyclass(name = "_SafetensorsPlan", module = "rushlight._C", frozen)]
struct PyPlan(SafetensorsPlan);

#[pymethods]
impl PyPlan {
    /// Tensors by name, dtype and shape; the file of each, by number, or the most bytes of one.
    #[new]
    #[pyo3(signature = (tensors, numbers, max_shard_size))]
    fn new(
        tensors: Vec<(String, String, Vec<usize>)>,
        numbers: Option<Vec<usize>>,
        max_shard_size: usize,
    ) -> PyResult<Self> {
        let described = tensors
            .into_iter()
            .map(|(name, dtype, shape)| Ok((name, dtype_of(&dtype)?, shape)))
            .collect::<PyResult<Vec<_>>>()?;
        let plan = match numbers {
            Some(numbers) => SafetensorsPlan::with_files(&described, &numbers),
            None => SafetensorsPlan::new(&described, max_shard_size),
        };
        plan.map(Self).map_err(to_py)
    }

    fn create(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.create(folder)).map_err(to_py)
    }

    /// Writes a part of a tensor.
    fn write(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        name: &str,
        offsets: Vec<usize>,
        part: &Bound<'_, PyTensor>,
    ) -> PyResult<()> {
        let part = part.get().tensor();
        py.detach(|| self.0.write(folder, name, &offsets, &part)).map_err(to_py)
    }

    fn commit(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.commit(folder)).map_err(to_py)
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyReader>()?;
    module.add_class::<PyPlan>()?;
    module.add_function(wrap_pyfunction!(_checkpoint_write, module)?)?;
    module.add_function(wrap_pyfunction!(_checkpoint_commit, module)?)
}
