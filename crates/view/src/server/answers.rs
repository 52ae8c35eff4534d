//! The page's data, as JSON. Only files that the store has found are served: no path comes from a request.

use super::export::base64;
use super::http::{Request, Response};
use crate::runs::{Encoded, Run, Series, Store};
use serde_json::{Map, Number, Value as Json, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Mutex;

/// Maximum points of a curve in one response.
const MAX_POINTS: usize = 2_000;
/// Maximum size of an image or a sound, and maximum bytes of a log per response.
const MAX_MEDIA: usize = 32 << 20;
const MAX_LOG: u64 = 256 << 10;
/// Maximum size of an exported model that the page draws.
const MAX_MODEL: u64 = 2 << 30;

/// Answers `/api/WHAT`.
pub fn answer(store: &Store, what: &str, request: &Request) -> Response {
    let found = match what {
        "runs" => Some(Response::json(&runs(store))),
        "scalars" => with_run(store, request, |run| Response::json(&scalars(run, since(request)))),
        "ranks" => with_run(store, request, |run| Response::json(&ranks(run, since(request)))),
        "histograms" => with_run(store, request, |run| Response::json(&histograms(run))),
        "texts" => with_run(store, request, |run| Response::json(&texts(run))),
        "images" => with_run(store, request, |run| Response::json(&encoded(run, "images", &run.images))),
        "audio" => with_run(store, request, |run| Response::json(&encoded(run, "audio", &run.audio))),
        "pr_curves" => with_run(store, request, |run| Response::json(&pr_curves(run))),
        "checkpoints" => with_run(store, request, |run| Response::json(&checkpoints(run))),
        "image" => media(store, request, |run| &run.images),
        "sound" => media(store, request, |run| &run.audio),
        "log" => log(store, request),
        "model" => model(store, request),
        "notes" => notes(store, request),
        _ => None,
    };
    found.unwrap_or_else(|| Response::text(404, "there is no such run, or nothing of this name"))
}

/// Everything of all runs at once, for a page without a server: its answers by what was asked.
pub fn everything(store: &Store) -> Json {
    let mut answers = Map::new();
    answers.insert("runs".into(), runs(store));
    let ids: Vec<u64> = store.lock().runs.keys().copied().collect();
    for id in ids {
        let (media, files, models) = {
            let state = store.lock();
            let Some(run) = state.runs.get(&id) else { continue };
            for (what, value) in [
                ("scalars", scalars(run, 0)),
                ("ranks", ranks(run, 0)),
                ("histograms", histograms(run)),
                ("texts", texts(run)),
                ("images", encoded(run, "images", &run.images)),
                ("audio", encoded(run, "audio", &run.audio)),
                ("pr_curves", pr_curves(run)),
                ("checkpoints", checkpoints(run)),
            ] {
                answers.insert(format!("{what} {id}"), value);
            }
            let kinds = [("image", &run.images), ("sound", &run.audio)];
            let all = kinds.into_iter().flat_map(|(what, all)| all.iter().map(move |(tag, items)| (what, tag, items)));
            let media: Vec<(&str, String, Encoded)> =
                all.flat_map(|(what, tag, items)| items.iter().map(move |i| (what, tag.clone(), i.clone()))).collect();
            (media, run.logs.clone(), run.models.clone())
        };
        for (what, tag, item) in media {
            if let Some((kind, bytes)) = read_media(store, &item).ok().flatten() {
                let address = format!("data:{kind};base64,{}", base64(&bytes));
                answers.insert(format!("{what} {id} {} {tag}", item.step), address.into());
            }
        }
        for (name, path) in files {
            if let Ok(log) = store.open(&path).and_then(|file| read_log(file, None)) {
                answers.insert(format!("log {id} {name}"), log);
            }
        }
        for (name, path) in models {
            if let Ok(file) = store.open(&path) {
                answers.insert(format!("model {id} {name}"), draw(file));
            }
        }
    }
    answers.into()
}

fn since(request: &Request) -> u64 {
    request.query("since").and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn with_run(store: &Store, request: &Request, act: impl FnOnce(&Run) -> Response) -> Option<Response> {
    let id: u64 = request.query("run")?.parse().ok()?;
    Some(act(store.lock().runs.get(&id)?))
}

/// JSON has no non-finite numbers: they are sent as strings.
fn number(value: f64) -> Json {
    match Number::from_f64(value) {
        Some(number) => Json::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// All runs with the columns of the table.
fn runs(store: &Store) -> Json {
    let state = store.lock();
    let runs: Vec<Json> = state.runs.values().map(summary).collect();
    let root = store.root().canonicalize().unwrap_or_else(|_| store.root().to_owned());
    json!({
        "version": state.version, "loaded": state.loaded, "cut": state.cut,
        "root": root.display().to_string(), "runs": runs,
    })
}

fn summary(run: &Run) -> Json {
    let metrics: Map<String, Json> = run
        .series
        .iter()
        .filter_map(|(tag, (_, series))| {
            let last = series.last()?;
            let (least, greatest) = series.range().unwrap_or((f64::NAN, f64::NAN));
            let row = json!([last.step, number(last.value), number(least), number(greatest)]);
            Some((tag.clone(), row))
        })
        .collect();
    json!({
        "id": run.id, "name": run.name, "seq": run.seq, "metrics": metrics, "hparams": run.hparams,
        "environment": run.environment, "model": run.config.get("model"), "trainer": run.config.get("trainer"),
        "state": run.state, "reason": run.status.get("reason"), "notes": run.notes,
        "first_time": run.first_time, "last_time": run.last_time,
        "histograms": run.histograms.keys().collect::<Vec<_>>(), "images": run.images.keys().collect::<Vec<_>>(),
        "audio": run.audio.keys().collect::<Vec<_>>(), "pr_curves": run.pr_curves.keys().collect::<Vec<_>>(),
        "checkpoints": run.checkpoints.len(), "texts": run.texts.keys().collect::<Vec<_>>(), "ranks": run.ranks.keys().collect::<Vec<_>>(),
        "logs": run.logs.iter().map(|(name, _)| name).collect::<Vec<_>>(), "problems": run.problems,
        "models": run.models.iter().map(|(name, _)| name).collect::<Vec<_>>(),
    })
}

/// The new points of a curve.
fn points(series: &Series, since: u64) -> Option<Json> {
    let (all, points) = series.since(since, MAX_POINTS)?;
    Some(json!({
        "all": all,
        "steps": points.iter().map(|p| p.step).collect::<Vec<_>>(),
        "times": points.iter().map(|p| number(p.time)).collect::<Vec<_>>(),
        "values": points.iter().map(|p| number(p.value)).collect::<Vec<_>>(),
    }))
}

fn scalars(run: &Run, since: u64) -> Json {
    let series: Map<String, Json> =
        run.series.iter().filter_map(|(tag, (_, series))| Some((tag.clone(), points(series, since)?))).collect();
    json!({ "run": run.id, "seq": run.seq, "series": series })
}

fn ranks(run: &Run, since: u64) -> Json {
    let of_rank = |all: &std::collections::BTreeMap<String, Series>| -> Map<String, Json> {
        all.iter().filter_map(|(tag, series)| Some((tag.clone(), points(series, since)?))).collect()
    };
    let ranks: Map<String, Json> =
        run.ranks.iter().map(|(rank, all)| (rank.to_string(), of_rank(all).into())).collect();
    json!({ "run": run.id, "seq": run.seq, "ranks": ranks })
}

fn histograms(run: &Run) -> Json {
    let all: Map<String, Json> = run
        .histograms
        .iter()
        .map(|(tag, all)| {
            let rows: Vec<Json> = all
                .iter()
                .map(|h| {
                    json!({"step": h.step, "time": number(h.time), "edges": h.buckets.edges, "counts": h.buckets.counts})
                })
                .collect();
            (tag.clone(), rows.into())
        })
        .collect();
    json!({ "run": run.id, "seq": run.seq, "histograms": all })
}

fn texts(run: &Run) -> Json {
    let all: Map<String, Json> = run
        .texts
        .iter()
        .map(|(tag, all)| {
            let rows = all.iter().map(|t| json!({"step": t.step, "time": number(t.time), "text": t.text}));
            (tag.clone(), rows.collect::<Vec<Json>>().into())
        })
        .collect();
    json!({ "run": run.id, "seq": run.seq, "texts": all })
}

/// Steps of images or sounds.
fn encoded(run: &Run, what: &str, all: &BTreeMap<String, Vec<Encoded>>) -> Json {
    let all: Map<String, Json> = all
        .iter()
        .map(|(tag, all)| {
            let rows = all.iter().map(|i| json!({"step": i.step, "time": number(i.time)}));
            (tag.clone(), rows.collect::<Vec<Json>>().into())
        })
        .collect();
    json!({ "run": run.id, "seq": run.seq, what: all })
}

fn pr_curves(run: &Run) -> Json {
    let all: Map<String, Json> = run
        .pr_curves
        .iter()
        .map(|(tag, all)| {
            let rows = all.iter().map(|c| {
                let [tp, fp, tn, fal] = c.curve.counts();
                json!({
                    "step": c.step, "time": number(c.time), "precision": c.curve.precision(), "recall": c.curve.recall(),
                    "tp": tp, "fp": fp, "tn": tn, "fn": fal,
                })
            });
            (tag.clone(), rows.collect::<Vec<Json>>().into())
        })
        .collect();
    json!({ "run": run.id, "seq": run.seq, "pr_curves": all })
}

fn checkpoints(run: &Run) -> Json {
    let rows = run.checkpoints.iter().map(|c| {
        json!({
            "name": c.name, "time": number(c.time), "bytes": c.bytes, "step": c.step, "epoch": c.epoch,
            "metric": c.metric.map(number), "metric_name": c.metric_name,
        })
    });
    json!({ "run": run.id, "seq": run.seq, "checkpoints": rows.collect::<Vec<Json>>() })
}

/// The image or sound of a name and step.
fn media(store: &Store, request: &Request, of: impl Fn(&Run) -> &BTreeMap<String, Vec<Encoded>>) -> Option<Response> {
    let id: u64 = request.query("run")?.parse().ok()?;
    let (tag, step) = (request.query("tag")?, request.query("step")?.parse::<i64>().ok()?);
    let item = of(store.lock().runs.get(&id)?).get(tag)?.iter().rev().find(|item| item.step == step)?.clone();
    if item.len > MAX_MEDIA {
        return Some(Response::text(410, "it is too large to be shown"));
    }
    Some(match read_media(store, &item) {
        Ok(Some((kind, bytes))) => Response::new(200, kind, bytes),
        _ => Response::text(410, "the file has changed since; reload the page"),
    })
}

/// The bytes of an image or a sound and their kind; `None` if they are neither: an SVG could hold scripts.
fn read_media(store: &Store, item: &Encoded) -> std::io::Result<Option<(&'static str, Vec<u8>)>> {
    let mut bytes = vec![0; item.len.min(MAX_MEDIA)];
    let mut file = store.open(&item.file)?;
    file.seek(SeekFrom::Start(item.offset))?;
    file.read_exact(&mut bytes)?;
    Ok(media_kind(&bytes).map(|kind| (kind, bytes)))
}

fn media_kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some("audio/wav"),
        [b'f', b'L', b'a', b'C', ..] => Some("audio/flac"),
        [b'O', b'g', b'g', b'S', ..] => Some("audio/ogg"),
        [b'I', b'D', b'3', ..] | [0xff, 0xfb | 0xf3 | 0xf2, ..] => Some("audio/mpeg"),
        _ => None,
    }
}

/// Keeps the user's notes and tags in the run's directory, as `notes.json`.
fn notes(store: &Store, request: &Request) -> Option<Response> {
    let id: u64 = request.query("run")?.parse().ok()?;
    let name = store.lock().runs.get(&id)?.name.clone();
    if !request.writes {
        return Some(Response::text(405, "notes are written by the page"));
    }
    let given: Json = match serde_json::from_slice(&request.body) {
        Ok(given) => given,
        Err(_) => return Some(Response::text(400, "a note is JSON")),
    };
    let text = given.get("text").and_then(Json::as_str).unwrap_or_default();
    let tags = given.get("tags").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let tags: Vec<&str> = tags.iter().filter_map(Json::as_str).map(str::trim).filter(|tag| !tag.is_empty()).collect();
    let notes = json!({ "text": text, "tags": tags });
    let written = store.write(&name, "notes.json", format!("{notes:#}\n").as_bytes());
    if let Err(e) = written {
        return Some(Response::text(410, format!("the note cannot be written: {e}")));
    }
    let mut state = store.lock();
    let run = state.runs.get_mut(&id)?;
    run.notes = notes;
    run.seq += 1;
    state.version += 1;
    Some(Response::json(&json!({ "kept": true })))
}

/// A piece of a log: from an offset on, or the end.
fn log(store: &Store, request: &Request) -> Option<Response> {
    let id: u64 = request.query("run")?.parse().ok()?;
    let name = request.query("file")?;
    let path = store.lock().runs.get(&id)?.logs.iter().find(|(known, _)| known == name)?.1.clone();
    let from = request.query("from").and_then(|text| text.parse::<u64>().ok());
    match store.open(&path).and_then(|file| read_log(file, from)) {
        Ok(log) => Some(Response::json(&log)),
        Err(_) => Some(Response::text(410, "the log cannot be read any more")),
    }
}

/// The picture of an exported model.
fn model(store: &Store, request: &Request) -> Option<Response> {
    let id: u64 = request.query("run")?.parse().ok()?;
    let name = request.query("file")?;
    let path = store.lock().runs.get(&id)?.models.iter().find(|(known, _)| known == name)?.1.clone();
    match store.open(&path) {
        Ok(file) => Some(Response::json(&draw(file))),
        Err(_) => Some(Response::text(410, "the model cannot be read any more")),
    }
}

/// A model as markup and text, or why it cannot be drawn. One is drawn at a time: its weights are in memory meanwhile.
fn draw(file: File) -> Json {
    static DRAWING: Mutex<()> = Mutex::new(());
    let _one = rushlight_core::sync::lock(&DRAWING);
    let drawn = || -> rushlight_core::Result<Json> {
        if file.metadata()?.len() > MAX_MODEL {
            let message = "the file is too large for the page; rushlight show --html FILE MODEL draws it";
            return Err(rushlight_core::Error::unsupported(message));
        }
        let mut bytes = Vec::new();
        file.take(MAX_MODEL).read_to_end(&mut bytes)?;
        let model = rushlight_graph::Model::from_bytes(&bytes)?;
        let (svg, note) = model.to_svg()?;
        Ok(json!({ "svg": svg, "note": note, "text": model.text()? }))
    };
    // Connections have small stacks, programs may be nested.
    let result = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn_scoped(scope, drawn);
        match thread.map(|thread| thread.join()) {
            Ok(Ok(drawn)) => drawn,
            Ok(Err(_)) => Err(rushlight_core::Error::value("drawing the model failed")),
            Err(e) => Err(e.into()),
        }
    });
    result.unwrap_or_else(|e| json!({ "error": e.to_string() }))
}

fn read_log(mut file: File, from: Option<u64>) -> std::io::Result<Json> {
    let size = file.metadata()?.len();
    // A log shorter than the last position was replaced.
    let from = from.filter(|from| *from <= size).unwrap_or_else(|| size.saturating_sub(MAX_LOG));
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG).read_to_end(&mut bytes)?;
    // An incomplete UTF-8 character is left for the next piece, unless it is invalid.
    let whole = match std::str::from_utf8(&bytes) {
        Err(e) if e.error_len().is_none() && e.valid_up_to() > 0 => e.valid_up_to(),
        _ => bytes.len(),
    };
    let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
    Ok(json!({ "from": from, "to": from + whole as u64, "size": size, "text": text }))
}
