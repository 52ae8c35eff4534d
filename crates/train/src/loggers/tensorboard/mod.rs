//! TensorBoard event files: scalars, histograms, images, sound, text, curves of precision and recall, graphs,
//! hyperparameters.
//!
//! An event file is a sequence of checksummed records (`record.rs`), each a protocol buffer (`proto.rs`).
//! [`EventWriter`] writes one, [`EventParser`] reads one; [`TensorBoardLogger`] writes a run's.

mod histogram;
mod media;
mod proto;
mod read;
mod record;

pub use media::PrCurve;
pub(crate) use proto::Message;
pub use proto::Node;
pub use read::{Buckets, Encoded, EventContent, EventParser, EventValue, Parsed};

use super::{Hparams, Logger, Row, Start, cannot, now};
use rushlight_core::{DType, Error, Result};
use rushlight_nn::Module;
use rushlight_tensor::Tensor;
use serde_json::Value as Json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum time that events stay in memory.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Writes one event file.
///
/// ```
/// # mod rushlight { pub use rushlight_train as train; }
/// use rushlight::train::loggers::tensorboard::EventWriter;
/// # let directory = std::env::temp_dir().join(format!("rushlight-doc-events-{}", std::process::id()));
/// let mut events = EventWriter::create(&directory, "", None)?;
/// for step in 0..100 {
///     events.scalar("loss", 1.0 / (step + 1) as f64, step)?;
/// }
/// events.text("note", "a **text**", 0)?;
/// events.flush()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct EventWriter {
    path: PathBuf,
    file: BufWriter<File>,
    flushed: Instant,
    /// Time of events, overriding the clock.
    wall_time: Option<f64>,
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    if name.is_empty() { "localhost".into() } else { name }
}

impl EventWriter {
    /// Creates a uniquely named file in a directory, which is created if missing. A resumed run passes
    /// its step: readers then drop later steps of earlier files.
    pub fn create(directory: impl AsRef<Path>, suffix: &str, purge_step: Option<u64>) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let directory = directory.as_ref();
        std::fs::create_dir_all(directory).map_err(|e| cannot("make", directory, e))?;
        if suffix.contains(['/', '\0']) {
            return Err(Error::value(format!("EventWriter: the suffix {suffix:?} cannot be part of a file's name")));
        }
        let name = format!(
            "events.out.tfevents.{}.{}.{}.{}{suffix}",
            now() as u64,
            hostname(),
            std::process::id(),
            COUNT.fetch_add(1, Relaxed)
        );
        let path = directory.join(name);
        let file = File::create(&path).map_err(|e| cannot("make", &path, e))?;
        let mut writer = Self { path, file: BufWriter::new(file), flushed: Instant::now(), wall_time: None };
        writer.write(&proto::file_version(now()))?;
        if let Some(step) = purge_step {
            writer.write(&proto::session_start(now(), step))?;
        }
        writer.flush()?;
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the time, in seconds since 1970, of the following events, overriding the clock.
    pub fn set_wall_time(&mut self, wall_time: Option<f64>) {
        self.wall_time = wall_time;
    }

    fn time(&self) -> f64 {
        self.wall_time.unwrap_or_else(now)
    }

    fn write(&mut self, event: &proto::Message) -> Result<()> {
        self.file.write_all(&record::record(event.bytes())).map_err(|e| cannot("write", &self.path, e))?;
        if self.flushed.elapsed() >= FLUSH_AFTER { self.flush() } else { Ok(()) }
    }

    fn summary(&mut self, value: &proto::Message, step: u64) -> Result<()> {
        self.write(&proto::summary(self.time(), step, value))
    }

    /// Flushes all events to the file.
    pub fn flush(&mut self) -> Result<()> {
        self.flushed = Instant::now();
        self.file.flush().map_err(|e| cannot("write", &self.path, e))
    }

    /// A number.
    pub fn scalar(&mut self, tag: &str, value: f64, step: u64) -> Result<()> {
        self.summary(&proto::scalar(tag, value as f32), step)
    }

    /// A histogram, in TensorBoard's buckets or between given edges, which must ascend. Non-finite values are not
    /// counted; without others nothing is written.
    pub fn histogram(&mut self, tag: &str, values: &[f64], edges: Option<&[f64]>, step: u64) -> Result<()> {
        let default;
        let edges = match edges {
            Some(edges)
                if edges.len() < 2
                    || edges.windows(2).any(|pair| pair[0].partial_cmp(&pair[1]).is_none_or(|o| o.is_gt())) =>
            {
                return Err(Error::value("histogram: edges must rise, and be two at least"));
            }
            Some(edges) => edges,
            None => {
                default = histogram::default_edges();
                &default
            }
        };
        match histogram::histogram(values, edges) {
            Some(histogram) => self.summary(&proto::histogram(tag, &histogram), step),
            None => Ok(()),
        }
    }

