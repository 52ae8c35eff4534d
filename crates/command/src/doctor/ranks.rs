//! Checks of all ranks together: which one differs, and the speed of exchanging and writing data.

use super::Report;
use rushlight_core::{Device, Error, Result};
use rushlight_dist::{Objects, ReduceOp, World};
use rushlight_tensor::Tensor;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Collects every rank's facts on rank 0 and names ranks whose facts differ from most. Facts that count or name
/// something of a single rank are left out by the caller.
pub fn compare(world: &World, facts: &[(String, String)]) -> Result<Vec<String>> {
    let text: Vec<String> = facts.iter().map(|(name, value)| format!("{name}\t{value}")).collect();
    let all = world.all_gather_object(text.join("\n").as_bytes())?;
    let ranks: Vec<BTreeMap<String, String>> = all
        .iter()
        .map(|bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let pairs = text.lines().filter_map(|line| line.split_once('\t'));
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        })
        .collect();
    Ok(odd_ones(&ranks))
}

/// A line for each fact in which ranks differ.
fn odd_ones(ranks: &[BTreeMap<String, String>]) -> Vec<String> {
    let mut names: Vec<&String> = ranks.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let mut by_value: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (rank, facts) in ranks.iter().enumerate() {
            by_value.entry(facts.get(name).map_or("nothing", String::as_str)).or_default().push(rank);
        }
        let Some((usual, most)) = by_value.iter().max_by_key(|(_, ranks)| ranks.len()) else { continue };
        for (value, ranks) in by_value.iter().filter(|(value, _)| value != &usual) {
            let shown: Vec<String> = ranks.iter().take(8).map(usize::to_string).collect();
            let more = if ranks.len() > 8 { ", …" } else { "" };
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            found.push(format!(
                "{noun} {}{more}: {name} is {value}; {} others have {usual}",
                shown.join(", "),
                most.len()
            ));
        }
    }
    found
}

/// Times sums over all ranks, of CPU memory and of their devices. Every rank must call it.
pub fn all_reduce(world: &World, report: &mut Report) -> Result<()> {
    if world.size() == 1 {
        report.measured(
            "all-reduce: one rank exchanges nothing; start by `rushlight run --nproc-per-node N rushlight doctor --all-reduce`"
                .into(),
        );
        return Ok(());
    }
    let mut devices = vec![Device::Cpu];
    devices.extend(Some(world.device()).filter(|device| *device != Device::Cpu));
    // A rank without a device among others with one would leave them waiting.
    let all = world.all_gather_object(&[devices.len() as u8])?;
    if all.iter().any(|count| count != &all[0]) {
        devices.truncate(1);
        report.finding(
            "some ranks have a device and others have none".into(),
            "all-reduce was timed on the CPU only: see --all-ranks",
        );
    }
    for device in devices {
        for (count, name) in [(1usize, "4 B"), (1 << 18, "1 MiB"), (1 << 24, "64 MiB")] {
            let x = Tensor::ones_with([count], device)?;
            world.all_reduce(&x, ReduceOp::Sum)?;
            if x.to_vec::<f32>()?.iter().any(|v| *v != world.size() as f32) {
                return Err(Error::io(format!("all-reduce on {device}: the sum is wrong")));
            }
            let rounds = if count < 1 << 20 { 20 } else { 5 };
            world.barrier()?;
            let start = Instant::now();
            for _ in 0..rounds {
                world.all_reduce(&x, ReduceOp::Max)?;
            }
            // The device may still be at work.
            x.narrow(0, 0, 1)?.to_vec::<f32>()?;
            let seconds = start.elapsed().as_secs_f64() / f64::from(rounds);
            let rate = count as f64 * 4.0 / seconds / 1e9;
            let (size, micros) = (world.size(), seconds * 1e6);
            report.measured(format!(
                "all-reduce of {name} over {size} ranks on {device}: {micros:.1} µs, {rate:.2} GB/s"
            ));
        }
    }
    Ok(())
}

/// Writes a file of 256 MiB, to the disk and not only to memory, and reads it back.
pub fn disk(folder: &Path, rank: usize, report: &mut Report) -> Result<()> {
    const BLOCK: usize = 4 << 20;
    const BLOCKS: usize = 64;
    let path = folder.join(format!("rushlight-doctor-{}-{rank}", std::process::id()));
    let measure = || -> std::io::Result<(f64, f64)> {
        let block: Vec<u8> = (0..BLOCK).map(|i| (i * 31 % 251) as u8).collect();
        let start = Instant::now();
        let mut file = std::fs::File::create(&path)?;
        (0..BLOCKS).try_for_each(|_| file.write_all(&block))?;
        file.sync_all()?;
        let wrote = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let read = std::fs::read(&path)?;
        let seconds = start.elapsed().as_secs_f64();
        match read.chunks(BLOCK).all(|part| part == block) && read.len() == BLOCK * BLOCKS {
            true => Ok((wrote, seconds)),
            false => Err(std::io::Error::other("the data read differs from the data written")),
        }
    };
    let result = measure();
    let _ = std::fs::remove_file(&path);
    let (wrote, read) =
        result.map_err(|e| Error::io(format!("the disk of {} fails the test: {e}", folder.display())))?;
    let rate = |seconds: f64| (BLOCK * BLOCKS) as f64 / seconds / 1e9;
    report.measured(format!(
        "disk of {}, rank {rank}: written at {:.2} GB/s, read back (from memory, where it fits) at {:.2} GB/s",
        folder.display(),
        rate(wrote),
        rate(read)
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_rank_is_named() {
        let rank = |files: &str| BTreeMap::from([("files".to_owned(), files.to_owned()), ("same".into(), "1".into())]);
        let found = odd_ones(&[rank("1024"), rank("9"), rank("1024")]);
        assert_eq!(found, ["rank 1: files is 9; 2 others have 1024"]);
        assert!(odd_ones(&[rank("3"), rank("3")]).is_empty());
    }
}
