//! What the client has got of one choice.
//!
//! Texts are kept as the engine wrote them between the quotes and decoded only at a break. Owns no bound; the journal
//! counts what is kept here.

use super::chunk::{Choice, ToolDelta};
use super::json;
use super::shape::Field;

/// One choice of an answer, as far as it was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Its `index`.
    pub(super) index: u32,
    /// An event with its role was sent.
    pub(super) role: bool,
    /// Answer text, escaped.
    pub(super) content: Vec<u8>,
    /// Reasoning text, escaped.
    pub(super) reasoning: Vec<u8>,
    /// Tool calls in their order.
    pub(super) tools: Vec<ToolSent>,
    /// Its `finish_reason`, once sent.
    pub(super) finish: Option<Box<str>>,
    /// The finish event named what stopped it (a stop string or token).
    pub(super) stop_reason: bool,
    /// Entries of `logprobs` sent.
    pub(super) logprobs: usize,
    /// Token ids sent, whether or not they are kept.
    pub(super) ids_sent: usize,
    /// Token ids up to the last place where they are known to end with a character; empty unless they are kept.
    pub(super) ids: Vec<u32>,
    /// Bytes of `content` that stand for `ids`.
    pub(super) ids_text: usize,
    /// Token ids behind that place: the engine may hold back the text of the last of them.
    pub(super) ids_held: Vec<u32>,
    /// Reasoning came after answer text: the two cannot be put into one text again.
    pub(super) mixed: bool,
}

/// One tool call, as far as it was sent.
#[derive(Debug, Default)]
pub(super) struct ToolSent {
    /// Which call of the choice.
    pub(super) index: u32,
    /// The function's name.
    pub(super) name: Option<String>,
    /// Its arguments, escaped.
    pub(super) arguments: Vec<u8>,
}

impl Sent {
    /// Adds a piece of text; gives the bytes that are kept for it.
    pub(super) fn add(&mut self, field: Field, escaped: &[u8]) -> usize {
        match field {
            Field::Content => self.content.extend_from_slice(escaped),
            Field::Reasoning => {
                self.mixed |= !self.content.is_empty();
                self.reasoning.extend_from_slice(escaped);
            }
            Field::Arguments(index) => self.tool(index).arguments.extend_from_slice(escaped),
        }
        escaped.len()
    }

    /// Adds all that an event says of this choice; gives the bytes that are kept for it.
    pub(super) fn record(&mut self, choice: &Choice<'_>, keep_ids: bool) -> usize {
        let mut kept = 0;
        self.role |= choice.delta.get("role").is_some();
        if let Some(text) = choice.reasoning {
            kept += self.add(Field::Reasoning, text.as_bytes());
        }
        if let Some(text) = choice.content {
            kept += self.add(Field::Content, text.as_bytes());
        }
        for tool in &choice.tools {
            kept += self.record_tool(tool);
        }
        self.logprobs += logprob_entries(choice);
        kept += self.record_ids(choice, keep_ids);
        if let Some(finish) = &choice.finish {
            self.finish = Some(finish.as_ref().into());
            self.stop_reason = choice.object.get("stop_reason").is_some();
        }
        kept
    }

    /// The call with this index, made if need be.
    pub(super) fn tool(&mut self, index: u32) -> &mut ToolSent {
        let place = self.tools.iter().position(|tool| tool.index == index).unwrap_or_else(|| {
            self.tools.push(ToolSent { index, ..ToolSent::default() });
            self.tools.len() - 1
        });
        &mut self.tools[place]
    }

    /// Whether text, reasoning or a tool call was sent.
    pub(super) fn any(&self) -> bool {
        !self.content.is_empty() || !self.reasoning.is_empty() || !self.tools.is_empty()
    }

    /// Forgets texts and ids, keeps what says whether the choice has ended.
    pub(super) fn forget(&mut self) {
        let (index, role, finish) = (self.index, self.role, self.finish.take());
        *self = Self { index, role, finish, ..Self::default() };
    }

    /// The held-back tokens will be generated again.
    pub(super) fn drop_held_ids(&mut self) {
        self.ids_sent -= self.ids_held.len().min(self.ids_sent);
        self.ids_held = Vec::new();
    }

    /// Ids of the rest will not be known.
    pub(super) fn drop_ids(&mut self) {
        self.drop_held_ids();
        self.ids = Vec::new();
        self.ids_text = 0;
    }

    fn record_tool(&mut self, piece: &ToolDelta<'_>) -> usize {
        let before = self.tools.len();
        self.tool(piece.index);
        let mut kept = size_of::<ToolSent>() * (self.tools.len() - before);
        let call = self.tool(piece.index);
        if let Some(name) = &piece.name {
            call.name.get_or_insert_with(String::new).push_str(name);
            kept += name.len();
        }
        if let Some(arguments) = piece.arguments {
            call.arguments.extend_from_slice(arguments.as_bytes());
            kept += arguments.len();
        }
        kept
    }

    fn record_ids(&mut self, choice: &Choice<'_>, keep: bool) -> usize {
        let Some(ids) = choice.object.get("token_ids").and_then(json::ids) else { return 0 };
        self.ids_sent += ids.len();
        if !keep {
            return 0;
        }
        let kept = ids.len() * size_of::<u32>();
        // Only the text of a single token shows that no byte of it is held back: of several tokens the last may be half a
        // character, and ids that end inside one make an engine print its prompt.
        let whole = ids.len() == 1 && choice.adds();
        self.ids_held.extend(ids);
        if whole {
            self.ids.append(&mut self.ids_held);
            self.ids_text = self.content.len();
        }
        kept
    }
}

fn logprob_entries(choice: &Choice<'_>) -> usize {
    let Some(logprobs) = choice.object.object("logprobs") else { return 0 };
    let count = |key| logprobs.get(key).and_then(json::list).map_or(0, |list| list.len());
    count("content").max(count("tokens"))
}
