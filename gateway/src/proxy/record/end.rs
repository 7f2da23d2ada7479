//! The end of a record: what it tells the metrics, the trace and the access log.
//!
//! Owns: the moment of each: the counters by `count`, at the latest with the rest when the record is dropped. Must not: change what happened.

use std::time::{Duration, Instant};

use http::Version;

use super::{Record, text};
use crate::telemetry::labels::{Direction, Ending, Outcome, ResumeResult, ResumeWay, TokenKind};
use crate::telemetry::logs::AccessRecord;
use crate::telemetry::traces::RequestEnd;

impl Record {
    /// Counts the request as ended as it stands, before its record goes: whoever has the answer finds it in the metrics. Once.
    pub fn count(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            self.in_flight = None;
            self.count_after(self.started.elapsed());
        }
    }

    fn count_after(&self, whole: Duration) {
        let unknown;
        let metrics = match &self.pool {
            Some(metrics) => metrics,
            None => {
                unknown = self.telemetry.metrics.unknown_pool();
                &unknown
            }
        };
        metrics.request(self.route, self.outcome);
        metrics.duration(whole);
        let usage = self.usage;
        for (kind, count) in
            [(TokenKind::Prompt, usage.prompt), (TokenKind::Completion, usage.completion), (TokenKind::Cached, usage.cached)]
        {
            if let Some(count) = count {
                metrics.tokens(kind, count);
            }
        }
        metrics.bytes(Direction::Request, self.request_bytes);
        metrics.bytes(Direction::Response, self.response_bytes);
        if self.outcome == Outcome::Cancelled {
            metrics.client_cancelled(self.cancelled);
        }
        if self.stream
            && let Some(ending) = self.ending.or((self.outcome == Outcome::Cancelled).then_some(Ending::ClientGone))
        {
            metrics.ending(ending);
        }
    }

    /// The client went away. What it held is dropped before this record: the leader's connection is closed by now.
    fn left(&mut self) {
        if self.trail.is_trying() {
            self.cancelled = self.cancelled.or_else(|| self.gone.get().map(Instant::elapsed));
        }
        if let Some(cause) = self.broken.take() {
            self.resumed(cause, ResumeWay::None, ResumeResult::Cancelled);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // A client that left while it waited may have got its 200 before.
        self.comforted();
        if self.outcome == Outcome::Cancelled {
            self.left();
        }
        self.count();
        let whole = self.started.elapsed();
        self.trail.finish(&RequestEnd {
            status: self.status,
            outcome: Some(self.outcome),
            reason: self.reason,
            request_id: self.request_id.to_str().unwrap_or_default(),
            pool: text(&self.model),
            group: text(&self.group),
            attempts: self.attempts,
            resumes: self.resumes,
            first_token: self.first_token,
            usage: self.usage,
        });
        let access = self.telemetry.access.load();
        let Some(log) = access.as_ref() else { return };
        log.write(&AccessRecord {
            request_id: self.request_id.to_str().unwrap_or_default(),
            trace_id: text(&self.trail.trace_id),
            client: Some(self.client),
            method: self.method.as_str(),
            path: &self.path,
            protocol: protocol(self.version),
            route: Some(self.route),
            pool: text(&self.model),
            model: text(&self.model),
            group: text(&self.group),
            status: self.status,
            outcome: Some(self.outcome),
            reason: self.reason,
            ending: self.ending,
            stream: Some(self.stream),
            attempts: self.attempts,
            resumes: self.resumes,
            queue: self.queue,
            first_byte: self.first_byte,
            first_token: self.first_token,
            duration: Some(whole),
            request_bytes: Some(self.request_bytes),
            response_bytes: Some(self.response_bytes),
            prompt_tokens: self.usage.prompt,
            completion_tokens: self.usage.completion,
            cached_tokens: self.usage.cached,
        });
    }
}

/// What the client speaks, as the access line says it.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}
