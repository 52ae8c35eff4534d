//! Reading event files, including other programs' files and files still being written.
//!
//! [`EventParser`] takes the bytes of a file piece by piece and never trusts them: lengths are bounded, checksums
//! compared, and a message that does not parse is skipped and counted.

use super::media::PrCurve;
use super::record::is_masked_checksum;
use serde_json::{Map, Number, Value as Json};
use std::collections::HashMap;

/// Maximum length of a record. TensorBoard's own writers stay far below.
const MAX_RECORD: u64 = 64 << 20;
/// Bytes before a record's data (length and its checksum), and after it (checksum).
const HEADER: usize = 12;
const FOOTER: usize = 4;

/// A histogram: buckets between ascending edges.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Edges of the buckets, one more than there are counts.
    pub edges: Vec<f64>,
    /// Values in each bucket.
    pub counts: Vec<f64>,
}

/// Position of an encoded image (PNG, JPEG or GIF) or sound (WAV and others) in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Offset of the encoded bytes from the beginning of the file.
    pub offset: u64,
    /// Their number.
    pub len: usize,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum EventContent {
    /// A number.
    Scalar(f64),
    /// A distribution.
    Histogram(Buckets),
    /// Images.
    Images(Vec<Encoded>),
    /// Sounds.
    Audio(Vec<Encoded>),
    /// Precision and recall at rising thresholds.
    PrCurve(PrCurve),
    /// Texts.
    Text(Vec<String>),
    /// Hyperparameters of the run.
    Hparams(Map<String, Json>),
    /// The program was restarted: values of this step and later ones are void.
    Restart,
}

/// One value of an event file.
#[derive(Clone, Debug, PartialEq)]
pub struct EventValue {
    /// Seconds since 1970.
    pub wall_time: f64,
    /// The step.
    pub step: i64,
    /// The value's name.
    pub tag: String,
    /// The value.
    pub content: EventContent,
}

/// The events of a piece of a file.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Values, in the order of the file.
    pub values: Vec<EventValue>,
    /// Bytes consumed. The next piece begins after them.
    pub consumed: usize,
    /// Minimum bytes of the next piece, if a record was incomplete.
    pub needed: usize,
    /// Why nothing can be read beyond the consumed bytes: a wrong checksum, or an absurd length.
    pub fault: Option<String>,
}

/// Reads event files.
///
/// ```
/// # mod rushlight { pub use rushlight_train as train; }
/// use rushlight::train::loggers::tensorboard::{EventContent, EventParser, EventWriter};
/// # let directory = std::env::temp_dir().join(format!("rushlight-doc-read-{}", std::process::id()));
/// let mut events = EventWriter::create(&directory, "", None)?;
/// events.scalar("loss", 0.5, 7)?;
/// events.flush()?;
/// let parsed = EventParser::new().parse(&std::fs::read(events.path())?, 0);
/// assert_eq!((parsed.values[0].step, &parsed.values[0].content), (7, &EventContent::Scalar(0.5)));
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct EventParser {
    /// The plugin of each tag: writers name it only with the first value.
    plugins: HashMap<String, String>,
    /// Messages that did not parse.
    skipped: u64,
}

impl EventParser {
    /// For one file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of messages skipped because they do not parse.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Reads the complete records of a piece that begins at `offset` of its file.
    pub fn parse(&mut self, bytes: &[u8], offset: u64) -> Parsed {
        let mut parsed = Parsed::default();
        loop {
            let rest = &bytes[parsed.consumed..];
            let at = offset + parsed.consumed as u64;
            let Some((header, data)) = rest.split_at_checked(HEADER) else {
                parsed.needed = HEADER;
                return parsed;
            };
            let length = u64::from_le_bytes(std::array::from_fn(|i| header[i]));
            if !is_masked_checksum(&header[..8], &header[8..]) || length > MAX_RECORD {
                parsed.fault = Some(format!("the record at byte {at} has a wrong length or checksum"));
                return parsed;
            }
            let length = length as usize;
            let Some((data, rest)) = data.split_at_checked(length).filter(|(_, rest)| rest.len() >= FOOTER) else {
                parsed.needed = HEADER + length + FOOTER;
                return parsed;
            };
            if !is_masked_checksum(data, &rest[..FOOTER]) {
                parsed.fault = Some(format!("the data of the record at byte {at} has a wrong checksum"));
                return parsed;
            }
            let before = parsed.values.len();
            if self.event(data, at + HEADER as u64, &mut parsed.values).is_none() {
                parsed.values.truncate(before);
                self.skipped += 1;
            }
            parsed.consumed += HEADER + length + FOOTER;
        }
    }

