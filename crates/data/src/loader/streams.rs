//! Batches of datasets that are read from front to back.

use super::fetch::catch_panic;
use crate::dataset::WorkerInfo;
use rushlight_core::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A worker's batches.
pub(super) type BatchStream<B> = Box<dyn Iterator<Item = Result<B>> + Send>;

/// How a loader opens a worker's batches.
pub(super) type Open<B> = Arc<dyn Fn(&WorkerInfo) -> Result<BatchStream<B>> + Send + Sync>;

/// A stream's samples in batches.
pub(super) struct Batches<I: Iterator, F> {
    pub samples: I,
    pub batch_size: usize,
    pub drop_last: bool,
    pub collate: Arc<F>,
}

impl<T, B, I, F> Iterator for Batches<I, F>
where
    I: Iterator<Item = Result<T>>,
    F: Fn(Vec<T>) -> Result<B>,
{
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let batch: Vec<T> = match self.samples.by_ref().take(self.batch_size).collect() {
            Ok(batch) => batch,
            Err(e) => return Some(Err(e)),
        };
        let whole = batch.len() == self.batch_size || (!self.drop_last && !batch.is_empty());
        whole.then(|| (self.collate)(batch))
    }
}

/// The workers' batches in turn, each read ahead by its own thread.
///
/// Dropping it does not wait for the threads: a stream may block for long, on a socket say. Each ends when it next has
/// a batch to deliver.
pub(super) struct Streams<B> {
    /// `None` for a stream that has ended.
    workers: Vec<Option<Receiver<Result<B>>>>,
    turn: usize,
}

fn read<B>(open: &Open<B>, info: &WorkerInfo, out: &SyncSender<Result<B>>) {
    let within = |e: Error| e.within(&format!("DataLoader: worker {} of {}", info.id, info.count));
    let mut stream = match catch_panic(|| open(info)) {
        Ok(stream) => stream,
        Err(e) => {
            // Nobody listens any more if this fails.
            let _ = out.send(Err(within(e)));
            return;
        }
    };
    loop {
        let (batch, ended) = match catch_panic(|| Ok(stream.next())) {
            Ok(None) => return,
            Ok(Some(batch)) => (batch, false),
            Err(panicked) => (Err(panicked), true),
        };
        if out.send(batch.map_err(within)).is_err() || ended {
            return;
        }
    }
}

impl<B: Send + 'static> Streams<B> {
    pub(super) fn new(open: &Open<B>, infos: Vec<WorkerInfo>, prefetch: usize) -> Result<Self> {
        let mut workers = Vec::with_capacity(infos.len());
        for info in infos {
            let (sender, receiver) = sync_channel(prefetch);
            let open = open.clone();
            std::thread::Builder::new()
                .name(format!("data-worker-{}", info.id))
                .spawn(move || read(&open, &info, &sender))
                .map_err(|e| Error::io(format!("DataLoader: cannot start worker {}: {e}", info.id)))?;
            workers.push(Some(receiver));
        }
        Ok(Self { workers, turn: 0 })
    }
}

impl<B> Iterator for Streams<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let count = self.workers.len();
        for _ in 0..count {
            let worker = &mut self.workers[self.turn];
            self.turn = (self.turn + 1) % count;
            match worker.as_ref().map(Receiver::recv) {
                Some(Ok(batch)) => return Some(batch),
                Some(Err(_)) => *worker = None,
                None => {}
            }
        }
        None
    }
}
