//! The compiled part of `torch.distributed`: worlds, groups, stores, and handles of asynchronous collectives.
//!
//! Every call that may block releases the GIL. PyTorch's signatures, objects and sub-packages are in Python
//! (`rushlight/distributed`).

use crate::convert;
use crate::error::{to_py, value_error};
use crate::tensor::PyTensor;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use rushlight_core::sync::lock;
use rushlight_core::{Error, ErrorKind, Result};
use rushlight_dist::launch::{self, Launch, Rendezvous};
use rushlight_dist::store::{FileStore, HashStore, Op, PrefixStore, Store, TcpStore};
use rushlight_dist::{Collective, Init, Objects, P2p, ProcessGroup, ReduceOp, Work, World};
use rushlight_tensor::Tensor;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pyo3::create_exception!(rushlight.distributed, DistError, PyRuntimeError, "An error of torch.distributed.");
pyo3::create_exception!(rushlight.distributed, DistBackendError, DistError, "A collective that failed.");
pyo3::create_exception!(rushlight.distributed, DistNetworkError, DistError, "Peers that cannot be reached.");
pyo3::create_exception!(rushlight.distributed, DistStoreError, DistError, "A store that did not answer.");

/// The error of a running collective: whatever its kind, the group has failed.
pub fn failed(error: Error) -> PyErr {
    DistBackendError::new_err(error.to_string())
}

/// The error of a call that was not started: argument errors as elsewhere, a failed job as a failure.
fn refused(error: Error) -> PyErr {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Timeout => failed(error),
        _ => to_py(error),
    }
}

fn store_error(error: Error) -> PyErr {
    match error.kind() {
        // PyTorch's word, which programs look for.
        ErrorKind::Timeout => DistStoreError::new_err(format!("Timeout: {error}")),
        ErrorKind::Io => DistNetworkError::new_err(error.to_string()),
        _ => to_py(error),
    }
}

/// Converts a timeout in seconds. Negative or absurd ones are errors.
fn seconds(timeout: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(timeout)
        .map_err(|_| value_error(format!("a timeout of {timeout} s is not a length of time")))
}

pub fn reduce_op(name: &str) -> PyResult<ReduceOp> {
    Ok(match name {
        "sum" => ReduceOp::Sum,
        "avg" => ReduceOp::Mean,
        "product" => ReduceOp::Product,
        "min" => ReduceOp::Min,
        "max" => ReduceOp::Max,
        "band" => ReduceOp::BitAnd,
        "bor" => ReduceOp::BitOr,
        "bxor" => ReduceOp::BitXor,
        _ => return Err(value_error(format!("unknown reduction {name}"))),
    })
}

/// An asynchronous collective.
#[pyclass(name = "_Work", module = "rushlight._C", frozen)]
struct PyWork {
    work: Work,
    /// The sender of a receive from any rank.
    from: Arc<AtomicUsize>,
}

#[pymethods]
impl PyWork {
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(seconds).transpose()?;
        py.detach(|| match timeout {
            Some(timeout) => self.work.wait_for(timeout),
            None => self.work.wait(),
        })
        .map_err(failed)
    }

    fn is_completed(&self) -> bool {
        self.work.is_completed()
    }

    /// The sender of a receive from any rank, when it is done.
    fn source(&self) -> usize {
        self.from.load(Relaxed)
    }
}

/// A group of ranks.
#[pyclass(name = "_Group", module = "rushlight._C", frozen)]
pub struct PyGroup(pub Arc<dyn ProcessGroup>);

fn first(tensors: &[Tensor], call: &str) -> PyResult<Tensor> {
    tensors.first().cloned().ok_or_else(|| value_error(format!("{call}: a tensor is needed")))
}

fn tensor_list(object: &Bound<'_, PyAny>, call: &str) -> PyResult<Vec<Tensor>> {
    convert::tensors(object)?
        .ok_or_else(|| crate::error::type_error(format!("{call}: expected a list of tensors, got {object}")))
}

