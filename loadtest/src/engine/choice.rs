//! One choice of an answer: its decoder, its parser and the grouping of tokens into events.
//!
//! Gives [`Chunk`]s, which the writers of streams and of whole answers both take. Pure.

use super::decode::{Decoder, Finish};
use super::parser::{Parser, Piece};

/// What one event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The choice.
    pub index: usize,
    /// Text and its field; `None` is an empty delta.
    pub piece: Option<Piece>,
    /// The tokens it stands for.
    pub ids: Vec<u32>,
    /// Set on the last one.
    pub finish: Option<Finish>,
    /// The stop string that was found.
    pub stop: Option<String>,
}

/// One choice.
#[derive(Debug, Clone)]
pub struct Choice {
    index: usize,
    decoder: Decoder,
    parser: Parser,
    interval: usize,
    reasoning: usize,
    over: bool,
}

impl Choice {
    /// A choice that has made nothing yet; `interval` tokens make an event, the first one apart. With a parser each token
    /// is looked at alone, since fields may change between two of them.
    pub fn new(index: usize, decoder: Decoder, parser: Parser, interval: usize) -> Self {
        let interval = if parser.is_plain() { interval } else { 1 };
        Self { index, decoder, parser, interval, reasoning: 0, over: false }
    }

    /// Tokens made so far.
    pub fn made(&self) -> usize {
        self.decoder.made()
    }

    /// How many of them were reasoning; `None` without that parser.
    pub fn reasoning_tokens(&self) -> Option<usize> {
        self.parser.counts_reasoning().then_some(self.reasoning)
    }

    /// True once the finish was given out.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Decodes one event's tokens. `None` is a token without an event, or the end ([`Choice::is_over`] tells).
    pub fn advance(&mut self) -> Option<Chunk> {
        let wanted = if self.made() == 0 { 1 } else { self.interval };
        let mut chunk = Chunk { index: self.index, piece: None, ids: Vec::with_capacity(wanted.min(16)), finish: None, stop: None };
        let mut text = String::new();
        for _ in 0..wanted {
            let Some(step) = self.decoder.step() else { break };
            chunk.ids.push(step.id);
            chunk.stop = step.stop;
            chunk.finish = step.finish;
            if self.parser.is_plain() {
                text.push_str(&step.text);
            } else {
                self.parse(&step.text, &mut chunk);
            }
            if chunk.finish.is_some() {
                break;
            }
        }
        if chunk.ids.is_empty() {
            return None;
        }
        if self.parser.is_plain() {
            chunk.piece = Some(Piece::Content(text));
        }
        self.finish(chunk)
    }

    fn parse(&mut self, text: &str, chunk: &mut Chunk) {
        if self.parser.is_thinking() {
            self.reasoning += 1;
        }
        chunk.piece = self.parser.push(text);
    }

    fn finish(&mut self, mut chunk: Chunk) -> Option<Chunk> {
        if chunk.finish.is_none() {
            return chunk.piece.is_some().then_some(chunk);
        }
        self.over = true;
        if chunk.finish == Some(Finish::Stop) && self.parser.called() {
            chunk.finish = Some(Finish::ToolCalls);
        }
        Some(chunk)
    }
}
