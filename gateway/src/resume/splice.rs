//! Makes the events of another leader's rest events of the client's one stream.
//!
//! Owns the rewriting: first `id`, `created`, `model` and `system_fingerprint`; no second role; what was sent already is
//! compared and swallowed; usage of one request; completion events as chat events for the token id way. It keeps no
//! record; the journal is fed with what comes out of here.

use bytes::Bytes;

use super::chunk::{Choice, Chunk, REASONING, ToolDelta};
use super::expect::{Differs, Expect};
use super::journal::{Head, Journal};
use super::json::{self, Object, Writer};
use super::rewrite;
use super::shape::Shape;
use super::trim;
use super::usage::Moved;

/// How one rest is joined to what was sent.
#[derive(Debug, Default)]
pub(super) struct Splice {
    /// By choice; choices not in it have nothing that comes again.
    pub(super) expects: Vec<Expect>,
    /// What usage counts as prompt and is completion to the client; `None`: usage is right as it comes.
    pub(super) moved: Option<Moved>,
    /// Completion events are to become chat events.
    pub(super) to_chat: bool,
    /// The usual event, once all that was sent has come again.
    pub(super) usual: Option<Relabel>,
}

/// What becomes of one event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spliced {
    /// This JSON goes on in its place.
    Event(Vec<u8>),
    /// The client knows all of it.
    Nothing,
}

impl Splice {
    /// All that was sent has come again.
    pub(super) fn caught_up(&self) -> bool {
        self.expects.iter().all(Expect::done)
    }

    /// The bytes to pass on for an event of the learned build; its text is kept. `None`: it must be parsed.
    pub(super) fn usual(&self, data: &[u8], journal: &mut Journal) -> Option<Bytes> {
        self.usual.as_ref()?.apply(data, journal)
    }

    /// Learns how the event was rewritten, once all that was sent has come again.
    pub(super) fn learn(&mut self, (data, chunk): (&[u8], &Chunk<'_>), (json, written): (&[u8], &Chunk<'_>), journal: &mut Journal) {
        if let (Some((index, field, text)), Some((_, _, new))) = (chunk.only_text(), written.only_text()) {
            let Some(slot) = journal.slot(index) else { return };
            self.usual =
                Shape::learn(data, text, field, slot).zip(Shape::learn(json, new, field, slot)).map(|(from, to)| Relabel { from, to });
        }
    }

    /// Rewrites one event.
    pub(super) fn event(&mut self, chunk: &Chunk<'_>, journal: &Journal) -> Result<Spliced, Differs> {
        let mut choices = Vec::new();
        for choice in &chunk.choices {
            if let Some(json) = self.choice(choice, journal)? {
                if !choices.is_empty() {
                    choices.push(b',');
                }
                choices.extend_from_slice(&json);
            }
        }
        if choices.is_empty() && !chunk.choices.is_empty() {
            return Ok(Spliced::Nothing);
        }
        Ok(Spliced::Event(self.top(chunk, &choices, journal)))
    }

    fn top(&self, chunk: &Chunk<'_>, choices: &[u8], journal: &Journal) -> Vec<u8> {
        let head = journal.head.as_deref();
        let mut writer = Writer::new(Vec::with_capacity(choices.len() + 256));
        for (name, raw) in chunk.top.fields() {
            match name {
                "id" | "created" | "model" => writer.raw(name, first(head, name).unwrap_or(raw.get())),
                "object" if self.to_chat => writer.string(name, "chat.completion.chunk"),
                "system_fingerprint" => writer.raw(name, journal.fingerprint.as_deref().unwrap_or(raw.get())),
                "choices" => {
                    let out = writer.name(name);
                    out.push(b'[');
                    out.extend_from_slice(choices);
                    out.push(b']');
                }
                "usage" => self.usage(&mut writer, Object::of(raw), raw.get()),
                _ => writer.raw(name, raw.get()),
            }
        }
        writer.finish()
    }

    fn usage(&self, writer: &mut Writer, usage: Option<Object<'_>>, raw: &str) {
        match (self.moved, usage) {
            (Some(moved), Some(usage)) => {
                let out = writer.name("usage");
                *out = moved.rewrite(&usage, std::mem::take(out));
            }
            (_, None) | (None, _) => writer.raw("usage", raw),
        }
    }

    /// One choice's JSON, or `None` if the client knows all of it.
    fn choice(&mut self, choice: &Choice<'_>, journal: &Journal) -> Result<Option<Vec<u8>>, Differs> {
        let sent = journal.choices.iter().find(|sent| sent.index == choice.index);
        let place = self.expect(choice.index);
        let expect = &mut self.expects[place];
        let behind = !expect.done();
        let news = News::of(choice, expect)?;
        let known_finish = match choice.finish.as_deref() {
            Some(reason) => expect.take_finish(reason)?,
            None => false,
        };
        let role = choice.delta.get("role").is_some() && !sent.is_some_and(|sent| sent.role);
        let only_role = choice.delta.get("role").is_some() && !role && !choice.adds() && choice.finish.is_none();
        let said = role || news.any() || (choice.finish.is_some() && !known_finish);
        let logprobs = trim::logprobs(choice, &mut expect.logprobs);
        let ids = trim::token_ids(choice, &mut expect.ids);
        if !said && (behind || known_finish || only_role || choice.adds()) {
            return Ok(None);
        }
        let over = Overrides { news, role, logprobs, ids };
        Ok(Some(if self.to_chat { over.chat_choice(choice) } else { over.same_choice(choice) }))
    }

