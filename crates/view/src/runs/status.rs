//! What has become of a run: whether its process is there, how it ended.

use rushlight_train::process_start;
use serde_json::Value as Json;

/// Seconds without a value after which a process that cannot be seen is gone.
const QUIET_HERE: f64 = 20.0;
/// The same for a process of another machine: its ranks write figures every few seconds.
const QUIET_ELSEWHERE: f64 = 120.0;
/// Seconds since the newest value of a run that says nothing of its state, within which it counts as written to.
const RECENT: f64 = 90.0;

/// The state of a run, in a word for the page: `running`, `finished`, `failed`, `preempted`, `died`, `lost` (of another
/// machine, and silent), `recent` (says nothing of itself, but was just written to) or nothing.
pub fn state(status: &Json, last_time: Option<f64>, now: f64) -> &'static str {
    let text = |name: &str| status.get(name).and_then(Json::as_str).unwrap_or_default();
    let written = [last_time, status.get("time").and_then(Json::as_f64)].into_iter().flatten().fold(0.0, f64::max);
    let quiet = now - written;
    match text("state") {
        "finished" => "finished",
        "failed" => "failed",
        "preempted" => "preempted",
        "running" if text("hostname") == crate::hostname() => match is_there(status) || quiet < QUIET_HERE {
            true => "running",
            false => "died",
        },
        "running" if quiet < QUIET_ELSEWHERE => "running",
        "running" => "lost",
        _ if last_time.is_some() && quiet < RECENT => "recent",
        _ => "",
    }
}

/// Whether the process that wrote a status is there: of the same number, and started at the same time.
fn is_there(status: &Json) -> bool {
    let number = |name: &str| status.get(name).and_then(Json::as_u64);
    let Some(pid) = number("pid") else { return false };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    process_start(&stat).is_some() && process_start(&stat) == number("started")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_run_is_what_its_process_is() {
        let host = crate::hostname();
        let started = process_start(&std::fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let pid = std::process::id();
        let own = json!({"state": "running", "pid": pid, "started": started, "hostname": host, "time": 1000.0});
        assert_eq!(state(&own, Some(1000.0), 9000.0), "running");
        let reused = json!({"state": "running", "pid": pid, "started": started + 1, "hostname": host, "time": 1000.0});
        assert_eq!(state(&reused, Some(1000.0), 1010.0), "running");
        assert_eq!(state(&reused, Some(1000.0), 1030.0), "died");
        let far = json!({"state": "running", "pid": pid, "started": started, "hostname": "other", "time": 1000.0});
        assert_eq!((state(&far, Some(1050.0), 1100.0), state(&far, Some(1050.0), 1200.0)), ("running", "lost"));
        assert_eq!(state(&json!({"state": "failed", "reason": "x"}), Some(1.0), 2.0), "failed");
        assert_eq!(
            (state(&Json::Null, Some(1000.0), 1050.0), state(&Json::Null, Some(1000.0), 2000.0)),
            ("recent", "")
        );
        assert_eq!(state(&Json::Null, None, 10.0), "");
    }
}
