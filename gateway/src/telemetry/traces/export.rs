//! From ended spans to the collector: a bounded queue, batches, one task.
//!
//! Owns: what happens when the collector is slow or gone: spans are dropped and counted, requests go on. Must not: wait for ever at the
//! end; the flush has a bound.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prometheus::IntCounter;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::TraceSettings;
use crate::telemetry::metrics::Metrics;

/// Requests' end of the queue.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: Sender<SpanData>,
    lost: IntCounter,
}

impl SpanQueue {
    /// All spans of a request, or none of them and a count.
    pub(super) fn send(&self, spans: Vec<SpanData>) {
        match self.spans.try_reserve_many(spans.len()) {
            Ok(permits) => permits.zip(spans).for_each(|(permit, span)| permit.send(span)),
            Err(_) => self.lost.inc_by(number(spans.len())),
        }
    }
}

/// The collector's end of the queue: run it in one task until the end of the process.
#[derive(Debug)]
pub struct Export<E> {
    spans: Receiver<SpanData>,
    exporter: E,
    batch: usize,
    delay: Duration,
    timeout: Duration,
    lost: IntCounter,
    exported: IntCounter,
    failing: bool,
}

pub(super) fn queue<E: SpanExporter>(settings: &TraceSettings, exporter: E, metrics: &Metrics) -> (SpanQueue, Export<E>) {
    let (sender, spans) = channel(settings.queue);
    let export = Export {
        spans,
        exporter,
        batch: settings.batch.min(settings.queue),
        delay: settings.delay,
        timeout: settings.timeout,
        lost: metrics.spans_lost.clone(),
        exported: metrics.spans_exported.clone(),
        failing: false,
    };
    (SpanQueue { spans: sender, lost: metrics.spans_lost.clone() }, export)
}

impl<E: SpanExporter> Export<E> {
    /// Sends batches until `stop`, then what is left, for at most `flush`. Stop it after the last request.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send, flush: Duration) {
        let mut stop = pin!(stop);
        loop {
            let mut batch = Vec::with_capacity(self.batch);
            let open = self.fill(&mut batch, stop.as_mut()).await;
            if !open {
                return self.finish(batch, flush).await;
            }
            let began = {
                let mut sending = pin!(self.send(batch));
                tokio::select! {
                    () = sending.as_mut() => continue,
                    () = stop.as_mut() => {}
                }
                let began = Instant::now();
                // Too late for this batch counts it as lost.
                drop(tokio::time::timeout(flush, sending).await);
                began
            };
            return self.finish(Vec::new(), flush.saturating_sub(began.elapsed())).await;
        }
    }

    /// Fills a batch: until it is full, or `delay` after its first span. False when it is time to end.
    async fn fill(&mut self, batch: &mut Vec<SpanData>, mut stop: Pin<&mut (impl Future<Output = ()> + Send)>) -> bool {
        let mut full = pin!(None::<tokio::time::Sleep>);
        while batch.len() < self.batch {
            let room = self.batch - batch.len();
            let waited = async {
                match full.as_mut().as_pin_mut() {
                    Some(timer) => timer.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.as_mut() => return false,
                () = waited => return true,
                got = self.spans.recv_many(batch, room) => if got == 0 { return false },
            }
            if full.is_none() {
                full.set(Some(tokio::time::sleep(self.delay)));
            }
        }
        true
    }

    async fn finish(mut self, mut batch: Vec<SpanData>, flush: Duration) {
        self.spans.close();
        let until = Instant::now() + flush;
        loop {
            while batch.len() < self.batch {
                match self.spans.try_recv() {
                    Ok(span) => batch.push(span),
                    Err(_) => break,
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if batch.is_empty() {
                break;
            }
            // A batch that is given up counts itself as lost; the rest of the queue does not.
            if tokio::time::timeout(left, self.send(std::mem::take(&mut batch))).await.is_err() {
                self.lost.inc_by(number(self.spans.len()));
                break;
            }
        }
        // Nothing is left in the exporter: each batch was awaited.
        drop(self.exporter.shutdown_with_timeout(Duration::ZERO));
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = number(batch.len());
        let mut guard = CountOnDrop { lost: &self.lost, count };
        let failure = match tokio::time::timeout(self.timeout, self.exporter.export(batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} ms", self.timeout.as_millis())),
        };
        match (failure, self.failing) {
            (None, _) => {
                guard.count = 0;
                self.exported.inc_by(count);
                self.failing = false;
            }
            // Once a failure, not once a batch: the counter has the rest.
            (Some(error), false) => {
                tracing::warn!(error, spans = count, "trace export fails");
                self.failing = true;
            }
            (Some(_), true) => {}
        }
    }
}

/// Counts a batch as lost unless it was delivered, also when its future is dropped.
struct CountOnDrop<'a> {
    lost: &'a IntCounter,
    count: u64,
}

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.lost.inc_by(self.count);
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
