//! Peak rates of a device, measured by simple kernels (`kernels/limits.cl`), for comparison in benchmarks.

use crate::device::Xpu;
use crate::program::{At, Defines, Family, Key, run};
use rushlight_core::Result;
use std::time::Instant;

/// Peak rates of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Additions and multiplications of `f32` per second.
    pub flops: f64,
    /// Bytes read and written per second by a copy larger than the caches.
    pub bandwidth: f64,
}

/// Median seconds of the runs within 20 ms, of at least three.
fn typical(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let (mut times, begin) = (Vec::new(), Instant::now());
    while times.len() < 3 || begin.elapsed().as_secs_f64() < 0.02 {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

impl Xpu {
    pub fn limits(&self) -> Result<Limits> {
        let abilities = self.driver.abilities();
        let (cpu, units) = (abilities.is_cpu, abilities.compute_units.max(1));
        let (lanes, items) = if cpu { (16, 1) } else { (1, 256) };
        let defines = |name: &str| {
            let vector = if cpu { "float16" } else { "float" };
            Defines::default().define(name, 1).define("V", vector).define("LANES", lanes).define("CHAINS", CHAINS)
        };
        const CHAINS: usize = 16;
        let groups = if cpu { 8 * units } else { 64 * units };
        let steps = 1usize << 16;
        let out = self.scratch(groups * items * lanes * 4)?;
        let kernel = self.kernel(Key::new(Family::Limits, "fma_peak", []), || defines("FMA"))?;
        let compute = || {
            run!(self, kernel, [groups, 1, 1], [items, 1, 1]; At(out.address), 0.5f32, steps)?;
            self.synchronize()
        };
        compute()?;
        let seconds = typical(compute)?;
        let flops = (2 * CHAINS * lanes * steps * groups * items) as f64 / seconds;
        let (bytes, each) = (128usize << 20, 64);
        let (from, to) = (self.scratch(bytes)?, self.scratch(bytes)?);
        let kernel = self.kernel(Key::new(Family::Limits, "copy_peak", []), || defines("COPY"))?;
        let copy = || {
            let groups = bytes / (each * items * lanes * 4);
            run!(self, kernel, [groups, 1, 1], [items, 1, 1]; At(from.address), At(to.address), each)?;
            self.synchronize()
        };
        copy()?;
        let seconds = typical(copy)?;
        Ok(Limits { flops, bandwidth: 2.0 * bytes as f64 / seconds })
    }
}
