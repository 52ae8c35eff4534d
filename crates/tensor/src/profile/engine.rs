//! Spans of every engine call, for the profiler: a wrapper that records each call and forwards it.
//!
//! Every op gets its engine from [`Tensor::backend`](crate::Tensor), which returns this wrapper while the profiler is
//! on.

use super::describe::{Note, attention_flops, conv_flops, family, op_grad_name, op_name, product_flops, span_of};
use super::flops::{count, count_at};
use rushlight_core::backend::*;
use rushlight_core::rng::Distribution;
use rushlight_core::{Backend, DType, Device, Philox, Pointwise, Result, Scalar};
use rushlight_profile::MemoryReading;
use std::ptr::NonNull;
use std::sync::Mutex;

/// An engine whose calls are noted.
struct Profiled(&'static dyn Backend);

/// The profiled wrapper of each engine used so far.
static KNOWN: Mutex<Vec<&'static Profiled>> = Mutex::new(Vec::new());

/// The noted form of an engine.
#[cold]
pub(crate) fn profiled(backend: &'static dyn Backend) -> &'static dyn Backend {
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let device = backend.device();
    if let Some(found) = known.iter().find(|p| p.0.device() == device) {
        return *found;
    }
    // One for each device, for the life of the process.
    let new: &'static Profiled = Box::leak(Box::new(Profiled(backend)));
    known.push(new);
    rushlight_profile::set_memory_probe(memory);
    new
}

/// Memory in use on the host, and on all accelerators that were used while the profiler was on.
fn memory() -> [MemoryReading; 2] {
    let mut out = [MemoryReading::default(); 2];
    let known: Vec<_> = KNOWN.lock().unwrap_or_else(|e| e.into_inner()).clone();
    for engine in known {
        if let Some(allocator) = engine.0.allocator() {
            let stats = allocator.stats();
            let reading = &mut out[usize::from(!engine.0.device().is_cpu())];
            reading.allocated += stats.allocated;
            reading.reserved += stats.reserved;
        }
    }
    out
}

/// Makes the CPU's memory known to the profiler before the first op.
pub fn prepare() {
    if let Ok(cpu) = rushlight_engines::backend(Device::Cpu) {
        profiled(cpu);
    }
}

/// A weight whose products are noted.
struct ProfiledWeight {
    weight: Box<dyn PackedWeight>,
    /// Of the tensor that was packed.
    address: usize,
}

impl PackedWeight for ProfiledWeight {
    fn multiply(&self, a: View, out: View, beta: f64) -> Result<()> {
        let columns = out.shape().last().copied().unwrap_or(0);
        let flops = || 2 * a.layout.numel() as u64 * columns as u64;
        let _span = span_of(|| "rushlight::matmul", flops, |d| a.note(d));
        count_at(flops, [a.storage.ptr() as usize, self.address]);
        self.weight.multiply(a, out, beta)
    }
}

impl Backend for Profiled {
    fn device(&self) -> Device {
        self.0.device()
    }

    fn alloc(&'static self, bytes: usize) -> Result<Storage> {
        self.0.alloc(bytes)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(ptr, bytes) }
    }

    fn upload(&self, src: &[u8], dst: &Storage, offset: usize) -> Result<()> {
        let _span = span_of(|| "rushlight::upload", || 0, |_| ());
        self.0.upload(src, dst, offset)
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [u8]) -> Result<()> {
        let _span = span_of(|| "rushlight::download", || 0, |_| ());
        self.0.download(src, offset, dst)
    }

    fn synchronize(&self) -> Result<()> {
        let _span = span_of(|| "rushlight::synchronize", || 0, |_| ());
        self.0.synchronize()
    }

    fn features(&self) -> Features {
        self.0.features()
    }

    fn allocator(&self) -> Option<&dyn CachingAllocator> {
        self.0.allocator()
    }

    fn streams(&self) -> Option<&dyn Streams> {
        self.0.streams()
    }

    fn capture(&self) -> Option<&dyn Capture> {
        self.0.capture()
    }

    fn collectives(&self) -> Option<&dyn Collectives> {
        self.0.collectives()
    }

    unsafe fn upload_pinned(&self, src: *const u8, bytes: usize, dst: &Storage, offset: usize) -> Result<()> {
        let _span = span_of(|| "rushlight::upload_pinned", || 0, |_| ());
        // SAFETY: the caller's promise.
        unsafe { self.0.upload_pinned(src, bytes, dst, offset) }
    }

    fn copy_from_peer(&self, src: &Storage, src_offset: usize, dst: &Storage, bytes: usize) -> Result<bool> {
        let _span = span_of(|| "rushlight::copy_from_peer", || 0, |_| ());
        self.0.copy_from_peer(src, src_offset, dst, bytes)
    }

    fn fill(&self, value: Scalar, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::fill", || 0, |_| ());
        self.0.fill(value, out)
    }

    fn arange(&self, start: Scalar, step: Scalar, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::arange", || 0, |_| ());
        self.0.arange(start, step, out)
    }

    fn copy(&self, src: View, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::copy", || 0, |d| src.note(d));
        self.0.copy(src, out)
    }

    fn random(&self, distribution: Distribution, stream: Philox, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::random", || 0, |_| ());
        self.0.random(distribution, stream, out)
    }

    fn pointwise(&self, op: Pointwise, compute: DType, inputs: &[Operand], params: &[f64], out: View) -> Result<()> {
        let _span = span_of(|| op_name(op), || 0, |d| inputs.note(d));
        self.0.pointwise(op, compute, inputs, params, out)
    }

    fn pointwise_grad(
        &self,
        op: Pointwise,
        wrt: usize,
        compute: DType,
        values: [Option<Operand>; 5],
        params: &[f64],
        out: View,
    ) -> Result<()> {
        let _span = span_of(|| op_grad_name(op), || 0, |_| ());
        self.0.pointwise_grad(op, wrt, compute, values, params, out)
    }

    fn select(&self, condition: View, a: Operand, b: Operand, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::select", || 0, |d| (condition, a, b).note(d));
        self.0.select(condition, a, b, out)
    }

    fn dropout(&self, x: View, p: f64, stream: Philox, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::dropout", || 0, |d| x.note(d));
        self.0.dropout(x, p, stream, out)
    }

    fn reduce(&self, op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()> {
        let _span = span_of(|| family("reduce", &op), || 0, |d| x.note(d));
        self.0.reduce(op, x, reduced, out)
    }

    fn arg_reduce(&self, op: ArgReduce, x: View, dim: usize, values: View, indices: View) -> Result<()> {
        let _span = span_of(|| family("arg_reduce", &op), || 0, |d| x.note(d));
        self.0.arg_reduce(op, x, dim, values, indices)
    }

    fn scan(&self, op: Scan, x: View, dim: usize, out: View, indices: Option<View>) -> Result<()> {
        let _span = span_of(|| family("scan", &op), || 0, |d| x.note(d));
        self.0.scan(op, x, dim, out, indices)
    }

    fn sort(&self, x: View, dim: usize, descending: bool, values: View, indices: View) -> Result<()> {
        let _span = span_of(|| "rushlight::sort", || 0, |d| x.note(d));
        self.0.sort(x, dim, descending, values, indices)
    }

    fn topk(&self, x: View, dim: usize, largest: bool, values: View, indices: View) -> Result<()> {
        let _span = span_of(|| "rushlight::topk", || 0, |d| x.note(d));
        self.0.topk(x, dim, largest, values, indices)
    }

    fn searchsorted(&self, sorted: View, values: View, right: bool, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::searchsorted", || 0, |d| (sorted, values).note(d));
        self.0.searchsorted(sorted, values, right, out)
    }

    fn kth(&self, x: View, dim: usize, rank: Rank, values: View, indices: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::kth", || 0, |d| x.note(d));
        self.0.kth(x, dim, rank, values, indices)
    }

    fn histogram(&self, x: View, low: f64, high: f64, out: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::histogram", || 0, |d| x.note(d));
        self.0.histogram(x, low, high, out)
    }

    fn permutation(&self, stream: Philox, out: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::permutation", || 0, |d| out.note(d));
        self.0.permutation(stream, out)
    }

    fn euclidean(&self, a: View, b: View, out: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::euclidean", || 0, |d| (a, b).note(d));
        self.0.euclidean(a, b, out)
    }

    fn int_range(&self, x: View) -> Result<Option<[i64; 2]>> {
        let _span = span_of(|| "rushlight::int_range", || 0, |d| x.note(d));
        self.0.int_range(x)
    }

    fn pad_from(&self, x: View, sources: &[Vec<usize>], out: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::pad_from", || 0, |d| x.note(d));
        self.0.pad_from(x, sources, out)
    }

    fn flip(&self, x: View, flipped: &[bool], out: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::flip", || 0, |d| x.note(d));
        self.0.flip(x, flipped, out)
    }

    fn resample(&self, spec: &Resample, x: View, y: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::resample", || 0, |d| x.note(d));
        self.0.resample(spec, x, y)
    }

    fn resample_backward(&self, spec: &Resample, dy: View, dx: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::resample_backward", || 0, |d| dy.note(d));
        self.0.resample_backward(spec, dy, dx)
    }

    fn distances(&self, p: f64, a: View, b: View, out: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::distances", || 0, |d| (a, b).note(d));
        self.0.distances(p, a, b, out)
    }

    fn index(&self, x: View, indices: &[View], out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::index", || 0, |d| (x, indices).note(d));
        self.0.index(x, indices, out)
    }

    fn index_put(&self, indices: &[View], values: View, accumulate: bool, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::index_put", || 0, |d| (indices, values).note(d));
        self.0.index_put(indices, values, accumulate, out)
    }

    fn refuses_negative_indices(&self) -> bool {
        self.0.refuses_negative_indices()
    }

    fn gather(&self, x: View, dim: usize, index: View, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::gather", || 0, |d| (x, index).note(d));
        self.0.gather(x, dim, index, out)
    }

    fn scatter(&self, op: Scatter, dim: usize, index: View, src: Operand, out: View) -> Result<()> {
        let _span = span_of(|| family("scatter", &op), || 0, |d| (index, src).note(d));
        self.0.scatter(op, dim, index, src, out)
    }

    fn count_nonzero(&self, x: View) -> Result<usize> {
        let _span = span_of(|| "rushlight::count_nonzero", || 0, |d| x.note(d));
        self.0.count_nonzero(x)
    }

    fn nonzero(&self, x: View, out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::nonzero", || 0, |d| x.note(d));
        self.0.nonzero(x, out)
    }

    fn matmul(&self, spec: &MatMul) -> Result<()> {
        let _span = span_of(|| "rushlight::matmul", || product_flops(spec), |d| (spec.a, spec.b, spec.bias).note(d));
        count(|| product_flops(spec), &[spec.a, spec.b]);
        self.0.matmul(spec)
    }

    fn matmul_gelu(&self, spec: &MatMul, kept: View) -> Result<bool> {
        let _span =
            span_of(|| "rushlight::matmul_gelu", || product_flops(spec), |d| (spec.a, spec.b, spec.bias).note(d));
        let done = self.0.matmul_gelu(spec, kept)?;
        if done {
            count(|| product_flops(spec), &[spec.a, spec.b]);
        }
        Ok(done)
    }

    fn matmul_gelu_backward(&self, spec: &MatMul, kept: View, sums: View) -> Result<bool> {
        let _span = span_of(
            || "rushlight::matmul_gelu_backward",
            || product_flops(spec),
            |d| (spec.a, spec.b, spec.bias, kept).note(d),
        );
        let done = self.0.matmul_gelu_backward(spec, kept, sums)?;
        if done {
            count(|| product_flops(spec), &[spec.a, spec.b]);
        }
        Ok(done)
    }

    fn conv_forward(&self, spec: &Conv, x: View, w: View, bias: Option<View>, y: View) -> Result<()> {
        let _span = span_of(|| "rushlight::conv_forward", || conv_flops(spec), |d| (x, w, bias).note(d));
        count(|| conv_flops(spec), &[x, w]);
        self.0.conv_forward(spec, x, w, bias, y)
    }

    fn conv_backward_input(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<()> {
        let _span = span_of(|| "rushlight::conv_backward_input", || conv_flops(spec), |d| (dy, w).note(d));
        count(|| conv_flops(spec), &[dy, w]);
        self.0.conv_backward_input(spec, dy, w, dx)
    }

    fn conv_backward_input_add(&self, spec: &Conv, dy: View, w: View, dx: View) -> Result<bool> {
        let _span = span_of(
            || "rushlight::conv_backward_input",
            || conv_flops(spec),
            |d| {
                dy.note(d);
                w.note(d)
            },
        );
        self.0.conv_backward_input_add(spec, dy, w, dx)
    }

    fn conv_backward_weight(&self, spec: &Conv, x: View, dy: View, dw: View) -> Result<()> {
        let _span = span_of(|| "rushlight::conv_backward_weight", || conv_flops(spec), |d| (x, dy).note(d));
        count(|| conv_flops(spec), &[x, dy]);
        self.0.conv_backward_weight(spec, x, dy, dw)
    }

    fn max_pool(&self, spec: &Pool, x: View, y: View, indices: View) -> Result<()> {
        let _span = span_of(|| "rushlight::max_pool", || 0, |d| x.note(d));
        self.0.max_pool(spec, x, y, indices)
    }

    fn max_pool_backward(&self, spec: &Pool, dy: View, indices: View, dx: View) -> Result<()> {
        let _span = span_of(|| "rushlight::max_pool_backward", || 0, |d| (dy, indices).note(d));
        self.0.max_pool_backward(spec, dy, indices, dx)
    }

    fn avg_pool(&self, spec: &Pool, x: View, y: View) -> Result<()> {
        let _span = span_of(|| "rushlight::avg_pool", || 0, |d| x.note(d));
        self.0.avg_pool(spec, x, y)
    }

    fn avg_pool_backward(&self, spec: &Pool, dy: View, dx: View) -> Result<()> {
        let _span = span_of(|| "rushlight::avg_pool_backward", || 0, |d| dy.note(d));
        self.0.avg_pool_backward(spec, dy, dx)
    }

    fn softmax(&self, log: bool, dims: [usize; 3], x: View, y: View) -> Result<()> {
        let _span = span_of(|| "rushlight::softmax", || 0, |d| x.note(d));
        self.0.softmax(log, dims, x, y)
    }

    fn softmax_backward(&self, log: bool, dims: [usize; 3], dy: View, y: View, dx: View) -> Result<()> {
        let _span = span_of(|| "rushlight::softmax_backward", || 0, |d| dy.note(d));
        self.0.softmax_backward(log, dims, dy, y, dx)
    }

    fn row_norm(
        &self,
        spec: &RowNorm,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        y: View,
        low: Option<View>,
        mean: View,
        rstd: View,
    ) -> Result<()> {
        let _span = span_of(|| "rushlight::row_norm", || 0, |d| (x, weight, bias).note(d));
        self.0.row_norm(spec, x, weight, bias, y, low, mean, rstd)
    }

    fn row_norm_backward(
        &self,
        spec: &RowNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        mean: View,
        rstd: View,
        so_far: Option<View>,
        dx: Option<View>,
        low: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        let _span = span_of(|| "rushlight::row_norm_backward", || 0, |d| (dy, x, weight, mean, rstd, so_far).note(d));
        self.0.row_norm_backward(spec, dy, x, weight, mean, rstd, so_far, dx, low, dweight, dbias)
    }

    fn batch_norm(
        &self,
        spec: &BatchNorm,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        y: View,
        mean: View,
        rstd: View,
    ) -> Result<()> {
        let _span = span_of(|| "rushlight::batch_norm", || 0, |d| (x, weight, bias).note(d));
        self.0.batch_norm(spec, x, weight, bias, y, mean, rstd)
    }

    fn batch_norm_backward(
        &self,
        spec: &BatchNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        mean: View,
        rstd: View,
        dx: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        let _span = span_of(|| "rushlight::batch_norm_backward", || 0, |d| (dy, x, weight, mean, rstd).note(d));
        self.0.batch_norm_backward(spec, dy, x, weight, mean, rstd, dx, dweight, dbias)
    }

    fn batch_norm_relu_backward(
        &self,
        spec: &BatchNorm,
        dy: View,
        x: View,
        weight: Option<View>,
        bias: Option<View>,
        mean: View,
        rstd: View,
        dx: Option<View>,
        dweight: Option<View>,
        dbias: Option<View>,
    ) -> Result<()> {
        let _span = span_of(
            || "rushlight::batch_norm_relu_backward",
            || 0,
            |d| {
                dy.note(d);
                x.note(d);
                weight.note(d);
                bias.note(d);
                mean.note(d);
                rstd.note(d)
            },
        );
        self.0.batch_norm_relu_backward(spec, dy, x, weight, bias, mean, rstd, dx, dweight, dbias)
    }

    fn batch_norm_running(
        &self,
        spec: &BatchNorm,
        momentum: f64,
        mean: View,
        rstd: View,
        running: [View; 2],
    ) -> Result<bool> {
        self.0.batch_norm_running(spec, momentum, mean, rstd, running)
    }

    fn cross_entropy(&self, spec: &CrossEntropy, loss: View, row_weight: View, lse: View) -> Result<()> {
        let _span = span_of(|| "rushlight::cross_entropy", || 0, |d| (spec.logits, spec.target, spec.weight).note(d));
        self.0.cross_entropy(spec, loss, row_weight, lse)
    }

    fn cross_entropy_backward(&self, spec: &CrossEntropy, lse: View, dloss: View, dlogits: View) -> Result<()> {
        let _span = span_of(
            || "rushlight::cross_entropy_backward",
            || 0,
            |d| (spec.logits, spec.target, spec.weight, lse, dloss).note(d),
        );
        self.0.cross_entropy_backward(spec, lse, dloss, dlogits)
    }

    fn attention(&self, spec: &Attention, out: View, lse: View) -> Result<()> {
        let _span = span_of(
            || "rushlight::attention",
            || attention_flops(spec),
            |d| (spec.q, spec.k, spec.v, spec.mask).note(d),
        );
        count(|| attention_flops(spec), &[spec.q, spec.k, spec.v]);
        self.0.attention(spec, out, lse)
    }

    fn attention_backward(
        &self,
        spec: &Attention,
        out: View,
        lse: View,
        dout: View,
        dq: View,
        dk: View,
        dv: View,
    ) -> Result<()> {
        let _span = span_of(
            || "rushlight::attention_backward",
            || attention_flops(spec) * 5 / 2,
            |d| (spec.q, spec.k, spec.v, spec.mask, out, lse, dout).note(d),
        );
        count(|| attention_flops(spec) * 5 / 2, &[spec.q, spec.k, spec.v]);
        self.0.attention_backward(spec, out, lse, dout, dq, dk, dv)
    }

    fn pack_weight(&self, weight: View, rows: usize) -> Result<Option<Box<dyn PackedWeight>>> {
        let _span = span_of(|| "rushlight::pack_weight", || 0, |d| weight.note(d));
        let packed = self.0.pack_weight(weight, rows)?;
        let address = weight.storage.ptr() as usize;
        Ok(packed.map(|weight| Box::new(ProfiledWeight { weight, address }) as Box<dyn PackedWeight>))
    }

    fn lstm_cell(&self, gates: View, before: View, c: View, h: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::lstm_cell", || 0, |d| (gates, before).note(d));
        self.0.lstm_cell(gates, before, c, h)
    }

    fn lstm_cell_backward(&self, step: &LstmStep, dc: View, dgates: View) -> Result<bool> {
        let _span = span_of(|| "rushlight::lstm_cell_backward", || 0, |d| dc.note(d));
        self.0.lstm_cell_backward(step, dc, dgates)
    }

    fn update(&self, updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
        let _span = span_of(|| "rushlight::update", || 0, |_| ());
        self.0.update(updates, grad_scale)
    }

    fn foreach_norm(&self, p: f64, xs: &[View], out: View) -> Result<()> {
        let _span = span_of(|| "rushlight::foreach_norm", || 0, |d| xs.note(d));
        self.0.foreach_norm(p, xs, out)
    }

    fn foreach_scale(&self, factor: Option<Operand>, xs: &[View], found_inf: Option<View>) -> Result<()> {
        let _span = span_of(|| "rushlight::foreach_scale", || 0, |d| (factor, xs).note(d));
        self.0.foreach_scale(factor, xs, found_inf)
    }

    fn foreach_copy(&self, from: &[View], to: &[View]) -> Result<()> {
        let _span = span_of(|| "rushlight::foreach_copy", || 0, |d| from.note(d));
        self.0.foreach_copy(from, to)
    }

    fn linalg(&self, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        let _span = span_of(|| family("linalg", &op), || 0, |d| inputs.note(d));
        self.0.linalg(op, inputs, outputs)
    }
}

#[cfg(test)]
mod tests {
    /// A method that is not handed on would quietly run its default body while the profiler is on.
    #[test]
    fn every_method_is_handed_on() {
        let methods = |text: &str| -> Vec<String> {
            let names =
                text.lines().filter_map(|l| l.strip_prefix("    fn ").or_else(|| l.strip_prefix("    unsafe fn ")));
            names.filter_map(|l| l.split('(').next()).map(String::from).collect()
        };
        let text = include_str!("../../../core/src/backend/mod.rs");
        let declared = methods(text.split("pub trait Backend:").nth(1).expect("the trait"));
        let own = include_str!("engine.rs").split("impl Backend for Profiled").nth(1).expect("the implementation");
        let handed_on = methods(own.split("#[cfg(test)]").next().expect("the code"));
        let missing: Vec<_> = declared.iter().filter(|name| !handed_on.contains(name)).collect();
        assert!(declared.len() > 40 && missing.is_empty(), "profile/engine.rs does not forward {missing:?}");
    }
}