impl PyGroup {
    fn start(&self, py: Python<'_>, collective: Collective, background: bool) -> PyResult<PyWork> {
        let from = match &collective {
            Collective::RecvAny { from, .. } => from.clone(),
            _ => Arc::default(),
        };
        let work = py.detach(|| self.0.submit(collective, background)).map_err(refused)?;
        if !background {
            py.detach(|| work.wait()).map_err(failed)?;
        }
        Ok(PyWork { work, from })
    }

    /// A collective on byte strings; releases the GIL.
    fn objects<T: Send>(&self, py: Python<'_>, run: impl FnOnce(&dyn ProcessGroup) -> Result<T> + Send) -> PyResult<T> {
        py.detach(|| run(&*self.0)).map_err(|e| match e.kind() {
            ErrorKind::Value => to_py(e),
            _ => failed(e),
        })
    }
}

#[pymethods]
impl PyGroup {
    #[getter]
    fn rank(&self) -> usize {
        self.0.rank()
    }

    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn engine(&self) -> &'static str {
        self.0.backend()
    }

    #[getter]
    fn ranks(&self) -> Vec<usize> {
        self.0.ranks().to_vec()
    }

    #[getter]
    fn timeout(&self) -> f64 {
        self.0.timeout().as_secs_f64()
    }

    /// Changes the timeout of collectives that start from now on.
    fn set_timeout(&self, timeout: f64) -> PyResult<()> {
        self.0.set_timeout(seconds(timeout)?);
        Ok(())
    }

    /// Runs or starts a collective. `how` is its reduction and its root; collectives without them ignore them.
    fn submit(
        &self,
        py: Python<'_>,
        call: &str,
        outputs: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        how: (String, usize),
        background: bool,
    ) -> PyResult<PyWork> {
        let (outputs, inputs) = (tensor_list(outputs, call)?, tensor_list(inputs, call)?);
        let (op, root) = (reduce_op(&how.0)?, how.1);
        let collective = match call {
            "all_reduce" => Collective::AllReduce { tensors: outputs, op },
            "broadcast" => Collective::Broadcast { tensors: outputs, root },
            "reduce" => Collective::Reduce { tensor: first(&outputs, call)?, op, root },
            "all_gather" => Collective::AllGather { outputs, input: first(&inputs, call)? },
            "all_gather_coalesced" if outputs.len() != inputs.len() * self.0.size() => {
                return Err(value_error(format!(
                    "{call}: {} outputs for {} inputs and {} ranks; each input needs one of each rank",
                    outputs.len(),
                    inputs.len(),
                    self.0.size()
                )));
            }
            "all_gather_coalesced" => {
                let lists = outputs.chunks(self.0.size()).map(<[_]>::to_vec);
                let one = |(outputs, input)| Collective::AllGather { outputs, input };
                Collective::Several(lists.zip(inputs).map(one).collect())
            }
            "reduce_scatter" => Collective::ReduceScatter { output: first(&outputs, call)?, inputs, op },
            "all_to_all" => Collective::AllToAll { outputs, inputs },
            "gather" => Collective::Gather { input: first(&inputs, call)?, outputs, root },
            "scatter" => Collective::Scatter { output: first(&outputs, call)?, inputs, root },
            "barrier" => Collective::Barrier,
            _ => return Err(value_error(format!("unknown collective {call}"))),
        };
        self.start(py, collective, background)
    }

    /// Sends and receives, concurrently: pairs of a tensor, a rank of the group, a tag, and whether it is sent.
    fn p2p(
        &self,
        py: Python<'_>,
        all: Vec<(Bound<'_, PyTensor>, usize, u32, bool)>,
        background: bool,
    ) -> PyResult<PyWork> {
        let all = all
            .into_iter()
            .map(|(tensor, peer, tag, sends)| P2p { tensor: tensor.get().tensor(), peer, tag, sends })
            .collect();
        self.start(py, Collective::P2p(all), background)
    }

    /// Receives a message with a tag from any rank.
    fn recv_any(&self, py: Python<'_>, tensor: &PyTensor, tag: u32, background: bool) -> PyResult<PyWork> {
        self.start(py, Collective::RecvAny { tensor: tensor.tensor(), tag, from: Arc::default() }, background)
    }

    fn all_gather_object<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let all = self.objects(py, |g| g.all_gather_object(bytes))?;
        PyList::new(py, all.iter().map(|b| PyBytes::new(py, b)))
    }

    #[pyo3(signature = (bytes, root))]
    fn broadcast_object<'py>(
        &self,
        py: Python<'py>,
        bytes: Option<&[u8]>,
        root: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.objects(py, |g| g.broadcast_object(bytes, root))?))
    }

    fn gather_object<'py>(&self, py: Python<'py>, bytes: &[u8], root: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        let all = self.objects(py, |g| g.gather_object(bytes, root))?;
        all.map(|all| PyList::new(py, all.iter().map(|b| PyBytes::new(py, b)))).transpose()
    }

    #[pyo3(signature = (list, root))]
    fn scatter_object<'py>(
        &self,
        py: Python<'py>,
        list: Option<Vec<Vec<u8>>>,
        root: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.objects(py, |g| g.scatter_object(list.as_deref(), root))?))
    }

    fn send_object(&self, py: Python<'_>, bytes: &[u8], to: usize, tag: u32) -> PyResult<()> {
        self.objects(py, |g| g.send_object(bytes, to, tag))
    }

    fn recv_object<'py>(&self, py: Python<'py>, from: usize, tag: u32) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.objects(py, |g| g.recv_object(from, tag))?))
    }

    /// The last collectives, as JSON.
    fn flight_record(&self) -> String {
        self.0.flight_record().to_json().to_string()
    }
}

