//! Finding run directories and their files.

use super::checkpoints::{Found, MAX_CHECKPOINTS, is_checkpoint};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bounds for a directory walk: a mistyped directory such as `/` must not be read completely.
const MAX_DEPTH: usize = 8;
const MAX_ENTRIES: usize = 200_000;
const MAX_RUNS: usize = 2_000;
const MAX_FILES: usize = 1_000;

/// The files of a run's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// TensorBoard's event files, in the order of their names, which begin with a time.
    pub events: Vec<PathBuf>,
    /// `metrics.jsonl`.
    pub json_lines: Option<PathBuf>,
    /// `metrics.csv`.
    pub csv: Option<PathBuf>,
    /// `config.json`, `environment.json`.
    pub config: Option<PathBuf>,
    /// `environment.json`.
    pub environment: Option<PathBuf>,
    /// `status.json`.
    pub status: Option<PathBuf>,
    /// `notes.json`.
    pub notes: Option<PathBuf>,
    /// Lightning's `hparams.yaml`.
    pub hparams: Option<PathBuf>,
    /// `system/rank-N.jsonl` by rank.
    pub ranks: BTreeMap<u32, PathBuf>,
    /// Logs by name.
    pub logs: BTreeMap<String, PathBuf>,
    /// Exported models by name.
    pub models: BTreeMap<String, PathBuf>,
    /// Checkpoints.
    pub checkpoints: Vec<Found>,
}

impl Files {
    /// Whether the directory is a run's.
    fn is_run(&self) -> bool {
        !self.events.is_empty() || self.json_lines.is_some() || self.csv.is_some() || self.config.is_some()
    }
}

/// Runs below a directory by their names, and whether there were more than the limit. A file is an exported model: a
/// run of nothing else.
pub fn scan(root: &Path) -> (BTreeMap<String, Files>, bool) {
    if let (true, Some(name)) = (root.is_file(), root.file_name()) {
        let models = BTreeMap::from([(name.to_string_lossy().into_owned(), root.to_owned())]);
        return (BTreeMap::from([(".".to_owned(), Files { models, ..Files::default() })]), false);
    }
    let mut walk = Walk { root: root.canonicalize().unwrap_or_else(|_| root.to_owned()), ..Walk::default() };
    let top = walk.root.clone();
    walk.directory(&top, "", 0);
    (walk.found, walk.cut)
}

#[derive(Default)]
struct Walk {
    /// Links are followed if they point below it.
    root: PathBuf,
    found: BTreeMap<String, Files>,
    entries: usize,
    cut: bool,
}