    /// An `Event`; `None` if it does not parse.
    fn event(&mut self, data: &[u8], offset: u64, values: &mut Vec<EventValue>) -> Option<()> {
        let (mut wall_time, mut step) = (0.0, 0i64);
        let mut summaries: Vec<&[u8]> = Vec::new();
        let mut restart = false;
        for field in Fields(data) {
            match field? {
                (1, Wire::Fixed64(bits)) => wall_time = f64::from_bits(bits),
                (2, Wire::Varint(v)) => step = v as i64,
                (5, Wire::Bytes(summary)) => summaries.push(summary),
                // `SessionLog.status` START.
                (7, Wire::Bytes(log)) => restart = Fields(log).any(|f| matches!(f, Some((1, Wire::Varint(1))))),
                _ => {}
            }
        }
        if restart {
            values.push(EventValue { wall_time, step, tag: String::new(), content: EventContent::Restart });
        }
        for summary in summaries {
            for field in Fields(summary) {
                let (1, Wire::Bytes(value)) = field? else { continue };
                let place = offset + position(data, value);
                if let Some((tag, content)) = self.value(value, place)? {
                    values.push(EventValue { wall_time, step, tag, content });
                }
            }
        }
        Some(())
    }

    /// A `Summary.Value`; `Some(None)` if its kind is not supported.
    fn value(&mut self, data: &[u8], offset: u64) -> Option<Option<(String, EventContent)>> {
        let mut tag = String::new();
        let (mut content, mut tensor, mut plugin) = (None, None, None);
        for field in Fields(data) {
            match field? {
                (1, Wire::Bytes(name)) => tag = String::from_utf8_lossy(name).into_owned(),
                (2, Wire::Fixed32(bits)) => content = Some(EventContent::Scalar(f64::from(f32::from_bits(bits)))),
                (4, Wire::Bytes(image)) => {
                    for field in Fields(image) {
                        if let (4, Wire::Bytes(encoded)) = field? {
                            let offset = offset + position(data, encoded);
                            content = Some(EventContent::Images(vec![Encoded { offset, len: encoded.len() }]));
                        }
                    }
                }
                (6, Wire::Bytes(audio)) => {
                    for field in Fields(audio) {
                        if let (4, Wire::Bytes(encoded)) = field? {
                            let offset = offset + position(data, encoded);
                            content = Some(EventContent::Audio(vec![Encoded { offset, len: encoded.len() }]));
                        }
                    }
                }
                (5, Wire::Bytes(histogram)) => content = histogram_of(histogram)?.map(EventContent::Histogram),
                (8, Wire::Bytes(t)) => tensor = Some(t),
                (9, Wire::Bytes(metadata)) => plugin = plugin_of(metadata)?,
                _ => {}
            }
        }
        let own = plugin.is_some();
        let (plugin, hparams) = plugin.unwrap_or_default();
        if plugin == "hparams" {
            let found = hparams_of(hparams)?;
            return Some(found.map(|found| (tag, EventContent::Hparams(found))));
        }
        if own {
            // Bounds memory for files in which every value has a new name.
            if self.plugins.len() < 100_000 {
                self.plugins.insert(tag.clone(), plugin.clone());
            }
        }
        let known = if own { Some(plugin.as_str()) } else { self.plugins.get(&tag).map(String::as_str) };
        if let (None, Some(t)) = (&content, tensor) {
            let tensor = Tensor::read(t)?;
            content = match known {
                Some("scalars") => tensor.numbers()?.first().map(|v| EventContent::Scalar(*v)),
                Some("text") => Some(EventContent::Text(
                    tensor.strings.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect(),
                )),
                Some("histograms") => buckets_of_rows(&tensor.numbers()?).map(EventContent::Histogram),
                Some("pr_curves") => tensor.numbers().and_then(curve_of).map(EventContent::PrCurve),
                // Pairs of a sound and its label.
                Some("audio") => Some(EventContent::Audio(
                    tensor
                        .strings
                        .iter()
                        .step_by(2)
                        .map(|s| Encoded { offset: offset + position(data, s), len: s.len() })
                        .collect(),
                )),
                // Width, height, then the images.
                Some("images") => Some(EventContent::Images(
                    tensor
                        .strings
                        .iter()
                        .skip(2)
                        .map(|s| Encoded { offset: offset + position(data, s), len: s.len() })
                        .collect(),
                )),
                _ => None,
            };
        }
        if let Some(EventContent::Text(_)) = content
            && let Some(short) = tag.strip_suffix("/text_summary")
        {
            tag.truncate(short.len());
        }
        Some(content.map(|content| (tag, content)))
    }
}