    fn expect(&mut self, index: u32) -> usize {
        self.expects.iter().position(|expect| expect.index == index).unwrap_or_else(|| {
            self.expects.push(Expect { index, ..Expect::default() });
            self.expects.len() - 1
        })
    }
}

/// The usual event of a rest: read by the one build, written by the other.
#[derive(Debug)]
pub(super) struct Relabel {
    from: Shape,
    to: Shape,
}

impl Relabel {
    fn apply(&self, data: &[u8], journal: &mut Journal) -> Option<Bytes> {
        let text = self.from.read(data)?;
        journal.add(self.from.slot, self.from.field, text);
        Some(rewrite::event(&self.to.write(text)).into())
    }
}

fn first<'h>(head: Option<&'h Head>, name: &str) -> Option<&'h str> {
    let head = head?;
    let value = match name {
        "id" => &head.id,
        "created" => &head.created,
        _ => &head.model,
    };
    (!value.is_empty()).then_some(value)
}

/// The new part of each text of one choice.
struct News {
    content: String,
    reasoning: String,
    tools: Vec<(usize, String, String)>,
}

impl News {
    fn of(choice: &Choice<'_>, expect: &mut Expect) -> Result<Self, Differs> {
        let decode = |text: Option<&str>| json::unescape(text.unwrap_or_default().as_bytes()).ok_or(Differs);
        let reasoning = expect.take_reasoning(&decode(choice.reasoning)?)?.to_owned();
        let content = expect.take_content(&decode(choice.content)?)?.to_owned();
        let mut tools = Vec::new();
        for (place, piece) in choice.tools.iter().enumerate() {
            let arguments = decode(piece.arguments)?;
            let (name, arguments) = expect.take_tool(piece.index, piece.name.as_deref().unwrap_or_default(), &arguments)?;
            if !name.is_empty() || !arguments.is_empty() {
                tools.push((place, name.to_owned(), arguments.to_owned()));
            }
        }
        Ok(Self { content, reasoning, tools })
    }

    fn any(&self) -> bool {
        !self.content.is_empty() || !self.reasoning.is_empty() || !self.tools.is_empty()
    }
}

/// What differs in a choice from what the engine wrote.
struct Overrides {
    news: News,
    role: bool,
    logprobs: Option<Vec<u8>>,
    ids: Option<Vec<u8>>,
}

impl Overrides {
    /// The choice in its own form.
    fn same_choice(&self, choice: &Choice<'_>) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (name, raw) in choice.object.fields() {
            match name {
                "delta" => {
                    let out = writer.name(name);
                    *out = self.delta(choice, std::mem::take(out));
                }
                "text" => writer.string(name, &self.news.content),
                "logprobs" => put(&mut writer, name, self.logprobs.as_deref(), raw.get()),
                "token_ids" => put(&mut writer, name, self.ids.as_deref(), raw.get()),
                _ => writer.raw(name, raw.get()),
            }
        }
        writer.finish()
    }

    /// A completion's choice as one of a chat.
    fn chat_choice(&self, choice: &Choice<'_>) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        writer.number("index", u64::from(choice.index));
        let out = writer.name("delta");
        let mut delta = Writer::new(std::mem::take(out));
        delta.string("content", &self.news.content);
        *out = delta.finish();
        writer.raw("logprobs", "null");
        for (name, raw) in choice.object.fields() {
            match name {
                "finish_reason" => writer.raw(name, raw.get()),
                "stop_reason" if choice.finish.is_some() => writer.raw(name, raw.get()),
                "token_ids" => put(&mut writer, name, self.ids.as_deref(), raw.get()),
                _ => {}
            }
        }
        writer.finish()
    }

    fn delta(&self, choice: &Choice<'_>, out: Vec<u8>) -> Vec<u8> {
        let mut writer = Writer::new(out);
        for (name, raw) in choice.delta.fields() {
            match name {
                "role" if !self.role => {}
                "content" if choice.content.is_some() => writer.string(name, &self.news.content),
                "tool_calls" => self.tool_calls(choice, &mut writer),
                _ if REASONING.contains(&name) && raw.get() != "null" => writer.string(name, &self.news.reasoning),
                _ => writer.raw(name, raw.get()),
            }
        }
        writer.finish()
    }

    fn tool_calls(&self, choice: &Choice<'_>, writer: &mut Writer) {
        if self.news.tools.is_empty() {
            return;
        }
        let out = writer.name("tool_calls");
        for (nth, (place, name, arguments)) in self.news.tools.iter().enumerate() {
            out.push(if nth == 0 { b'[' } else { b',' });
            *out = tool_call(&choice.tools[*place], name, arguments, std::mem::take(out));
        }
        out.push(b']');
    }
}

/// A piece of a call with only what is new of it. Its random id goes on only together with the name, that is once.
fn tool_call(piece: &ToolDelta<'_>, name: &str, arguments: &str, out: Vec<u8>) -> Vec<u8> {
    let begins = !name.is_empty() || piece.name.is_none();
    let mut writer = Writer::new(out);
    for (key, raw) in piece.object.fields() {
        match key {
            "id" | "type" if !begins => {}
            "function" => {
                let out = writer.name(key);
                let mut function = Writer::new(std::mem::take(out));
                if !name.is_empty() {
                    function.string("name", name);
                }
                if piece.arguments.is_some() {
                    function.string("arguments", arguments);
                }
                *out = function.finish();
            }
            _ => writer.raw(key, raw.get()),
        }
    }
    writer.finish()
}

fn put(writer: &mut Writer, name: &str, replaced: Option<&[u8]>, raw: &str) {
    match replaced {
        Some(bytes) => writer.name(name).extend_from_slice(bytes),
        None => writer.raw(name, raw),
    }
}