/// The processes of a job. Dropping it in a forked child has no effect: the connections are the parent's.
#[pyclass(name = "_World", module = "rushlight._C", frozen)]
struct PyWorld {
    world: Mutex<Option<World>>,
    process: u32,
}

impl PyWorld {
    fn lock(&self) -> MutexGuard<'_, Option<World>> {
        lock(&self.world)
    }

    fn with<T>(&self, f: impl FnOnce(&World) -> PyResult<T>) -> PyResult<T> {
        match &*self.lock() {
            Some(world) => f(world),
            None => Err(value_error("the process group was destroyed")),
        }
    }
}

/// The caller's rank and world size, unless they equal the launcher's: then nothing is overridden, and the launcher's
/// other settings (rendezvous, secret) apply.
fn placed(rank: Option<usize>, size: Option<usize>) -> Result<Option<(usize, usize)>> {
    if rank.is_none() && size.is_none() {
        return Ok(None);
    }
    let detected = match (launch::detect(), rank, size) {
        (Ok(launch), ..) => launch,
        (Err(_), Some(rank), Some(size)) => return Ok(Some((rank, size))),
        (Err(e), ..) => return Err(e),
    };
    let place = (rank.unwrap_or(detected.rank), size.unwrap_or(detected.world_size));
    Ok((place != (detected.rank, detected.world_size)).then_some(place))
}

#[pymethods]
impl PyWorld {
    /// Joins the other ranks.
    #[new]
    #[pyo3(signature = (method, timeout, rank=None, world_size=None, store=None, backend=""))]
    fn new(
        py: Python<'_>,
        method: &str,
        timeout: f64,
        rank: Option<usize>,
        world_size: Option<usize>,
        store: Option<&PyStore>,
        backend: &str,
    ) -> PyResult<Self> {
        let mut init = Init::new().timeout(seconds(timeout)?).method(method).backend(backend);
        if let Some((rank, size)) = placed(rank, world_size).map_err(|e| value_error(e.to_string()))? {
            init = init.place(rank, size);
        }
        if let Some(store) = store {
            init = init.store(store.0.clone());
        }
        let world = py.detach(|| init.build()).map_err(|e| match e.kind() {
            ErrorKind::Value => value_error(e.to_string()),
            ErrorKind::Unsupported => to_py(e),
            _ => store_error(e),
        })?;
        Ok(Self { world: Mutex::new(Some(world)), process: std::process::id() })
    }

    fn group(&self) -> PyResult<PyGroup> {
        self.with(|world| Ok(PyGroup(world.group().clone())))
    }

    fn store(&self) -> PyResult<PyStore> {
        self.with(|world| Ok(PyStore(world.store().clone())))
    }

