//! Words that users type: the names of environment variables, and what a misspelt one may have meant.

/// Every variable that a part of Rushlight reads, in alphabetical order, without those of tests
/// (`RUSHLIGHT_TEST_…`).
pub const VARIABLES: &[&str] = &[
    "RUSHLIGHT_ALERT",
    "RUSHLIGHT_ALERT_RUN",
    "RUSHLIGHT_ALERT_TEXT",
    "RUSHLIGHT_ALLOW_NAT",
    "RUSHLIGHT_ALL_KERNELS",
    "RUSHLIGHT_BACKTRACE",
    "RUSHLIGHT_BENCH_FILTER",
    "RUSHLIGHT_BISECT",
    "RUSHLIGHT_CHROMIUM",
    "RUSHLIGHT_CONSOLE",
    "RUSHLIGHT_CPU_AMX",
    "RUSHLIGHT_CPU_COMPOSED",
    "RUSHLIGHT_CPU_ISA",
    "RUSHLIGHT_CUDA_CACHE",
    "RUSHLIGHT_CUDA_CONV_TF32",
    "RUSHLIGHT_CUDA_CUDNN",
    "RUSHLIGHT_CUDA_OVERLAP",
    "RUSHLIGHT_CUDA_PATH",
    "RUSHLIGHT_CUDA_SOLVER",
    "RUSHLIGHT_CUDA_SYNC",
    "RUSHLIGHT_CUDA_TF32",
    "RUSHLIGHT_DEVICE",
    "RUSHLIGHT_DEVICE_COLLECTIVES",
    "RUSHLIGHT_ELASTIC_BATCH",
    "RUSHLIGHT_EXCHANGE",
    "RUSHLIGHT_FLIGHT_RECORD",
    "RUSHLIGHT_FUSE",
    "RUSHLIGHT_GPU_ENGINE",
    "RUSHLIGHT_HIP_MIOPEN",
    "RUSHLIGHT_HIP_PATH",
    "RUSHLIGHT_HIP_TEST_INSIDE",
    "RUSHLIGHT_JOB_SECRET",
    "RUSHLIGHT_KILLS",
    "RUSHLIGHT_LIGHTNING_ACCELERATOR",
    "RUSHLIGHT_LIGHTNING_PACKAGE",
    "RUSHLIGHT_LINALG_INNER_TEST",
    "RUSHLIGHT_LOCAL_ADDR",
    "RUSHLIGHT_LOG",
    "RUSHLIGHT_LOG_GRAPH",
    "RUSHLIGHT_MEASURE",
    "RUSHLIGHT_MONITOR_PATH",
    "RUSHLIGHT_MPI_CHUNK",
    "RUSHLIGHT_MPI_LIBRARY",
    "RUSHLIGHT_NUM_THREADS",
    "RUSHLIGHT_OPENCL_PATH",
    "RUSHLIGHT_PLAN",
    "RUSHLIGHT_SHARED_FLAGS",
    "RUSHLIGHT_STORE_PATIENCE",
    "RUSHLIGHT_TENSORBOARD_PYTHON",
    "RUSHLIGHT_TERMINAL",
    "RUSHLIGHT_UI_PICTURES",
    "RUSHLIGHT_UI_TOKEN",
    "RUSHLIGHT_WORLD_SIZE",
    "RUSHLIGHT_WRITE",
    "RUSHLIGHT_XPU_CACHE",
    "RUSHLIGHT_XPU_GPU_FORMS",
    "RUSHLIGHT_XPU_PLATFORM",
    "RUSHLIGHT_XPU_SHOW_SOURCE",
    "RUSHLIGHT_XPU_SOURCES",
    "RUSHLIGHT_XPU_SYNC",
    "RUSHLIGHT_XPU_TILES",
    "RUSHLIGHT_XPU_XMX",
];

/// A message for each variable of this process that begins as ours do and that nothing reads.
pub fn unread_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut unread: Vec<String> = names.filter(|name| is_unread(name)).collect();
    unread.sort();
    unread
        .iter()
        .map(|name| match nearest_variable(name) {
            Some(known) => format!("nothing reads the variable {name}; did you mean {known}?"),
            None => format!("nothing reads the variable {name}"),
        })
        .collect()
}

/// The variable that a misspelt one is most like. What all have in common does not count.
fn nearest_variable(name: &str) -> Option<&'static str> {
    let own = |name: &'static str| name.trim_start_matches("RUSHLIGHT_");
    let found = nearest(name.trim_start_matches("RUSHLIGHT_"), VARIABLES.iter().map(|known| own(known)))?;
    VARIABLES.iter().copied().find(|known| own(known) == found)
}

fn is_unread(name: &str) -> bool {
    name.starts_with("RUSHLIGHT_") && !name.starts_with("RUSHLIGHT_TEST_") && !VARIABLES.contains(&name)
}

/// The known word that a misspelt one is most like, if any is: few letters differ, or one begins with the other.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('_', "-");
    let trimmed = word.trim_start_matches('-');
    let distances = known.into_iter().filter_map(|other| {
        let plain = other.to_lowercase().replace('_', "-");
        let candidate = plain.trim_start_matches('-');
        let begins = trimmed.len() >= 3 && (candidate.starts_with(trimmed) || trimmed.starts_with(candidate));
        let distance = distance(trimmed, candidate);
        let close = distance * 3 <= trimmed.len().max(candidate.len());
        (!candidate.is_empty() && (close || begins)).then_some((distance, other))
    });
    distances.min_by_key(|(distance, _)| *distance).map(|(_, other)| other)
}

/// ` (did you mean --nodes?)`, or nothing: the option among those that a text of usage names.
pub fn did_you_mean(option: &str, usage: &str) -> String {
    let name = option.split('=').next().unwrap_or_default();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let known = usage.split(|c: char| !is_part(c)).filter(|word| word.starts_with("--") && word.len() > 2);
    match nearest(name, known).filter(|_| name.starts_with("--")) {
        Some(known) => format!(" (did you mean {known}?)"),
        None => String::new(),
    }
}

/// Letters to insert, remove, replace or exchange with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_meant() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("prot", "port"), 1);
        let known = ["--port", "--host", "--no-token", "--nproc-per-node"];
        assert_eq!(nearest("--prot", known), Some("--port"));
        assert_eq!(nearest("--nproc_per_nodes", known), Some("--nproc-per-node"));
        assert_eq!(nearest("--nproc", known), Some("--nproc-per-node"));
        assert_eq!(nearest("--frobnicate", known), None);
        assert_eq!(did_you_mean("--hots=1", "  --host ADDR  Address\n  --port P"), " (did you mean --host?)");
        assert_eq!(did_you_mean("x", "--host"), "");
    }

    #[test]
    fn variables_that_nothing_reads() {
        assert!(VARIABLES.is_sorted());
        assert!(is_unread("RUSHLIGHT_NUM_THREAD") && !is_unread("RUSHLIGHT_TEST_DEVICE") && !is_unread("PATH"));
        assert_eq!(nearest_variable("RUSHLIGHT_NUM_THREAD"), Some("RUSHLIGHT_NUM_THREADS"));
        assert_eq!(nearest_variable("RUSHLIGHT_FROBNICATE"), None);
    }
}
