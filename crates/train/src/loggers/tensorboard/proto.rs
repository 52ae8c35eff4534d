//! The protocol buffer messages of an event file, written field by field.

use serde_json::Value as Json;

/// A message being written.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    pub fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn data(mut self, field: u32, bytes: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub fn text(self, field: u32, text: &str) -> Self {
        self.data(field, text.as_bytes())
    }

    pub fn message(self, field: u32, message: &Message) -> Self {
        self.data(field, &message.0)
    }

    /// Packed doubles.
    pub fn doubles(self, field: u32, values: &[f64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.data(field, &bytes)
    }
}

/// `Event` with its time and step; the content follows.
pub fn event(wall_time: f64, step: u64) -> Message {
    Message::new().double(1, wall_time).int(2, step as i64)
}

/// `Event.file_version`: the first event of a file.
pub fn file_version(wall_time: f64) -> Message {
    event(wall_time, 0).text(3, "brain.Event:2")
}

/// `Event.session_log` with status START: readers drop their events of this step and later ones.
pub fn session_start(wall_time: f64, step: u64) -> Message {
    event(wall_time, step).message(7, &Message::new().int(1, 1))
}

/// An event whose summary has one value.
pub fn summary(wall_time: f64, step: u64, value: &Message) -> Message {
    event(wall_time, step).message(5, &Message::new().message(1, value))
}

/// `Summary.Value.simple_value`.
pub fn scalar(tag: &str, value: f32) -> Message {
    Message::new().text(1, tag).float(2, value)
}

/// A histogram's statistics and buckets.
pub struct Histogram {
    pub min: f64,
    pub max: f64,
    pub num: f64,
    pub sum: f64,
    pub sum_squares: f64,
    /// Upper limits of the buckets.
    pub limits: Vec<f64>,
    pub counts: Vec<f64>,
}

/// `Summary.Value.histo`.
pub fn histogram(tag: &str, h: &Histogram) -> Message {
    let histogram = Message::new()
        .double(1, h.min)
        .double(2, h.max)
        .double(3, h.num)
        .double(4, h.sum)
        .double(5, h.sum_squares)
        .doubles(6, &h.limits)
        .doubles(7, &h.counts);
    Message::new().text(1, tag).message(5, &histogram)
}

/// `Summary.Value.image`: a PNG with its size and number of channels.
pub fn image(tag: &str, width: usize, height: usize, channels: usize, png: &[u8]) -> Message {
    let image = Message::new().int(1, height as i64).int(2, width as i64).int(3, channels as i64).data(4, png);
    Message::new().text(1, tag).message(4, &image)
}

/// `Summary.Value.audio`: a WAV file with its rate, channels and length.
pub fn audio(tag: &str, sample_rate: u32, channels: usize, frames: usize, wav: &[u8]) -> Message {
    let audio = Message::new().float(1, sample_rate as f32).int(2, channels as i64).int(3, frames as i64);
    Message::new().text(1, tag).message(6, &audio.data(4, wav).text(5, "audio/wav"))
}

/// A curve in the format of the plugin of precision and recall: a tensor of six rows.
pub fn pr_curve(tag: &str, rows: &[Vec<f64>; 6]) -> Message {
    const DT_FLOAT: i64 = 1;
    let thresholds = rows[0].len() as i64;
    let size = |n: i64| Message::new().int(1, n);
    let shape = Message::new().message(2, &size(6)).message(2, &size(thresholds));
    let values: Vec<u8> = rows.iter().flatten().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    let tensor = Message::new().int(1, DT_FLOAT).message(2, &shape).data(5, &values);
    let content = Message::new().int(1, 0).int(2, thresholds);
    Message::new().text(1, tag).message(8, &tensor).message(9, &plugin("pr_curves", content.bytes()))
}

/// `Summary.Value.metadata` of a plugin.
fn plugin(name: &str, content: &[u8]) -> Message {
    Message::new().message(1, &Message::new().text(1, name).data(2, content))
}

/// A text in the text plugin's format: a tensor of one string.
pub fn text(tag: &str, text: &str) -> Message {
    const DT_STRING: i64 = 7;
    let shape = Message::new().message(2, &Message::new().int(1, 1));
    let tensor = Message::new().int(1, DT_STRING).message(2, &shape).text(8, text);
    Message::new().text(1, &format!("{tag}/text_summary")).message(8, &tensor).message(9, &plugin("text", &[]))
}

/// The three values that the hyperparameters plugin reads of a run: experiment, start and end of a session.
pub fn hparams(hparams: &[(String, Json)], metrics: &[&str], time: f64) -> [Message; 3] {
    const TYPE_STRING: i64 = 1;
    const TYPE_BOOL: i64 = 2;
    const TYPE_FLOAT64: i64 = 3;
    const STATUS_SUCCESS: i64 = 1;
    let mut experiment = Message::new();
    let mut session = Message::new();
    for (name, value) in hparams {
        // `google.protobuf.Value`.
        let (kind, value) = match value {
            Json::Bool(b) => (TYPE_BOOL, Message::new().int(4, i64::from(*b))),
            Json::Number(n) => (TYPE_FLOAT64, Message::new().double(2, n.as_f64().unwrap_or(f64::NAN))),
            Json::String(s) => (TYPE_STRING, Message::new().text(3, s)),
            other => (TYPE_STRING, Message::new().text(3, &other.to_string())),
        };
        experiment = experiment.message(4, &Message::new().text(1, name).int(4, kind));
        session = session.message(1, &Message::new().text(1, name).message(2, &value));
    }
    for metric in metrics {
        experiment = experiment.message(5, &Message::new().message(1, &Message::new().text(2, metric)));
    }
    let session = session.double(5, time);
    let end = Message::new().int(1, STATUS_SUCCESS).double(2, time);
    let value = |tag: &str, field: u32, content: &Message| {
        let content = Message::new().int(1, 0).message(field, content);
        Message::new().text(1, tag).message(9, &plugin("hparams", content.bytes()))
    };
    [
        value("_hparams_/experiment", 2, &experiment),
        value("_hparams_/session_start_info", 3, &session),
        value("_hparams_/session_end_info", 4, &end),
    ]
}

/// A node of a graph.
pub struct Node {
    /// Its path, with `/` between the parts.
    pub name: String,
    /// The operation's type.
    pub op: String,
    /// Names of the nodes it reads.
    pub inputs: Vec<String>,
    /// Text that is shown with it.
    pub attributes: Vec<(String, String)>,
}

/// `Event.graph_def`.
pub fn graph(wall_time: f64, nodes: &[Node]) -> Message {
    let mut graph = Message::new();
    for node in nodes {
        let mut message = Message::new().text(1, &node.name).text(2, &node.op);
        for input in &node.inputs {
            message = message.text(3, input);
        }
        for (name, value) in &node.attributes {
            let value = Message::new().text(2, value);
            message = message.message(5, &Message::new().text(1, name).message(2, &value));
        }
        graph = graph.message(1, &message);
    }
    let graph = graph.message(4, &Message::new().int(1, 22));
    event(wall_time, 0).data(4, graph.bytes())
}