    /// A group of some ranks; `None` on ranks outside of it.
    #[pyo3(signature = (ranks, timeout=None))]
    fn new_group(&self, py: Python<'_>, ranks: Vec<usize>, timeout: Option<f64>) -> PyResult<Option<PyGroup>> {
        let timeout = timeout.map(seconds).transpose()?;
        py.detach(|| {
            self.with(|world| {
                let timeout = timeout.unwrap_or_else(|| world.group().timeout());
                world.new_group_with(&ranks, timeout).map_err(|e| match e.kind() {
                    ErrorKind::Value => value_error(e.to_string()),
                    _ => store_error(e),
                })
            })
        })
        .map(|group| group.map(PyGroup))
    }

    /// The launch of this process.
    fn launch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(|world| launch_dict(py, world.launch()))
    }

    /// Leaves the job cleanly.
    fn close(&self, py: Python<'_>) {
        let world = self.lock().take();
        py.detach(|| drop(world));
    }

    /// Leaves without notice, so that the others treat this process as dead.
    fn abandon(&self) {
        std::mem::forget(self.lock().take());
    }
}

impl Drop for PyWorld {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            self.abandon();
        }
    }
}

fn launch_dict<'py>(py: Python<'py>, launch: &Launch) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("launcher", launch.launcher.to_string())?;
    dict.set_item("rank", launch.rank)?;
    dict.set_item("world_size", launch.world_size)?;
    dict.set_item("local_rank", launch.local_rank)?;
    dict.set_item("local_size", launch.local_size)?;
    dict.set_item("node_rank", launch.node_rank)?;
    dict.set_item("nodes", launch.nodes)?;
    dict.set_item("reasons", &launch.reasons)?;
    dict.set_item("mpi", launch.is_mpi(&launch::Environment::current()))?;
    Ok(dict)
}

/// The launch of this process, detected from its environment.
#[pyfunction]
fn _detect_launch(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    launch_dict(py, &launch::detect().map_err(|e| value_error(e.to_string()))?)
}

/// PyTorch's random permutation of the numbers below `count` for a seed.
#[pyfunction]
fn _permutation(py: Python<'_>, count: usize, seed: u64) -> Vec<usize> {
    py.detach(|| rushlight_data::sampler::permutation(count, seed))
}

/// A key-value store.
#[pyclass(name = "_Store", module = "rushlight._C", frozen)]
struct PyStore(Arc<dyn Store>);

impl PyStore {
    fn run<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&dyn Store) -> Result<T> + Send) -> PyResult<T> {
        py.detach(|| f(&*self.0)).map_err(store_error)
    }
}

fn strs(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}

#[pymethods]
impl PyStore {
    /// A store over TCP, and its port. Its processes authenticate by RUSHLIGHT_JOB_SECRET or the user's key. A master
    /// may take over a bound socket by its descriptor, which is closed with the store.
    #[staticmethod]
    #[pyo3(signature = (host, port, is_master, timeout, descriptor=None))]
    fn tcp(
        py: Python<'_>,
        host: &str,
        port: u16,
        is_master: bool,
        timeout: f64,
        descriptor: Option<i32>,
    ) -> PyResult<(Self, u16)> {
        let timeout = seconds(timeout)?;
        let listener =
            descriptor.map(rushlight_dist::store::listener_of).transpose().map_err(|e| value_error(e.to_string()))?;
        let store = py
            .detach(|| {
                let meeting = Rendezvous {
                    host: host.into(),
                    ports: vec![port],
                    job: "TCPStore".into(),
                    reason: "given by the program".into(),
                };
                let (secret, _) = launch::job_secret(&Launch::explicit(0, 1)?, &meeting)?;
                if !is_master {
                    return TcpStore::connect_within(host, &[port], secret, timeout);
                }
                let is_loopback =
                    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
                let hosted = match listener {
                    Some(listener) => TcpStore::host_on(listener, secret),
                    None => TcpStore::host(&[port], is_loopback, secret),
                };
                hosted.map_err(|e| {
                    // PyTorch's words, which programs look for to try another port.
                    Error::io(format!(
                        "The server socket has failed to listen on any local network address. port: {port}, {e}"
                    ))
                })
            })
            .map_err(|e| match e.kind() {
                ErrorKind::Value => value_error(e.to_string()),
                _ => DistNetworkError::new_err(e.to_string()),
            })?;
        let port = store.port();
        Ok((Self(Arc::new(store)), port))
    }