/// The curve of a tensor of six rows.
fn curve_of(numbers: Vec<f64>) -> Option<PrCurve> {
    let length = numbers.len() / 6;
    if length == 0 || !numbers.len().is_multiple_of(6) || numbers.iter().any(|v| !v.is_finite()) {
        return None;
    }
    PrCurve::from_rows(std::array::from_fn(|i| numbers[i * length..(i + 1) * length].to_vec())).ok()
}

/// Offset of a part in `whole`.
fn position(whole: &[u8], part: &[u8]) -> u64 {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize) as u64
}

/// The value of a field, by its wire type.
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The fields of a message. A malformed one ends them with `None`.
struct Fields<'a>(&'a [u8]);

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * i)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let key = varint(&mut self.0)?;
        let mut take = |n: usize| {
            let (taken, rest) = self.0.split_at_checked(n)?;
            self.0 = rest;
            Some(taken)
        };
        let wire = match key & 7 {
            0 => Wire::Varint(varint(&mut self.0)?),
            1 => Wire::Fixed64(u64::from_le_bytes(take(8)?.try_into().ok()?)),
            5 => Wire::Fixed32(u32::from_le_bytes(take(4)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                let (taken, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Wire::Bytes(taken)
            }
            // Groups are an obsolete wire type.
            _ => return None,
        };
        Some((key >> 3, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Doubles of a repeated field, packed or one by one.
fn push_doubles(wire: Wire, to: &mut Vec<f64>) {
    match wire {
        Wire::Fixed64(bits) => to.push(f64::from_bits(bits)),
        Wire::Bytes(bytes) => to.extend(words::<8>(bytes).map(f64::from_le_bytes)),
        _ => {}
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.chunks_exact(N).map(|word| std::array::from_fn(|i| word[i]))
}

/// A `HistogramProto`, whose buckets have only upper limits. `Some(None)` for one without values.
fn histogram_of(data: &[u8]) -> Option<Option<Buckets>> {
    let (mut min, mut max) = (f64::NAN, f64::NAN);
    let (mut limits, mut counts) = (Vec::new(), Vec::new());
    for field in Fields(data) {
        match field? {
            (1, Wire::Fixed64(bits)) => min = f64::from_bits(bits),
            (2, Wire::Fixed64(bits)) => max = f64::from_bits(bits),
            (6, wire) => push_doubles(wire, &mut limits),
            (7, wire) => push_doubles(wire, &mut counts),
            _ => {}
        }
    }
    if limits.len() != counts.len() {
        return None;
    }
    let (Some(first), Some(last)) = (counts.iter().position(|c| *c > 0.0), counts.iter().rposition(|c| *c > 0.0))
    else {
        return Some(None);
    };
    // The outermost buckets may extend to the largest float: the minimum and maximum value bound them.
    let lower = if first > 0 { limits[first - 1] } else { min };
    let lower = if min.is_finite() && min > lower { min } else { lower };
    let mut edges = vec![lower];
    edges.extend(&limits[first..=last]);
    if let Some(end) = edges.last_mut().filter(|end| max.is_finite() && max < **end) {
        *end = max;
    }
    let counts = counts[first..=last].to_vec();
    Some(valid(Buckets { edges, counts }))
}

/// Rows of left edge, right edge and count, as TensorFlow 2 writes histograms.
fn buckets_of_rows(rows: &[f64]) -> Option<Buckets> {
    let rows: Vec<[f64; 3]> = rows.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect();
    let mut edges = vec![rows.first()?[0]];
    edges.extend(rows.iter().map(|row| row[1]));
    valid(Buckets { edges, counts: rows.iter().map(|row| row[2]).collect() })
}

/// Buckets with finite ascending edges and non-negative counts.
fn valid(buckets: Buckets) -> Option<Buckets> {
    let rising = buckets.edges.windows(2).all(|pair| pair[0] <= pair[1]);
    let finite = buckets.edges.iter().all(|e| e.is_finite());
    let counted = buckets.counts.iter().all(|c| c.is_finite() && *c >= 0.0);
    (rising && finite && counted).then_some(buckets)
}

/// Name and content of a `SummaryMetadata.PluginData`; `Some(None)` without one.
fn plugin_of(metadata: &[u8]) -> Option<Option<(String, &[u8])>> {
    for field in Fields(metadata) {
        let (1, Wire::Bytes(plugin)) = field? else { continue };
        let (mut name, mut content) = (String::new(), &[][..]);
        for field in Fields(plugin) {
            match field? {
                (1, Wire::Bytes(text)) => name = String::from_utf8_lossy(text).into_owned(),
                (2, Wire::Bytes(bytes)) => content = bytes,
                _ => {}
            }
        }
        return Some(Some((name, content)));
    }
    Some(None)
}

/// The hyperparameters of an `HParamsPluginData` that begins a session; `Some(None)` for others.
fn hparams_of(data: &[u8]) -> Option<Option<Map<String, Json>>> {
    let mut found = None;
    for field in Fields(data) {
        let (3, Wire::Bytes(session)) = field? else { continue };
        let all = found.get_or_insert_with(Map::new);
        for field in Fields(session) {
            let (1, Wire::Bytes(entry)) = field? else { continue };
            let (mut name, mut value) = (String::new(), Json::Null);
            for field in Fields(entry) {
                match field? {
                    (1, Wire::Bytes(text)) => name = String::from_utf8_lossy(text).into_owned(),
                    (2, Wire::Bytes(bytes)) => value = plain_value(bytes)?,
                    _ => {}
                }
            }
            all.insert(name, value);
        }
    }
    Some(found)
}

/// A `google.protobuf.Value` that is a number, a text or a boolean.
fn plain_value(data: &[u8]) -> Option<Json> {
    let mut value = Json::Null;
    for field in Fields(data) {
        value = match field? {
            (2, Wire::Fixed64(bits)) => {
                let number = f64::from_bits(bits);
                // Writers have only doubles; whole ones were integers.
                match number.fract() == 0.0 && number.abs() < 1e15 {
                    true => (number as i64).into(),
                    false => Number::from_f64(number).map_or_else(|| number.to_string().into(), Json::Number),
                }
            }
            (3, Wire::Bytes(text)) => String::from_utf8_lossy(text).into_owned().into(),
            (4, Wire::Varint(b)) => (b != 0).into(),
            _ => Json::Null,
        };
    }
    Some(value)
}

/// A `TensorProto`, the parts that summaries use.
#[derive(Default)]
struct Tensor<'a> {
    dtype: u64,
    raw: &'a [u8],
    floats: Vec<f64>,
    strings: Vec<&'a [u8]>,
}

impl<'a> Tensor<'a> {
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut tensor = Self::default();
        for field in Fields(data) {
            match field? {
                (1, Wire::Varint(dtype)) => tensor.dtype = dtype,
                (4, Wire::Bytes(raw)) => tensor.raw = raw,
                (5, Wire::Fixed32(bits)) => tensor.floats.push(f64::from(f32::from_bits(bits))),
                (5, Wire::Bytes(bytes)) => {
                    tensor.floats.extend(words::<4>(bytes).map(|w| f64::from(f32::from_le_bytes(w))));
                }
                (6, wire) => push_doubles(wire, &mut tensor.floats),
                (7 | 10, Wire::Varint(v)) => tensor.floats.push(v as i64 as f64),
                (7 | 10, Wire::Bytes(mut bytes)) => {
                    while !bytes.is_empty() {
                        tensor.floats.push(varint(&mut bytes)? as i64 as f64);
                    }
                }
                (8, Wire::Bytes(text)) => tensor.strings.push(text),
                _ => {}
            }
        }
        Some(tensor)
    }

    /// The numbers of a tensor of one of the dtypes that summaries have.
    fn numbers(&self) -> Option<Vec<f64>> {
        if self.raw.is_empty() {
            return Some(self.floats.clone());
        }
        Some(match self.dtype {
            1 => words::<4>(self.raw).map(|w| f64::from(f32::from_le_bytes(w))).collect(),
            2 => words::<8>(self.raw).map(f64::from_le_bytes).collect(),
            3 => words::<4>(self.raw).map(|w| f64::from(i32::from_le_bytes(w))).collect(),
            9 => words::<8>(self.raw).map(|w| i64::from_le_bytes(w) as f64).collect(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{proto, record::record};
    use super::*;

    fn file() -> Vec<u8> {
        let hparams = [("lr".to_owned(), Json::from(0.5)), ("name".to_owned(), "a <b>".into())];
        let histogram = proto::Histogram {
            min: -1.0,
            max: 2.5,
            num: 3.0,
            sum: 2.0,
            sum_squares: 8.0,
            limits: vec![-2.0, 0.0, f64::MAX],
            counts: vec![0.0, 1.0, 2.0],
        };
        let mut bytes = record(proto::file_version(1.0).bytes());
        let values =
            [proto::scalar("loss", 0.5), proto::text("note", "ünï <script>"), proto::histogram("w", &histogram)];
        for value in values.iter().chain(&proto::hparams(&hparams, &["loss"], 1.0)) {
            bytes.extend(record(proto::summary(2.0, 7, value).bytes()));
        }
        bytes.extend(record(proto::summary(2.0, 8, &proto::image("p", 2, 2, 3, b"\x89PNGdata")).bytes()));
        bytes.extend(record(proto::summary(2.0, 8, &proto::audio("s", 8000, 1, 2, b"RIFFdata")).bytes()));
        let rows = std::array::from_fn(|i| vec![i as f64, 0.5]);
        bytes.extend(record(proto::summary(2.0, 8, &proto::pr_curve("c", &rows)).bytes()));
        bytes.extend(record(proto::session_start(3.0, 5).bytes()));
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = file();
        let parsed = EventParser::new().parse(&bytes, 0);
        assert_eq!((parsed.consumed, &parsed.fault), (bytes.len(), &None));
        let tags: Vec<&str> = parsed.values.iter().map(|v| v.tag.as_str()).collect();
        assert_eq!(tags, ["loss", "note", "w", "_hparams_/session_start_info", "p", "s", "c", ""]);
        assert_eq!(parsed.values[1].content, EventContent::Text(vec!["ünï <script>".into()]));
        let buckets = Buckets { edges: vec![-1.0, 0.0, 2.5], counts: vec![1.0, 2.0] };
        assert_eq!(parsed.values[2].content, EventContent::Histogram(buckets));
        let EventContent::Hparams(hparams) = &parsed.values[3].content else { panic!("{:?}", parsed.values[3]) };
        assert_eq!((&hparams["lr"], &hparams["name"]), (&0.5.into(), &"a <b>".into()));
        let EventContent::Images(images) = &parsed.values[4].content else { panic!("{:?}", parsed.values[4]) };
        let at = images[0].offset as usize;
        assert_eq!(&bytes[at..at + images[0].len], b"\x89PNGdata");
        let EventContent::Audio(sounds) = &parsed.values[5].content else { panic!("{:?}", parsed.values[5]) };
        let at = sounds[0].offset as usize;
        assert_eq!(&bytes[at..at + sounds[0].len], b"RIFFdata");
        let EventContent::PrCurve(curve) = &parsed.values[6].content else { panic!("{:?}", parsed.values[6]) };
        assert_eq!((curve.precision(), curve.recall()), (&[4.0, 0.5][..], &[5.0, 0.5][..]));
        assert_eq!((parsed.values[7].step, &parsed.values[7].content), (5, &EventContent::Restart));
    }

    /// A tensor of TensorFlow 2, whose plugin is named once.
    #[test]
    fn tensors_of_other_writers() {
        let value = |raw: f32, named: bool| {
            let tensor = proto::Message::new().int(1, 1).data(4, &raw.to_le_bytes());
            let value = proto::Message::new().text(1, "acc").message(8, &tensor);
            let plugin = proto::Message::new().message(1, &proto::Message::new().text(1, "scalars"));
            record(proto::summary(1.0, 3, &if named { value.message(9, &plugin) } else { value }).bytes())
        };
        let parsed = EventParser::new().parse(&[value(0.25, true), value(0.5, false)].concat(), 0);
        let contents: Vec<&EventContent> = parsed.values.iter().map(|v| &v.content).collect();
        assert_eq!(contents, [&EventContent::Scalar(0.25), &EventContent::Scalar(0.5)]);
    }

    /// Pieces of any length give the same values; no change of the bytes makes the parser panic or read a wrong
    /// record.
    #[test]
    fn pieces_and_damage() {
        let bytes = file();
        let whole = EventParser::new().parse(&bytes, 0);
        for cut in 0..bytes.len() {
            let mut parser = EventParser::new();
            let first = parser.parse(&bytes[..cut], 0);
            assert!(first.fault.is_none() && first.needed > cut - first.consumed);
            let second = parser.parse(&bytes[first.consumed..], first.consumed as u64);
            assert_eq!([first.values, second.values].concat(), whole.values);
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            let parsed = EventParser::new().parse(&damaged, 0);
            assert!(parsed.fault.is_some(), "byte {at}");
            assert!(whole.values.starts_with(&parsed.values));
        }
        // Damaged messages in whole records: the parser never panics, and skips invalid ones.
        let mut messages = Vec::new();
        let mut rest = &bytes[..];
        while let Some((header, _)) = rest.split_at_checked(HEADER) {
            let length = u64::from_le_bytes(std::array::from_fn(|i| header[i])) as usize;
            messages.push(&rest[HEADER..HEADER + length]);
            rest = &rest[HEADER + length + FOOTER..];
        }
        for message in messages {
            for at in 0..message.len() {
                for change in [0x01u8, 0x80, 0xff] {
                    let mut damaged = message.to_vec();
                    damaged[at] ^= change;
                    let parsed = EventParser::new().parse(&record(&damaged), 0);
                    assert!(parsed.fault.is_none());
                }
                EventParser::new().parse(&record(&message[..at]), 0);
            }
        }
        // Valid records that contain no messages.
        for seed in 0..2000u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let noise: Vec<u8> = (0..seed % 90)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
            let event = proto::event(1.0, 1).message(5, &proto::Message::new().data(1, &noise));
            let parsed = EventParser::new().parse(&record(event.bytes()), 0);
            assert!(parsed.fault.is_none());
        }
    }
}
