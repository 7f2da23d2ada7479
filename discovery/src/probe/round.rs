//! One round of probing: health, names, generation, in this order on one connection; the first step that fails ends it.
//!
//! Owns: the order of the steps and the reason each failure has. Must not: decide what the result means for the group (`record`).

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::ProbeTarget;
use super::answer::{Generated, generated, model_names};
use super::counters::{ProbeResult, ProbeStep, Tally};
use super::key::KeyFile;
use super::record::Outcome;
use super::session::{Call, CallError, Session};
use crate::dial::{DialError, Dialer};
use crate::snapshot::Reason;

/// A model list of a thousand adapters is about 500 KiB.
const MODELS_BYTES: usize = 1024 * 1024;
/// A one-token answer, an error text or a health page.
const ANSWER_BYTES: usize = 64 * 1024;

/// What a round works with.
pub(super) struct Round<'a> {
    pub(super) dialer: &'a Dialer,
    pub(super) tally: &'a Tally,
    pub(super) target: &'a ProbeTarget,
}

/// A failed step: its reason in the verdict, and its result in the counters unless the session counted it (a dial).
struct Miss {
    reason: Reason,
    result: Option<ProbeResult>,
}

impl Miss {
    fn new(reason: Reason, result: ProbeResult) -> Self {
        Self { reason, result: Some(result) }
    }
}

impl Round<'_> {
    /// Asks; `generate` adds the one-token generation.
    pub(super) async fn run(&self, key: &mut KeyFile, generate: bool) -> Outcome {
        let mut session = Session::new(self.dialer, self.tally, self.target);
        let mut models = None;
        let failure = self.steps(&mut session, key, generate, &mut models).await.err();
        Outcome { models, failure }
    }

    async fn steps(
        &self,
        session: &mut Session<'_>,
        key: &mut KeyFile,
        generate: bool,
        models: &mut Option<Arc<[Arc<str>]>>,
    ) -> Result<(), Reason> {
        let healthy = self.health(session).await;
        self.count(ProbeStep::Health, healthy)?;
        let listed = self.models(session, key).await;
        let names = models.insert(self.count(ProbeStep::Models, listed.map(|names| (ProbeResult::Ok, names)))?).clone();
        if generate {
            let made = self.generation(session, &self.model_of(&names)).await;
            self.count(ProbeStep::Generation, made)?;
        }
        Ok(())
    }

    async fn health(&self, session: &mut Session<'_>) -> Result<(ProbeResult, ()), Miss> {
        let call = Call { path: "/health", json: None, limit: self.target.settings.probe.timeout, max_bytes: ANSWER_BYTES };
        let answer = session.call(call).await.map_err(|error| miss(&error, Reason::HealthFailed))?;
        match answer.status.as_u16() {
            200 => Ok((ProbeResult::Ok, ())),
            404 if self.target.router => Ok((ProbeResult::Skipped, ())),
            _ => Err(Miss::new(Reason::HealthFailed, ProbeResult::Failed)),
        }
    }

    async fn models(&self, session: &mut Session<'_>, key: &mut KeyFile) -> Result<Arc<[Arc<str>]>, Miss> {
        if let Some(configured) = &self.target.settings.engine_key {
            let value = key.read(&configured.file).await;
            session.key = Some(value.ok_or(Miss::new(Reason::EngineKeyUnreadable, ProbeResult::Key))?);
        }
        let call = Call { path: "/v1/models", json: None, limit: self.target.settings.probe.timeout, max_bytes: MODELS_BYTES };
        let answer = session.call(call).await.map_err(|error| miss(&error, Reason::ModelsFailed))?;
        match answer.status.as_u16() {
            200 => model_names(&answer.body).ok_or(Miss::new(Reason::ModelsFailed, ProbeResult::Failed)),
            401 | 403 => Err(Miss::new(Reason::EngineKeyRefused, ProbeResult::Key)),
            _ => Err(Miss::new(Reason::ModelsFailed, ProbeResult::Failed)),
        }
    }

    /// A completion, since every generating model has it; a chat where an engine offers only that. Neither: the model does not generate.
    async fn generation(&self, session: &mut Session<'_>, model: &str) -> Result<(ProbeResult, ()), Miss> {
        let completion = json!({"model": model, "prompt": "a", "max_tokens": 1, "temperature": 0, "stream": false});
        let chat =
            json!({"model": model, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "temperature": 0, "stream": false});
        for (path, body) in [("/v1/completions", completion), ("/v1/chat/completions", chat)] {
            let limit = self.target.settings.probe.generation_timeout;
            let call = Call { path, json: Some(Bytes::from(body.to_string())), limit, max_bytes: ANSWER_BYTES };
            let answer = session.call(call).await.map_err(|error| generation_miss(&error))?;
            match generated(answer.status, &answer.body) {
                Generated::Good => return Ok((ProbeResult::Ok, ())),
                Generated::NotHere => {}
                Generated::KeyRefused => return Err(Miss::new(Reason::EngineKeyRefused, ProbeResult::Key)),
                Generated::Failed => return Err(Miss::new(Reason::GenerationFailed, ProbeResult::Failed)),
            }
        }
        Ok((ProbeResult::Skipped, ()))
    }

    /// The name that Kubernetes tells, if the engine knows it; else the engine's first, which is its base model.
    fn model_of(&self, names: &[Arc<str>]) -> Arc<str> {
        let hinted = self.target.model_hint.as_ref().filter(|hint| names.contains(hint));
        hinted.or(names.first()).cloned().unwrap_or_default()
    }

    fn count<T>(&self, step: ProbeStep, ended: Result<(ProbeResult, T), Miss>) -> Result<T, Reason> {
        match ended {
            Ok((result, value)) => {
                self.tally.add(step, result);
                Ok(value)
            }
            Err(miss) => {
                if let Some(result) = miss.result {
                    self.tally.add(step, result);
                }
                Err(miss.reason)
            }
        }
    }
}

fn miss(error: &CallError, broken: Reason) -> Miss {
    tracing::debug!(%error, "probe failed");
    match error {
        CallError::Timeout => Miss::new(Reason::ProbeTimeout, ProbeResult::Timeout),
        CallError::Broken(_) => Miss::new(broken, ProbeResult::Failed),
        CallError::Dial(error) => Miss { reason: dial_reason(error, broken), result: None },
    }
}

fn dial_reason(error: &DialError, broken: Reason) -> Reason {
    match error {
        DialError::Refused | DialError::Unreachable | DialError::Resolve(_) => Reason::ProbeRefused,
        DialError::Timeout(_) => Reason::ProbeTimeout,
        DialError::Tls(_) => Reason::TlsFailed,
        DialError::Io(_) => broken,
    }
}

/// The port answered just before: whatever goes wrong now is the generation's failure, silence among it.
fn generation_miss(error: &CallError) -> Miss {
    Miss { reason: Reason::GenerationFailed, ..miss(error, Reason::GenerationFailed) }
}