    #[staticmethod]
    #[pyo3(signature = (path, world_size=None))]
    fn file(path: &str, world_size: Option<usize>) -> PyResult<Self> {
        Ok(Self(Arc::new(FileStore::open(path, world_size).map_err(store_error)?)))
    }

    #[staticmethod]
    fn hash() -> Self {
        Self(Arc::new(HashStore::new()))
    }

    #[staticmethod]
    fn prefix(prefix: &str, inner: &PyStore) -> Self {
        Self(Arc::new(PrefixStore::new(prefix, inner.0.clone())))
    }

    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        self.run(py, |s| s.set(key, value))
    }

    fn get<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.run(py, |s| s.get(key))?))
    }

    fn add(&self, py: Python<'_>, key: &str, amount: i64) -> PyResult<i64> {
        self.run(py, |s| s.add(key, amount))
    }

    fn compare_set<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.run(py, |s| s.compare_set(key, expected, desired))?))
    }

    #[pyo3(signature = (keys, timeout=None))]
    fn wait(&self, py: Python<'_>, keys: Vec<String>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map_or_else(|| Ok(self.0.timeout()), seconds)?;
        self.run(py, |s| s.wait_for(&strs(&keys), timeout))
    }

    fn check(&self, py: Python<'_>, keys: Vec<String>) -> PyResult<bool> {
        self.run(py, |s| s.check(&strs(&keys)))
    }

    fn delete_key(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        self.run(py, |s| s.delete_key(key))
    }

    fn append(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        self.run(py, |s| s.append(key, value))
    }

    fn multi_get<'py>(&self, py: Python<'py>, keys: Vec<String>) -> PyResult<Bound<'py, PyList>> {
        let values = self.run(py, |s| s.multi_get(&strs(&keys)))?;
        PyList::new(py, values.iter().map(|v| PyBytes::new(py, v)))
    }

    fn multi_set(&self, py: Python<'_>, pairs: Vec<(String, Vec<u8>)>) -> PyResult<()> {
        let pairs: Vec<(&str, &[u8])> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_slice())).collect();
        self.run(py, |s| s.multi_set(&pairs))
    }

    fn num_keys(&self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, |s| s.num_keys())
    }

    fn list_keys(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |s| s.list_keys())
    }

    fn queue_push(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        self.run(py, |s| s.queue_push(key, value))
    }

    /// Waits for a value; without `block` an empty queue gives none.
    fn queue_pop<'py>(&self, py: Python<'py>, key: &str, block: bool) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let timeout = if block { self.0.timeout() } else { Duration::ZERO };
        match py.detach(|| self.0.queue_pop(key, timeout)) {
            Ok(value) => Ok(Some(PyBytes::new(py, &value))),
            Err(e) if !block && e.kind() == ErrorKind::Timeout => Ok(None),
            Err(e) => Err(store_error(e)),
        }
    }

    fn queue_len(&self, py: Python<'_>, key: &str) -> PyResult<usize> {
        self.run(py, |s| s.queue_len(key))
    }

    /// Another handle of the same keys.
    fn clone(&self, py: Python<'_>) -> PyResult<Self> {
        py.detach(|| self.0.clone().try_clone()).map(Self).map_err(store_error)
    }

    /// The keys of an object of Python with PyTorch's methods of a store; a weak reference to it is given.
    #[staticmethod]
    fn python(weak: Py<PyAny>) -> Self {
        Self(Arc::new(PythonStore { weak, timeout: Mutex::new(rushlight_dist::store::DEFAULT_TIMEOUT) }))
    }

    #[getter]
    fn timeout(&self) -> f64 {
        self.0.timeout().as_secs_f64()
    }

    fn set_timeout(&self, timeout: f64) -> PyResult<()> {
        self.0.set_timeout(seconds(timeout)?);
        Ok(())
    }
}

/// A store that a program has written in Python.
struct PythonStore {
    weak: Py<PyAny>,
    timeout: Mutex<Duration>,
}

