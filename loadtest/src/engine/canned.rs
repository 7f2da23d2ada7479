//! Answers for benchmarks: rendered once, written again and again.
//!
//! The proxy between load and engine is to be measured, so the engine must cost as little as an engine can: the body is
//! not parsed (only searched for `stream` and `max_tokens`), nothing is tokenised, and a batch of events is one write of
//! bytes that exist already. The wire form is the same as that of a real answer; the text is one word over and over.

use tokio::time::Instant;

use super::choice::Chunk;
use super::decode::Finish;
use super::events::{DONE, Events, Usage};
use super::exchange::{Exchange, Stop};
use super::generate::Done;
use super::http::reply::{Context, Reply, now, stream_head};
use super::http::request::Request;
use super::job::Job;
use super::parser::Piece;
use super::shared::Shared;
use super::stats::Outcome;
use super::whole::{Answer, Said};
use super::{ask, persona::Persona};

/// The text of each token.
const WORD: &str = " token";

/// Tokens of an answer whose request names no number.
const DEFAULT_TOKENS: usize = 64;

/// How much of each end of a long body is searched.
const SEARCHED: usize = 4096;

/// Everything that is ever written.
#[derive(Debug)]
pub(crate) struct Canned {
    first: Vec<u8>,
    one: Vec<u8>,
    batch: Vec<u8>,
    batch_size: usize,
    last: Vec<u8>,
    whole: Vec<u8>,
}

impl Canned {
    /// Renders the answers of one engine; `None` if its persona refuses the simplest request, which it never does.
    pub(crate) fn new(persona: &Persona, fingerprint: &str, batch_size: usize) -> Option<Self> {
        let request = serde_json::json!({"messages": [{"role": "user", "content": "canned"}], "temperature": 0, "max_tokens": 1});
        let job = Job::new(ask::Ask::from_value(ask::Endpoint::Chat, &request).ok()?, persona, 0).ok()?;
        let mut events = Events::new(&job, "chatcmpl-canned", now(), fingerprint);
        let usage = Usage { prompt: job.prompt_tokens, completion: DEFAULT_TOKENS, reasoning: None };
        let word = |finish| Chunk { index: 0, piece: Some(Piece::Content(WORD.to_owned())), ids: Vec::new(), finish, stop: None };
        let (mut first, mut one, mut last) = (Vec::new(), Vec::new(), Vec::new());
        events.chunk(&mut one, &word(None), usage, false);
        events.role(&mut first, 0, usage);
        first.extend_from_slice(&one);
        events.chunk(&mut last, &word(Some(Finish::Length)), usage, true);
        last.extend_from_slice(DONE);
        let mut said = Said::default();
        for finish in [None, Some(Finish::Length)] {
            said.push(word(finish));
        }
        let whole = Answer { choices: vec![said], usage }.body(&job, "chatcmpl-canned", now(), fingerprint).into_bytes();
        let batch_size = batch_size.max(1);
        Some(Self { first, batch: one.repeat(batch_size), one, batch_size, last, whole })
    }

    pub(crate) async fn answer(&self, shared: &Shared, x: &mut Exchange<'_>, request: &Request, context: &Context) -> Done {
        let running = shared.stats.run();
        let (streamed, tokens) = wanted(&request.body);
        let (sent, events) = if streamed {
            let mut events = 0;
            (self.stream(shared, x, context, (tokens, &mut events)).await, events)
        } else {
            (self.whole(shared, x, context).await, 0)
        };
        drop(running);
        shared.stats.made(tokens);
        let (outcome, reusable) = match sent {
            Ok(()) => (Outcome::Complete, !context.close),
            Err(Stop::Gone) => (Outcome::Cancelled, false),
            Err(Stop::Reset | Stop::Fin | Stop::Ending(_)) => (Outcome::Broken, false),
        };
        Done { outcome, events, reusable, reset: sent == Err(Stop::Reset) }
    }

    async fn whole(&self, shared: &Shared, x: &mut Exchange<'_>, context: &Context) -> Result<(), Stop> {
        x.pause(Instant::now() + shared.config.pace.first_token).await?;
        let mut bytes = Reply::json(200, Vec::new()).head(context, self.whole.len()).into_bytes();
        bytes.extend_from_slice(&self.whole);
        x.send(&bytes).await
    }

    async fn stream(
        &self,
        shared: &Shared,
        x: &mut Exchange<'_>,
        context: &Context,
        (tokens, events): (usize, &mut u64),
    ) -> Result<(), Stop> {
        let pace = &shared.config.pace;
        x.send(stream_head(context).as_bytes()).await?;
        let mut due = Instant::now() + pace.first_token;
        x.pause(due).await?;
        x.send(&self.first).await?;
        *events = 2;
        let mut left = tokens.saturating_sub(2);
        while left > 0 {
            due += pace.token;
            x.pause(due).await?;
            let whole_batch = left >= self.batch_size;
            x.send(if whole_batch { &self.batch } else { &self.one }).await?;
            let sent = if whole_batch { self.batch_size } else { 1 };
            left -= sent;
            *events += sent as u64;
        }
        x.pause(due + pace.token).await?;
        *events += 1;
        x.send(&self.last).await
    }
}

/// `stream` and `max_tokens`, found without parsing.
fn wanted(body: &[u8]) -> (bool, usize) {
    let (head, tail) = if body.len() > 2 * SEARCHED { (&body[..SEARCHED], &body[body.len() - SEARCHED..]) } else { (body, &body[..0]) };
    let value = |name: &[u8]| value_behind(head, name).or_else(|| value_behind(tail, name));
    let streamed = value(b"\"stream\":").is_some_and(|value| value.starts_with(b"true"));
    let digits =
        |value: &[u8]| value.iter().take_while(|byte| byte.is_ascii_digit()).fold(0, |sum, byte| sum * 10 + usize::from(byte - b'0'));
    let tokens = value(b"\"max_tokens\":").map_or(0, |value| digits(&value[..value.len().min(9)]));
    (streamed, if tokens == 0 { DEFAULT_TOKENS } else { tokens })
}

fn value_behind<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    Some(text[memchr::memmem::find(text, name)? + name.len()..].trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_found_at_either_end_of_a_body() {
        assert_eq!(wanted(br#"{"stream": true, "max_tokens": 12}"#), (true, 12));
        assert_eq!(wanted(br#"{"stream":false}"#), (false, DEFAULT_TOKENS));
        let long = format!("{{\"prompt\":\"{}\",\"max_tokens\":7,\"stream\":true}}", "x".repeat(100_000));
        assert_eq!(wanted(long.as_bytes()), (true, 7));
    }
}
