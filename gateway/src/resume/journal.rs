//! What the client of one stream has got: all that a rest from another leader must agree with.
//!
//! Fed with every event that is passed on. The usual event is recognised by its learned build (`shape`) and costs a few
//! tens of nanoseconds; any other is parsed. Bounded: beyond its limit it forgets the texts and the stream is not
//! resumable any more. Owns no judgement of events; `stream` does.

use smallvec::SmallVec;

use super::chunk::{Choice, Chunk};
use super::plan::Way;
use super::refusal::Refusal;
use super::sent::Sent;
use super::shape::{Field, Shape};
use super::usage::Usage;

/// Learned builds kept for a stream: both fields of two choices.
const SHAPES: usize = 4;
/// Builds learned in a stream's life; a stream whose events all differ is not learned for ever.
const LESSONS: u8 = 48;

/// Bytes of an event that are learned at most, its text not counted: the usual event is short.
const LESSON_BYTES: usize = 4096;
/// Choices of an answer that are recorded; engines allow far fewer.
const CHOICES: usize = 1024;

/// The record of one stream.
#[derive(Debug)]
pub(super) struct Journal {
    /// `id`, `created`, `model` of the first event, as JSON.
    pub(super) head: Option<Box<Head>>,
    /// `system_fingerprint` that the client has seen first, as JSON.
    pub(super) fingerprint: Option<Box<str>>,
    /// By order of appearance.
    pub(super) choices: SmallVec<[Sent; 1]>,
    /// The prompt's token ids, if they were sent and are kept.
    pub(super) prompt_ids: Vec<u32>,
    /// Usage of the last event that had any.
    pub(super) usage: Option<Usage>,
    /// The usage seen with the last event that had text, if every such event has usage.
    pub(super) usage_at_text: Option<Usage>,
    /// The usage event at the end was sent.
    pub(super) usage_sent: bool,
    /// Some event with data was passed on.
    pub(super) sent: bool,
    /// Why the stream cannot be carried on any more.
    pub(super) lost: Option<Refusal>,
    shapes: SmallVec<[Shape; 1]>,
    lessons: u8,
    kept: usize,
    limit: usize,
    keep_ids: bool,
}

/// What names an answer, as JSON values.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// `id`.
    pub(super) id: Box<str>,
    /// `created`.
    pub(super) created: Box<str>,
    /// `model`.
    pub(super) model: Box<str>,
}

impl Journal {
    /// Keeps at most `limit` bytes of text and ids; `keep_ids`: token ids are worth keeping.
    pub(super) fn new(limit: usize, keep_ids: bool) -> Self {
        Self {
            head: None,
            fingerprint: None,
            choices: SmallVec::new(),
            prompt_ids: Vec::new(),
            usage: None,
            usage_at_text: None,
            usage_sent: false,
            sent: false,
            lost: None,
            shapes: SmallVec::new(),
            lessons: 0,
            kept: 0,
            limit,
            keep_ids,
        }
    }

    /// Bytes of text, reasoning, arguments and ids that are kept.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Records an event of a learned build. `false`: it is of another one and must be parsed.
    pub(super) fn record_usual(&mut self, data: &[u8]) -> bool {
        for shape in &self.shapes {
            if let Some(text) = shape.read(data) {
                let (slot, field) = (shape.slot, shape.field);
                self.add(slot, field, text);
                return true;
            }
        }
        false
    }

    /// Records a parsed event that is passed on as it is.
    pub(super) fn record(&mut self, chunk: &Chunk<'_>) {
        self.sent = true;
        self.record_head(chunk);
        let usage = Usage::read(&chunk.top);
        for choice in &chunk.choices {
            let Some(slot) = self.slot(choice.index) else { continue };
            if choice.odd {
                self.lose(Refusal::Unreadable);
            }
            let kept = self.choices[slot].record(choice, self.keep_ids);
            self.record_prompt_ids(choice);
            self.keep(kept);
            if choice.adds() {
                self.usage_at_text = usage;
            }
        }
        self.usage_sent |= usage.is_some() && chunk.choices.is_empty();
        self.usage = usage.or(self.usage);
    }

