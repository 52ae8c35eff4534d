//! Reads Chrome traces: PyTorch's, ours, and others with complete events.

use flate2::read::GzDecoder;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Most bytes that a compressed trace may become.
const MAX_BYTES: u64 = 16 << 30;

/// A complete event of a trace. Times are microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceEvent {
    /// The name.
    pub name: String,
    /// The category, such as `cpu_op` or `kernel`.
    pub category: String,
    /// The process: a device's index, for its work.
    pub pid: String,
    /// The thread, or the stream.
    pub tid: String,
    /// The begin.
    pub ts: f64,
    /// Microseconds from begin to end.
    pub dur: f64,
}

impl TraceEvent {
    /// The end.
    pub fn end(&self) -> f64 {
        self.ts + self.dur
    }

    /// Whether it is work of a device.
    pub fn is_device(&self) -> bool {
        matches!(self.category.as_str(), "kernel" | "gpu_memcpy" | "gpu_memset")
    }
}

/// The complete events of a trace, plain or compressed, by their begin.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<TraceEvent>, String> {
    let path = path.as_ref();
    let fail = |e: &dyn fmt::Display| format!("{}: {e}", path.display());
    let mut file = BufReader::new(File::open(path).map_err(|e| fail(&e))?);
    let mut magic = [0; 2];
    let read = file.read(&mut magic).map_err(|e| fail(&e))?;
    let whole = (&magic[..read]).chain(file);
    let text: Box<dyn Read> = match magic {
        [0x1f, 0x8b] => Box::new(BufReader::new(GzDecoder::new(whole)).take(MAX_BYTES)),
        _ => Box::new(whole),
    };
    let mut events = parse(text).map_err(|e| fail(&format!("not a Chrome trace: {e}")))?;
    events.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
    Ok(events)
}

/// The complete events of a trace's text.
pub(super) fn parse(text: impl Read) -> Result<Vec<TraceEvent>, serde_json::Error> {
    let mut events = Vec::new();
    let mut text = serde_json::Deserializer::from_reader(BufReader::new(text));
    Document(&mut events).deserialize(&mut text)?;
    text.end()?;
    Ok(events)
}

/// A trace is an object with `traceEvents`, or the list of events itself.
struct Document<'a>(&'a mut Vec<TraceEvent>);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object with traceEvents, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                found = true;
                map.next_value_seed(Document(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(de::Error::missing_field("traceEvents")) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(Item(event)) = list.next_element()? {
            self.0.extend(event);
        }
        Ok(())
    }
}

/// One event; `None` unless it is complete (phase `X`) with finite times.
struct Item(Option<TraceEvent>);

impl<'de> de::Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let mut event = TraceEvent::default();
        let mut complete = false;
        let text = |value: Value| match value {
            Value::String(s) => s,
            other => other.to_string(),
        };
        // Writers that keep full precision write numbers as text.
        let number = |value: Value| match value {
            Value::Number(n) => n.as_f64().unwrap_or(0.0),
            Value::String(s) => s.parse().unwrap_or(0.0),
            _ => 0.0,
        };
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "ph" => complete = map.next_value::<Value>()?.as_str() == Some("X"),
                "name" => event.name = text(map.next_value()?),
                "cat" => event.category = text(map.next_value()?),
                "pid" => event.pid = text(map.next_value()?),
                "tid" => event.tid = text(map.next_value()?),
                "ts" => event.ts = number(map.next_value()?),
                "dur" => event.dur = number(map.next_value()?),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        let sound = event.ts.is_finite() && event.dur.is_finite() && event.dur >= 0.0;
        Ok(Item((complete && sound).then_some(event)))
    }
}