impl Store for PythonStore {
    fn call(&self, op: Op, args: &[&[u8]], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        Python::attach(|py| self.run(py, op, args, timeout)).map_err(|e| {
            // A Python store reports a timeout by an exception of any class.
            let late = Python::attach(|py| e.is_instance_of::<DistStoreError>(py));
            match late {
                true => Error::timeout(format!("store: {op:?} timed out: {e}")),
                false => Error::io(format!("store: {op:?}: {e}")),
            }
        })
    }

    fn try_clone(self: Arc<Self>) -> Result<Arc<dyn Store>> {
        Ok(self)
    }

    fn timeout(&self) -> Duration {
        *lock(&self.timeout)
    }

    fn set_timeout(&self, timeout: Duration) {
        *lock(&self.timeout) = timeout;
    }
}

impl PythonStore {
    fn run(&self, py: Python<'_>, op: Op, args: &[&[u8]], timeout: Duration) -> PyResult<Vec<Vec<u8>>> {
        let store = self.weak.bind(py).call0()?;
        if store.is_none() {
            return Err(value_error("the store was dropped"));
        }
        let key = |i: usize| String::from_utf8_lossy(args[i]).into_owned();
        let bytes = |i: usize| PyBytes::new(py, args[i]);
        let keys = || (0..args.len()).map(key).collect::<Vec<_>>();
        let flag = |yes: Bound<'_, PyAny>| Ok(vec![vec![yes.extract::<bool>()? as u8]]);
        let number = |n: Bound<'_, PyAny>| Ok(vec![n.extract::<i64>()?.to_string().into_bytes()]);
        // Bytes, or a text.
        let value =
            |v: Bound<'_, PyAny>| v.extract::<Vec<u8>>().or_else(|_| v.extract::<String>().map(String::into_bytes));
        match op {
            Op::Set => store.call_method1("set", (key(0), bytes(1))).map(|_| Vec::new()),
            Op::Get => Ok(vec![value(store.call_method1("get", (key(0),))?)?]),
            Op::Add => {
                let amount: i64 =
                    String::from_utf8_lossy(args[1]).parse().map_err(|_| value_error("add needs a number"))?;
                number(store.call_method1("add", (key(0), amount))?)
            }
            Op::CompareSet => Ok(vec![value(store.call_method1("compare_set", (key(0), bytes(1), bytes(2)))?)?]),
            Op::Wait => {
                let delta = py.import("datetime")?.getattr("timedelta")?.call1((0, timeout.as_secs_f64()))?;
                store.call_method1("wait", (keys(), delta)).map(|_| Vec::new())
            }
            Op::Check => flag(store.call_method1("check", (keys(),))?),
            Op::Delete => flag(store.call_method1("delete_key", (key(0),))?),
            Op::NumKeys => number(store.call_method0("num_keys")?),
            Op::Append => store.call_method1("append", (key(0), bytes(1))).map(|_| Vec::new()),
            Op::MultiGet => {
                let found = store.call_method1("multi_get", (keys(),))?;
                found.try_iter()?.map(|v| value(v?)).collect()
            }
            Op::MultiSet => {
                let (names, values): (Vec<_>, Vec<_>) =
                    (0..args.len() / 2).map(|i| (key(2 * i), bytes(2 * i + 1))).unzip();
                store.call_method1("multi_set", (names, values)).map(|_| Vec::new())
            }
            _ => Err(value_error(format!("a store written in Python has no operation {op:?}"))),
        }
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<PyWork>()?;
    module.add_class::<PyGroup>()?;
    module.add_class::<PyWorld>()?;
    module.add_class::<PyStore>()?;
    module.add("_DistError", py.get_type::<DistError>())?;
    module.add("_DistBackendError", py.get_type::<DistBackendError>())?;
    module.add("_DistNetworkError", py.get_type::<DistNetworkError>())?;
    module.add("_DistStoreError", py.get_type::<DistStoreError>())?;
    module.add_function(wrap_pyfunction!(_detect_launch, module)?)?;
    module.add_function(wrap_pyfunction!(_permutation, module)?)
}
