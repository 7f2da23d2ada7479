//! Events of a stream, field by field as the engine writes them.
//!
//! Owns the order of fields (engine facts, section 2, checked against recorded answers) and the chunk that each event
//! is. Everything that stays the same in a stream is rendered once. Decides nothing about when to write.

use std::io::Write as _;

use super::ask::Endpoint;
use super::choice::Chunk;
use super::job::Job;
use super::parser::Piece;
use crate::text::token;

/// The counters of a usage object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, a continued prefix among them.
    pub prompt: usize,
    /// Tokens made, all choices together.
    pub completion: usize,
    /// Of them reasoning, with a reasoning parser.
    pub reasoning: Option<usize>,
}

/// Renders the events of one stream.
#[derive(Debug)]
pub struct Events {
    /// Everything before the choices.
    head: String,
    chat: bool,
    ids: bool,
    logprobs: bool,
    continuous: bool,
    prompt_ids: Option<String>,
    prompt_text: Option<String>,
    role: String,
    fingerprint: String,
    scratch: Vec<u8>,
}

/// The end of every stream: the mark and the last chunk.
pub const DONE: &[u8] = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

/// The mark alone, as a chunk.
pub const DONE_MARK: &[u8] = b"e\r\ndata: [DONE]\n\n\r\n";

/// The comment of `--sse-keep-alive-interval`, as a chunk.
pub const KEEP_ALIVE: &[u8] = b"e\r\n: keep-alive\n\n\r\n";

/// Wraps `body` in a chunk.
pub fn chunked(out: &mut Vec<u8>, body: &[u8]) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{:x}\r\n", body.len());
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
}

impl Events {
    /// For the stream of `job`.
    pub fn new(job: &Job, id: &str, created: u64, fingerprint: &str) -> Self {
        let chat = job.ask.endpoint == Endpoint::Chat;
        let object = if chat { "chat.completion.chunk" } else { "text_completion" };
        let head = format!(
            "data: {{\"id\":{},\"object\":\"{object}\",\"created\":{created},\"model\":{},\"choices\":[",
            quoted(id),
            quoted(&job.model)
        );
        Self {
            head,
            chat,
            ids: job.ask.return_token_ids,
            logprobs: job.ask.logprobs,
            continuous: job.ask.continuous_usage,
            prompt_ids: job.ask.return_token_ids.then(|| list(&job.prompt_ids())),
            prompt_text: job.ask.return_prompt_text.then(|| quoted(&job.split.prompt_text())),
            role: quoted(&job.split.role),
            fingerprint: quoted(fingerprint),
            scratch: Vec::with_capacity(512),
        }
    }

    /// The event that opens a choice of a chat.
    pub fn role(&mut self, out: &mut Vec<u8>, index: usize, usage: Usage) {
        self.begin();
        let role = self.role.clone();
        self.put(format_args!(
            "{{\"index\":{index},\"delta\":{{\"role\":{role},\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]"
        ));
        self.put_usage(usage);
        let ids = self.prompt_ids.clone().unwrap_or_else(null);
        let text = self.prompt_text.clone().unwrap_or_else(null);
        self.put(format_args!(",\"prompt_token_ids\":{ids},\"prompt_text\":{text}"));
        self.end(out);
    }

    /// `echo`: the prefix in an event of its own.
    pub fn echo(&mut self, out: &mut Vec<u8>, index: usize, prefix: &str, usage: Usage) {
        self.begin();
        self.put(format_args!("{{\"index\":{index},\"delta\":{{\"content\":"));
        self.put_text(prefix);
        self.put(format_args!("}},\"logprobs\":null,\"finish_reason\":null}}]"));
        self.put_usage(usage);
        self.end(out);
    }

    /// An event with text; `last` is the one before the mark.
    pub fn chunk(&mut self, out: &mut Vec<u8>, chunk: &Chunk, usage: Usage, last: bool) {
        self.begin();
        if self.chat {
            self.chat_choice(chunk);
        } else {
            self.text_choice(chunk);
        }
        self.put_usage(usage);
        if last {
            self.put_fingerprint();
        }
        self.end(out);
    }

    /// The usage event, which is the last before the mark.
    pub fn usage(&mut self, out: &mut Vec<u8>, usage: Usage) {
        self.begin();
        self.put(format_args!("],\"usage\":{{\"prompt_tokens\":{},\"total_tokens\":{},", usage.prompt, usage.prompt + usage.completion));
        self.put(format_args!("\"completion_tokens\":{}", usage.completion));
        if let Some(reasoning) = usage.reasoning {
            self.put(format_args!(",\"completion_tokens_details\":{{\"reasoning_tokens\":{reasoning}}}"));
        }
        self.put(format_args!("}}"));
        self.put_fingerprint();
        self.end(out);
    }

