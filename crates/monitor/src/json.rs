//! Samples as JSON, for `rushlight top --json` and between the nodes of a job.

use crate::{Gpu, GpuProcess, Host, HostProcess, Sample};
use serde_json::{Value as Json, json};

fn float(json: &Json, name: &str) -> Option<f64> {
    json.get(name)?.as_f64()
}

fn whole(json: &Json, name: &str) -> Option<u64> {
    json.get(name)?.as_u64()
}

fn string(json: &Json, name: &str) -> String {
    json.get(name).and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn list<T>(json: &Json, name: &str, read: impl Fn(&Json) -> T) -> Vec<T> {
    json.get(name).and_then(Json::as_array).into_iter().flatten().map(read).collect()
}

impl Gpu {
    /// As JSON: names say the units.
    pub fn to_json(&self) -> Json {
        let processes: Vec<Json> =
            self.processes.iter().map(|p| json!({"pid": p.pid, "name": p.name, "memory_bytes": p.memory})).collect();
        json!({
            "vendor": self.vendor, "index": self.index, "name": self.name, "uuid": self.uuid,
            "utilisation_percent": self.utilisation, "memory_utilisation_percent": self.memory_utilisation,
            "memory_used_bytes": self.memory_used, "memory_total_bytes": self.memory_total,
            "power_watts": self.power, "power_limit_watts": self.power_limit, "temperature_celsius": self.temperature,
            "clock_mhz": self.clock, "clock_limit_mhz": self.clock_limit, "memory_clock_mhz": self.memory_clock,
            "processes": processes,
        })
    }

    /// Reads the output of [`Gpu::to_json`]; missing figures are `None`.
    pub fn from_json(json: &Json) -> Self {
        Self {
            vendor: string(json, "vendor"),
            index: whole(json, "index").and_then(|i| usize::try_from(i).ok()).unwrap_or(0),
            name: string(json, "name"),
            uuid: string(json, "uuid"),
            utilisation: float(json, "utilisation_percent"),
            memory_utilisation: float(json, "memory_utilisation_percent"),
            memory_used: whole(json, "memory_used_bytes"),
            memory_total: whole(json, "memory_total_bytes"),
            power: float(json, "power_watts"),
            power_limit: float(json, "power_limit_watts"),
            temperature: float(json, "temperature_celsius"),
            clock: float(json, "clock_mhz"),
            clock_limit: float(json, "clock_limit_mhz"),
            memory_clock: float(json, "memory_clock_mhz"),
            processes: list(json, "processes", |p| GpuProcess {
                pid: whole(p, "pid").and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
                name: string(p, "name"),
                memory: whole(p, "memory_bytes"),
            }),
        }
    }
}

impl HostProcess {
    /// As JSON.
    pub fn to_json(&self) -> Json {
        json!({"pid": self.pid, "name": self.name, "cpu_percent": self.cpu, "memory_bytes": self.memory})
    }
}

impl Sample {
    /// As JSON: names say the units.
    pub fn to_json(&self) -> Json {
        let host = &self.host;
        json!({
            "time": self.time,
            "host": host.name,
            "cpu": {
                "name": host.cpu, "utilisation_percent": host.utilisation(), "cores_percent": host.cores, "load": host.load,
                "memory_used_bytes": host.memory_used, "memory_total_bytes": host.memory_total,
                "temperature_celsius": host.temperature, "clock_mhz": host.clock,
            },
            "gpus": self.gpus.iter().map(Gpu::to_json).collect::<Vec<_>>(),
            "problems": self.problems,
        })
    }

    /// Reads the output of [`Sample::to_json`]; missing figures are `None`.
    pub fn from_json(json: &Json) -> Self {
        let cpu = json.get("cpu").unwrap_or(&Json::Null);
        let host = Host {
            name: string(json, "host"),
            cpu: string(cpu, "name"),
            cores: list(cpu, "cores_percent", |v| v.as_f64().unwrap_or(0.0)),
            load: float(cpu, "load"),
            memory_total: whole(cpu, "memory_total_bytes"),
            memory_used: whole(cpu, "memory_used_bytes"),
            temperature: float(cpu, "temperature_celsius"),
            clock: float(cpu, "clock_mhz"),
        };
        Self {
            time: float(json, "time").unwrap_or(0.0),
            host,
            gpus: list(json, "gpus", Gpu::from_json),
            problems: list(json, "problems", |v| v.as_str().unwrap_or_default().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut sample = crate::Monitor::new().sample();
        // A number that every reader of JSON gets back to the last bit.
        sample.time = 1.5;
        let process = GpuProcess { pid: 7, name: "x".into(), memory: None };
        let gpu =
            Gpu { vendor: "nvidia".into(), index: 3, power: Some(1.5), processes: vec![process], ..Gpu::default() };
        sample.gpus.push(gpu);
        let text = sample.to_json().to_string();
        assert_eq!(Sample::from_json(&serde_json::from_str(&text).unwrap()), sample);
        assert_eq!(Sample::from_json(&json!([1, {"gpus": 3}])), Sample::default());
    }
}
