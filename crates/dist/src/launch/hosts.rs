//! Host lists: Slurm's compressed form, node files, tasks per node.

use rushlight_core::{Error, Result};

/// Maximum number of hosts: a longer list is a mistake.
const MAX_HOSTS: usize = 1 << 20;

/// Expands Slurm's node lists: `n[1-3,7]`, `rack[0-1]n[08-11],login1`. Leading zeros are kept.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::launch::expand_hosts;
/// assert_eq!(expand_hosts("n[1-2],m[08-10]")?, ["n1", "n2", "m08", "m09", "m10"]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn expand_hosts(list: &str) -> Result<Vec<String>> {
    let mut hosts = Vec::new();
    for item in split_outside_brackets(list) {
        expand_item(item, list, &mut hosts)?;
    }
    Ok(hosts)
}

fn malformed(list: &str, what: &str) -> Error {
    Error::value(format!("launch: the node list {list:?} {what}"))
}

/// The parts between commas that are not inside brackets.
fn split_outside_brackets(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    list.split(move |c: char| {
        depth += (c == '[') as i32 - (c == ']') as i32;
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|item| !item.is_empty())
}

fn expand_item(item: &str, list: &str, hosts: &mut Vec<String>) -> Result<()> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some(open) = rest.find('[') {
        let close =
            rest.find(']').filter(|&close| close > open).ok_or_else(|| malformed(list, "has no closing bracket"))?;
        let numbers = expand_ranges(&rest[open + 1..close], list)?;
        if names.len().saturating_mul(numbers.len()) > MAX_HOSTS {
            return Err(malformed(list, "has more than a million hosts"));
        }
        let prefix = &rest[..open];
        names = names.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{prefix}{n}"))).collect();
        rest = &rest[close + 1..];
    }
    if rest.contains(']') {
        return Err(malformed(list, "has no opening bracket"));
    }
    if hosts.len() + names.len() > MAX_HOSTS {
        return Err(malformed(list, "has more than a million hosts"));
    }
    hosts.extend(names.into_iter().map(|name| name + rest));
    Ok(())
}

/// `1-3,007` as numbers with their leading zeros.
fn expand_ranges(ranges: &str, list: &str) -> Result<Vec<String>> {
    let number =
        |s: &str| s.parse::<usize>().map_err(|_| malformed(list, &format!("has {s:?} where a number should be")));
    let mut out = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(first)?, number(last)?);
        if to < from || to - from >= MAX_HOSTS {
            return Err(malformed(list, &format!("has the range {range}, which is reversed or too long")));
        }
        out.extend((from..=to).map(|n| format!("{n:0width$}", width = first.len())));
    }
    Ok(out)
}

/// Expands Slurm's `SLURM_STEP_TASKS_PER_NODE`: `2(x3),1` is 2, 2, 2, 1.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::launch::expand_tasks;
/// assert_eq!(expand_tasks("2(x3),1")?, [2, 2, 2, 1]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn expand_tasks(list: &str) -> Result<Vec<usize>> {
    let number = |s: &str| {
        s.parse::<usize>().map_err(|_| {
            Error::value(format!("launch: SLURM_STEP_TASKS_PER_NODE={list} should look like 4, 2(x3) or 2(x3),1"))
        })
    };
    let mut tasks = Vec::new();
    for item in list.split(',') {
        let (count, repeat) = match item.trim().split_once("(x") {
            Some((count, repeat)) => (number(count)?, number(repeat.trim_end_matches(')'))?),
            None => (number(item.trim())?, 1),
        };
        if tasks.len() + repeat > MAX_HOSTS {
            return Err(number("too many").unwrap_err());
        }
        tasks.extend(std::iter::repeat_n(count, repeat));
    }
    Ok(tasks)
}

/// The hosts of a node file (`PBS_NODEFILE`, `LSB_DJOB_RANKFILE`): one per line, each once, in order of appearance.
pub fn unique_lines(text: &str) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|host| seen.insert(*host))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_lists() {
        assert_eq!(expand_hosts("n1").unwrap(), ["n1"]);
        assert_eq!(expand_hosts("").unwrap(), Vec::<String>::new());
        assert_eq!(expand_hosts("a[1-2]b[3-4]-hsn").unwrap(), ["a1b3-hsn", "a1b4-hsn", "a2b3-hsn", "a2b4-hsn"]);
        assert_eq!(expand_hosts("frontier[00099-00101]").unwrap(), ["frontier00099", "frontier00100", "frontier00101"]);
        for bad in ["n[1-", "n1]", "n[2-1]", "n[x]", "n[0-9999999999]", "a[0-9999]b[0-9999]", "n[]", "]n["] {
            assert!(expand_hosts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tasks_per_node() {
        assert_eq!(expand_tasks("4,1").unwrap(), [4, 1]);
        assert_eq!(expand_tasks("2(x2)").unwrap(), [2, 2]);
        for bad in ["", "x", "2(x", "2(x99999999999)", "2(x9999999)"] {
            assert!(expand_tasks(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn node_files() {
        assert_eq!(unique_lines("b\na slots=2\nb\n\na\n"), ["b", "a"]);
    }
}