    fn chat_choice(&mut self, chunk: &Chunk) {
        let index = chunk.index;
        self.put(format_args!("{{\"index\":{index},\"delta\":{{"));
        match &chunk.piece {
            None => {}
            Some(Piece::Content(text)) => {
                self.scratch.extend_from_slice(b"\"content\":");
                self.put_text(text);
            }
            Some(Piece::Reasoning(text)) => {
                self.scratch.extend_from_slice(b"\"reasoning\":");
                self.put_text(text);
            }
            Some(Piece::ToolStart { id, name }) => {
                let (id, name) = (quoted(id), quoted(name));
                self.put(format_args!(
                    "\"content\":null,\"tool_calls\":[{{\"id\":{id},\"type\":\"function\",\"index\":0,\"function\":{{\"name\":{name}}}}}]"
                ));
            }
            Some(Piece::ToolArguments(text)) => {
                self.scratch.extend_from_slice(b"\"content\":null,\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":");
                self.put_text(text);
                self.scratch.extend_from_slice(b"}}]");
            }
        }
        self.scratch.extend_from_slice(b"},\"logprobs\":");
        if self.logprobs {
            let logprobs = logprobs(&chunk.ids);
            self.scratch.extend_from_slice(logprobs.as_bytes());
        } else {
            self.scratch.extend_from_slice(b"null");
        }
        self.put_finish(chunk, false);
        self.put_ids(&chunk.ids);
    }

    fn text_choice(&mut self, chunk: &Chunk) {
        let index = chunk.index;
        self.put(format_args!("{{\"index\":{index},\"text\":"));
        let text = if let Some(Piece::Content(text)) = &chunk.piece { text.as_str() } else { "" };
        self.put_text(text);
        self.scratch.extend_from_slice(b",\"logprobs\":null");
        self.put_finish(chunk, true);
        // Only the first event has them.
        let ids = self.prompt_ids.take().unwrap_or_else(null);
        self.put(format_args!(",\"prompt_token_ids\":{ids}"));
        self.put_ids(&chunk.ids);
    }

    fn put_finish(&mut self, chunk: &Chunk, stop_always: bool) {
        let stop = chunk.stop.as_deref().map_or_else(null, quoted);
        match chunk.finish {
            Some(finish) => self.put(format_args!(",\"finish_reason\":\"{}\",\"stop_reason\":{stop}", finish.as_str())),
            None if stop_always => self.scratch.extend_from_slice(b",\"finish_reason\":null,\"stop_reason\":null"),
            None => self.scratch.extend_from_slice(b",\"finish_reason\":null"),
        }
    }

    fn put_ids(&mut self, ids: &[u32]) {
        self.scratch.extend_from_slice(b",\"token_ids\":");
        if self.ids {
            let list = list(ids);
            self.scratch.extend_from_slice(list.as_bytes());
        } else {
            self.scratch.extend_from_slice(b"null");
        }
        self.scratch.extend_from_slice(b"}]");
    }

    fn put_usage(&mut self, usage: Usage) {
        if self.continuous {
            let object = usage_object(usage, "\"completion_tokens_details\"");
            self.put(format_args!(",\"usage\":{object}"));
        }
    }

    fn put_fingerprint(&mut self) {
        self.scratch.extend_from_slice(b",\"system_fingerprint\":");
        self.scratch.extend_from_slice(self.fingerprint.as_bytes());
    }

    fn begin(&mut self) {
        self.scratch.clear();
        self.scratch.extend_from_slice(self.head.as_bytes());
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.scratch.extend_from_slice(b"}\n\n");
        chunked(out, &self.scratch);
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.scratch.write_fmt(text);
    }

    fn put_text(&mut self, text: &str) {
        put_quoted(&mut self.scratch, text);
    }
}

/// The usage object with its details, `null` where they are not counted.
pub(crate) fn usage_object(usage: Usage, details: &str) -> String {
    let reasoning = usage.reasoning.map_or_else(null, |tokens| format!("{{\"reasoning_tokens\":{tokens}}}"));
    let total = usage.prompt + usage.completion;
    format!(
        "{{\"prompt_tokens\":{},\"total_tokens\":{total},\"completion_tokens\":{},{details}:{reasoning}}}",
        usage.prompt, usage.completion
    )
}

/// JSON text of a string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    put_quoted(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

/// JSON list of ids.
pub(crate) fn list(ids: &[u32]) -> String {
    let mut out = String::with_capacity(ids.len() * 5 + 2);
    out.push('[');
    for (at, id) in ids.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&id.to_string());
    }
    out.push(']');
    out
}

/// `null`, for places that take a string of JSON.
pub(crate) fn null() -> String {
    "null".to_owned()
}

/// `logprobs.content` with numbers made up from the ids.
pub(crate) fn logprobs(ids: &[u32]) -> String {
    let entry = |id: &u32| {
        let bytes = token::bytes_of(*id);
        let text = quoted(std::str::from_utf8(bytes).unwrap_or(""));
        let codes = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        let value = -f64::from(id % 97 + 1) / 1024.0;
        format!("{{\"token\":{text},\"logprob\":{value},\"bytes\":[{codes}],\"top_logprobs\":[]}}")
    };
    format!("{{\"content\":[{}]}}", ids.iter().map(entry).collect::<Vec<_>>().join(","))
}

fn put_quoted(out: &mut Vec<u8>, text: &str) {
    // Writing a string to a vector cannot fail.
    let _ = serde_json::to_writer(out, text);
}