    /// A histogram by its statistics: minimum and maximum, number, sum, sum of squares, upper limits of buckets
    /// and counts.
    pub fn histogram_raw(
        &mut self,
        tag: &str,
        [min, max, num, sum, sum_squares]: [f64; 5],
        limits: &[f64],
        counts: &[f64],
        step: u64,
    ) -> Result<()> {
        if limits.len() != counts.len() {
            return Err(Error::value(format!(
                "histogram: {} limits for {} counts; each bucket has one of both",
                limits.len(),
                counts.len()
            )));
        }
        let (limits, counts) = (limits.to_vec(), counts.to_vec());
        let histogram = proto::Histogram { min, max, num, sum, sum_squares, limits, counts };
        self.summary(&proto::histogram(tag, &histogram), step)
    }

    /// An image: rows of pixels, each of 1 (grey), 2 (grey and alpha), 3 (RGB) or 4 bytes (RGB and alpha).
    pub fn image(&mut self, tag: &str, pixels: &[u8], [height, width, channels]: [usize; 3], step: u64) -> Result<()> {
        let png = png(pixels, [height, width, channels])?;
        self.summary(&proto::image(tag, width, height, channels, &png), step)
    }

    /// Sound: samples from -1 to 1, interleaved if there are several channels. Samples beyond are clipped.
    pub fn audio(&mut self, tag: &str, samples: &[f32], channels: usize, sample_rate: u32, step: u64) -> Result<()> {
        let wav = media::wav(samples, channels, sample_rate)?;
        self.summary(&proto::audio(tag, sample_rate, channels, samples.len() / channels, &wav), step)
    }

    /// A curve of precision and recall.
    pub fn pr_curve(&mut self, tag: &str, curve: &PrCurve, step: u64) -> Result<()> {
        self.summary(&proto::pr_curve(tag, &curve.rows), step)
    }

    /// A text; TensorBoard shows it as Markdown.
    pub fn text(&mut self, tag: &str, text: &str, step: u64) -> Result<()> {
        self.summary(&proto::text(tag, text), step)
    }

    /// Hyperparameters of a run and the names of the metrics they are compared by.
    pub fn hparams(&mut self, hparams: &Hparams, metrics: &[&str]) -> Result<()> {
        let list: Vec<(String, Json)> = hparams.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let time = self.time();
        proto::hparams(&list, metrics, time).iter().try_for_each(|value| self.summary(value, 0))
    }

    /// A graph of nodes.
    pub fn graph(&mut self, nodes: &[Node]) -> Result<()> {
        self.write(&proto::graph(self.time(), nodes))
    }

    /// The modules of a model as a graph: a node for each, with its settings and the shapes of its parameters.
    pub fn model(&mut self, model: &dyn Module) -> Result<()> {
        let mut nodes = Vec::new();
        collect(model, model.type_name(), &mut nodes);
        self.graph(&nodes)
    }
}

fn collect(module: &dyn Module, name: &str, nodes: &mut Vec<Node>) {
    let mut attributes = vec![("parameters".to_owned(), module.num_parameters().to_string())];
    let settings = module.extra_repr();
    if !settings.is_empty() {
        attributes.push(("settings".into(), settings));
    }
    let children = module.named_children();
    // A name that others begin with is a group in TensorBoard, and shows no attributes: the module itself is a node in
    // it.
    let own = if children.is_empty() { name.to_owned() } else { format!("{name}/({})", module.type_name()) };
    nodes.push(Node { name: own, op: module.type_name().into(), inputs: Vec::new(), attributes });
    for (child, module) in children {
        collect(module, &format!("{name}/{}", child.replace('.', "/")), nodes);
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        if let Err(e) = self.flush() {
            rushlight_core::warn!("{e}");
        }
    }
}

