//! Measures a rendezvous: ranks meet, run one barrier and end.
//!
//! ```text
//! rushlight run --nproc-per-node 64 target/release/examples/meet
//! ```

#[cfg(target_os = "linux")]
fn main() -> rushlight_core::Result<()> {
    use std::io::Write;
    use std::time::Instant;
    let start = Instant::now();
    let world = rushlight_dist::init()?;
    let met = start.elapsed();
    world.barrier()?;
    if world.rank() == 0 {
        let (met, all) = (met.as_secs_f64(), start.elapsed().as_secs_f64());
        // The pipe may be closed.
        let _ = writeln!(
            std::io::stdout(),
            "{} ranks: rank 0 met the others after {met:.3} s, a barrier of all ended after {all:.3} s",
            world.size()
        );
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {}