impl Walk {
    /// The entries of a directory with their names. Links that point out of the root, or to a directory (which could be
    /// a parent), are skipped.
    fn entries(&mut self, path: &Path) -> Vec<(String, PathBuf, bool)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                self.cut = true;
                break;
            }
            let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            let Ok(mut kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                let inside = path.canonicalize().is_ok_and(|target| target.starts_with(&self.root));
                let Ok(target) = std::fs::metadata(&path) else { continue };
                if !inside || target.is_dir() {
                    continue;
                }
                kind = target.file_type();
            }
            // Pipes and devices would block a reader.
            if kind.is_dir() || kind.is_file() {
                found.push((name, path, kind.is_dir()));
            }
        }
        found.sort();
        found
    }

    /// The files below a run's `logs`: its own, and those of `rushlight run --log-dir` (`attempt_N/RANK/stdout.log`).
    fn logs(&mut self, name: &str, path: &Path, logs: &mut BTreeMap<String, PathBuf>, depth: usize) {
        for (file, path, is_directory) in self.entries(path) {
            let name = format!("{name}/{file}");
            if !is_directory && logs.len() < MAX_FILES {
                logs.insert(name, path);
            } else if is_directory && depth < 3 {
                self.logs(&name, &path, logs, depth + 1);
            }
        }
    }

    /// The checkpoints of a directory: files, or directories of shards, which a manifest completes.
    fn checkpoints(&mut self, folder: &str, path: &Path, checkpoints: &mut Vec<Found>) {
        for (file, path, is_directory) in self.entries(path) {
            if !is_checkpoint(&file, is_directory) || checkpoints.len() >= MAX_CHECKPOINTS {
                continue;
            }
            let parts = if is_directory { self.entries(&path) } else { Vec::new() };
            let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
            let size = if is_directory { parts.iter().map(|(_, part, _)| bytes(part)).sum() } else { bytes(&path) };
            let saved = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
            checkpoints.push(Found { name: format!("{folder}/{file}"), path, saved, bytes: size });
        }
    }

    fn directory(&mut self, path: &Path, name: &str, depth: usize) {
        let mut files = Files::default();
        let mut below = Vec::new();
        for (entry, path, is_directory) in self.entries(path) {
            match (entry.as_str(), is_directory) {
                (".git" | "node_modules" | "target" | "__pycache__", true) => {}
                (folder, true) if folder == "checkpoints" || folder.starts_with("checkpoints-") => {
                    self.checkpoints(folder, &path, &mut files.checkpoints);
                }
                ("system", true) => {
                    for (file, path, is_directory) in self.entries(&path) {
                        let rank = file.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".jsonl"));
                        if let (Some(Ok(rank)), false) = (rank.map(str::parse), is_directory) {
                            files.ranks.insert(rank, path);
                        }
                    }
                    below.push((entry, path));
                }
                (_, true) => below.push((entry, path)),
                ("metrics.jsonl", false) => files.json_lines = Some(path),
                ("metrics.csv", false) => files.csv = Some(path),
                ("config.json", false) => files.config = Some(path),
                ("environment.json", false) => files.environment = Some(path),
                ("status.json", false) => files.status = Some(path),
                ("notes.json", false) => files.notes = Some(path),
                ("hparams.yaml", false) => files.hparams = Some(path),
                (name, false)
                    if name.contains(".tfevents.")
                        && !name.ends_with(".profile-empty")
                        && files.events.len() < MAX_FILES =>
                {
                    files.events.push(path);
                }
                (name, false) if name.ends_with(".log") || name.ends_with(".out") || name.ends_with(".err") => {
                    files.logs.insert(entry.clone(), path);
                }
                (name, false) if name.ends_with(".rlm") && files.models.len() < MAX_FILES => {
                    files.models.insert(entry.clone(), path);
                }
                _ => {}
            }
        }
        if files.is_run() {
            // Logs of its ranks are the run's.
            if let Some((_, logs)) = below.iter().find(|(entry, _)| entry == "logs") {
                let logs = logs.clone();
                self.logs("logs", &logs, &mut files.logs, 0);
            }
            if self.found.len() >= MAX_RUNS {
                self.cut = true;
                return;
            }
            self.found.insert(if name.is_empty() { ".".to_owned() } else { name.to_owned() }, files);
        }
        for (entry, path) in below {
            if depth >= MAX_DEPTH || self.entries > MAX_ENTRIES {
                self.cut = true;
                return;
            }
            let name = if name.is_empty() { entry } else { format!("{name}/{entry}") };
            self.directory(&path, &name, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_and_links_do_not_lead_out() {
        let root = std::env::temp_dir().join(format!("rushlight-scan-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let file = |name: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        file("runs/a/metrics.jsonl");
        file("runs/a/logs/rank-0.log");
        file("runs/a/best.rlm");
        file("runs/a/logs/attempt_0/1/stderr.log");
        file("runs/a/checkpoints/checkpoint-12.pt");
        file("runs/a/checkpoints/checkpoint-13/manifest.json");
        file("runs/a/checkpoints/other.txt");
        file("runs/a/checkpoints-2/last.ckpt");
        file("runs/a/system/rank-1.jsonl");
        file("runs/b/deep/events.out.tfevents.1.host.1.0");
        file("secret.log");
        file("empty/nothing.txt");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(root.join("secret.log"), root.join("runs/a/out.log")).unwrap();
            std::os::unix::fs::symlink(&root, root.join("runs/a/loop")).unwrap();
        }
        let (found, cut) = scan(&root.join("runs"));
        assert!(!cut);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b/deep"]);
        assert_eq!(found["a"].logs.keys().collect::<Vec<_>>(), ["logs/attempt_0/1/stderr.log", "logs/rank-0.log"]);
        let checkpoints: Vec<&str> = found["a"].checkpoints.iter().map(|c| c.name.as_str()).collect();
        let wanted = ["checkpoints/checkpoint-12.pt", "checkpoints/checkpoint-13", "checkpoints-2/last.ckpt"];
        assert_eq!((checkpoints, found["a"].checkpoints[1].bytes), (wanted.to_vec(), 1));
        assert_eq!(found["a"].models.keys().collect::<Vec<_>>(), ["best.rlm"]);
        let (one, _) = scan(&root.join("runs/a/best.rlm"));
        assert_eq!(one["."].models["best.rlm"], root.join("runs/a/best.rlm"));
        assert_eq!(found["a"].ranks.len(), 1);
        assert_eq!(found["b/deep"].events.len(), 1);
        std::fs::remove_dir_all(root).unwrap();
    }
}