/// Pixels as a PNG file.
fn png(pixels: &[u8], [height, width, channels]: [usize; 3]) -> Result<Vec<u8>> {
    let failed = |e: png::EncodingError| Error::value(format!("image: {e}"));
    let wrong = || {
        Error::value(format!("image: {height} by {width} pixels of {channels} channels are not {} bytes", pixels.len()))
    };
    let color = match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        4 => png::ColorType::Rgba,
        other => return Err(Error::value(format!("image: {other} channels; 1 to 4 can be shown"))),
    };
    if height.checked_mul(width).and_then(|n| n.checked_mul(channels)) != Some(pixels.len()) {
        return Err(wrong());
    }
    let size = |n: usize| u32::try_from(n).map_err(|_| wrong());
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size(width)?, size(height)?);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

/// The bytes of an image of shape `[C, H, W]` or `[H, W]`, row by row, and its height, width and channels.
pub fn pixels(image: &Tensor) -> Result<(Vec<u8>, [usize; 3])> {
    let image = if image.rank() == 2 { image.unsqueeze(0)? } else { image.clone() };
    let &[channels, height, width] = image.shape() else {
        return Err(Error::shape(format!("image: a tensor of shape {:?}; [C, H, W] is needed", image.shape())));
    };
    let rows = image.detach().permute([1, 2, 0])?;
    let bytes = match image.dtype() {
        DType::U8 => rows.to_vec::<u8>()?,
        _ => rows
            .to_dtype(DType::F32)?
            .to_vec::<f32>()?
            .into_iter()
            .map(|v| (v * 255.0).clamp(0.0, 255.0) as u8)
            .collect(),
    };
    Ok((bytes, [height, width, channels]))
}

/// Writes a run's values to an event file in its directory.
#[derive(Default)]
pub struct TensorBoardLogger {
    events: Option<EventWriter>,
    hparams: Hparams,
}

impl TensorBoardLogger {
    /// The file is made when the run starts.
    pub fn new() -> Self {
        Self::default()
    }

    fn events(&mut self) -> Result<&mut EventWriter> {
        self.events.as_mut().ok_or_else(|| Error::value("the logger has not been started"))
    }
}

impl Logger for TensorBoardLogger {
    fn name(&self) -> &str {
        "TensorBoard"
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        let purge = start.resumed.map(|resumed| resumed.step + 1);
        self.events = Some(EventWriter::create(start.directory, "", purge)?);
        self.hparams = start.hparams.clone();
        Ok(())
    }

    fn log(&mut self, row: &Row) -> Result<()> {
        let events = self.events()?;
        for (name, value) in row.values {
            events.scalar(name, *value, row.step)?;
        }
        events.scalar("epoch", row.epoch as f64, row.step)
    }

    fn histogram(&mut self, name: &str, values: &Tensor, step: u64) -> Result<()> {
        let values = values.detach().to_dtype(DType::F64)?.to_vec::<f64>()?;
        self.events()?.histogram(name, &values, None, step)
    }

    fn image(&mut self, name: &str, image: &Tensor, step: u64) -> Result<()> {
        let (bytes, size) = pixels(image)?;
        self.events()?.image(name, &bytes, size, step)
    }

    fn audio(&mut self, name: &str, samples: &Tensor, sample_rate: u32, step: u64) -> Result<()> {
        let samples = if samples.rank() == 1 { samples.unsqueeze(0)? } else { samples.clone() };
        let &[channels, _] = samples.shape() else {
            return Err(Error::shape(format!("audio: a tensor of shape {:?}; [C, L] is needed", samples.shape())));
        };
        let frames = samples.detach().to_dtype(DType::F32)?.transpose(0, 1)?.to_vec::<f32>()?;
        self.events()?.audio(name, &frames, channels, sample_rate, step)
    }

    fn pr_curve(&mut self, name: &str, labels: &Tensor, predictions: &Tensor, step: u64) -> Result<()> {
        let numbers = |t: &Tensor| t.detach().to_dtype(DType::F64)?.to_vec::<f64>();
        let curve = PrCurve::new(&numbers(labels)?, &numbers(predictions)?, media::MAX_THRESHOLDS, None)?;
        self.events()?.pr_curve(name, &curve, step)
    }

    fn text(&mut self, name: &str, text: &str, step: u64) -> Result<()> {
        self.events()?.text(name, text, step)
    }

    fn flush(&mut self) -> Result<()> {
        self.events()?.flush()
    }

    fn finish(&mut self, metrics: &[(String, f64)]) -> Result<()> {
        let hparams = std::mem::take(&mut self.hparams);
        let names: Vec<&str> = metrics.iter().map(|(name, _)| name.as_str()).collect();
        let events = self.events()?;
        if !hparams.is_empty() {
            events.hparams(&hparams, &names)?;
        }
        events.flush()
    }
}