    /// Learns the build of the event that was just recorded, if it is a usual one.
    pub(super) fn learn(&mut self, data: &[u8], chunk: &Chunk<'_>) {
        let Some((index, field, text)) = chunk.only_text() else { return };
        if self.lessons >= LESSONS || data.len() - text.len() > LESSON_BYTES {
            return;
        }
        let Some(slot) = self.slot(index) else { return };
        self.lessons += 1;
        self.shapes.retain(|shape| shape.slot != slot || shape.field != field);
        if self.shapes.len() >= SHAPES {
            self.shapes.remove(0);
        }
        self.shapes.extend(Shape::learn(data, text, field, slot));
    }

    /// Every choice has a `finish_reason`.
    pub(super) fn complete(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.finish.is_some())
    }

    /// Gives up carrying this stream on: forgets the texts.
    pub(super) fn lose(&mut self, why: Refusal) {
        self.lost.get_or_insert(why);
        self.choices.iter_mut().for_each(Sent::forget);
        self.prompt_ids = Vec::new();
        self.kept = 0;
    }

    /// Events of another leader come next: builds learned so far are of no use, and the ids that are kept must go on
    /// being those of all the text.
    pub(super) fn begin_rest(&mut self, way: Way) {
        self.shapes.clear();
        self.lessons = 0;
        match way {
            Way::Replay => {}
            Way::TokenIds => self.choices.iter_mut().for_each(Sent::drop_held_ids),
            Way::Continue => {
                self.keep_ids = false;
                self.prompt_ids = Vec::new();
                self.choices.iter_mut().for_each(Sent::drop_ids);
            }
        }
    }

    /// Adds a text that is passed on within an event of a learned build.
    pub(super) fn add(&mut self, slot: usize, field: Field, text: &[u8]) {
        if self.lost.is_some() {
            return;
        }
        let kept = self.choices[slot].add(field, text);
        if !text.is_empty() {
            self.usage_at_text = None;
        }
        self.keep(kept);
    }

    fn keep(&mut self, bytes: usize) {
        self.kept += bytes;
        if self.lost.is_some() || self.kept > self.limit {
            self.lose(Refusal::TextTooLong);
        }
    }

    /// The place of the choice with this index, made if need be. `None`: there are too many.
    pub(super) fn slot(&mut self, index: u32) -> Option<usize> {
        if let Some(place) = self.choices.iter().position(|choice| choice.index == index) {
            return Some(place);
        }
        if self.choices.len() >= CHOICES {
            self.lose(Refusal::TextTooLong);
            return None;
        }
        self.choices.push(Sent { index, ..Sent::default() });
        // The first one has its place in the journal.
        self.keep(size_of::<Sent>() * usize::from(self.choices.len() > 1));
        Some(self.choices.len() - 1)
    }

    fn record_head(&mut self, chunk: &Chunk<'_>) {
        let value = |key| chunk.top.get(key).map_or_else(Box::default, |raw| raw.get().into());
        if self.head.is_none() {
            let head = Head { id: value("id"), created: value("created"), model: value("model") };
            // Only what is out of the ordinary counts as kept.
            self.keep((head.id.len() + head.created.len() + head.model.len()).saturating_sub(LESSON_BYTES));
            self.head = Some(Box::new(head));
        }
        if self.fingerprint.is_none() {
            self.fingerprint = chunk.top.get("system_fingerprint").map(|raw| raw.get().into());
        }
        if self.keep_ids && self.prompt_ids.is_empty() && self.lost.is_none() {
            self.keep_prompt_ids(chunk.top.get("prompt_token_ids"));
        }
    }

    fn record_prompt_ids(&mut self, choice: &Choice<'_>) {
        if self.keep_ids && self.prompt_ids.is_empty() && self.lost.is_none() {
            self.keep_prompt_ids(choice.object.get("prompt_token_ids"));
        }
    }

    fn keep_prompt_ids(&mut self, ids: Option<&serde_json::value::RawValue>) {
        self.prompt_ids = ids.and_then(super::json::ids).unwrap_or_default();
        self.keep(self.prompt_ids.len() * size_of::<u32>());
    }
}
