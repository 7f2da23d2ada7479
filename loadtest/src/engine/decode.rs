//! Decoding: tokens to text, with everything that delays, cuts or ends it.
//!
//! Owns held-back characters, stop strings, the limit, the end-of-text token and the prompt leak of engine facts 5.4.
//! One call makes one token. Pure; the pace comes from the caller.

use super::source::Source;
use crate::text::token;

/// Why a choice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The text or a stop string ended.
    Stop,
    /// The limit is reached.
    Length,
    /// The engine was told to stop.
    Abort,
    /// A tool call is complete.
    ToolCalls,
}

impl Finish {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// What bounds one choice.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// At most this many tokens.
    pub max: usize,
    /// The end of the text does not count before this many.
    pub min: usize,
    /// Stop strings.
    pub stop: Vec<String>,
    /// The end of the text never counts.
    pub ignore_eos: bool,
    /// The text ends at once: somebody else's message is continued.
    pub nothing: bool,
}

/// One token's contribution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The token.
    pub id: u32,
    /// Text that became visible with it.
    pub text: String,
    /// Set on the last one.
    pub finish: Option<Finish>,
    /// The stop string that was found.
    pub stop: Option<String>,
}

/// One choice's text, token by token.
#[derive(Debug, Clone)]
pub struct Decoder {
    source: Source,
    limits: Limits,
    /// Bytes of a character that is not complete.
    held: Vec<u8>,
    /// Text that may be the beginning of a stop string.
    tail: String,
    /// How many characters of `tail` stay back.
    lag: usize,
    leak: Option<String>,
    made: usize,
    over: bool,
}

impl Decoder {
    /// Starts at the place where `source` stands.
    pub fn new(mut source: Source, limits: Limits) -> Self {
        let lag = limits.stop.iter().map(|stop| stop.chars().count()).max().unwrap_or(1).saturating_sub(1);
        if limits.ignore_eos {
            source.go_on_for_ever();
        }
        Self { source, limits, held: Vec::new(), tail: String::new(), lag, leak: None, made: 0, over: false }
    }

    /// The prompt ended inside a character: `held` are its bytes, and `prompt` is printed before it.
    pub fn leak(&mut self, prompt: String, held: Vec<u8>) {
        self.held = held;
        self.leak = Some(prompt);
    }

    /// Tokens made so far.
    pub fn made(&self) -> usize {
        self.made
    }

    /// Makes one token; `None` after the last.
    pub fn step(&mut self) -> Option<Step> {
        if self.over {
            return None;
        }
        self.made += 1;
        let mut step = Step::default();
        match self.draw() {
            Some(id) => {
                step.id = id;
                self.show(id, &mut step);
                if step.finish.is_none() && self.made >= self.limits.max {
                    step.finish = Some(Finish::Length);
                    step.text.push_str(&std::mem::take(&mut self.tail));
                }
            }
            None => {
                step.id = token::EOS;
                step.finish = Some(Finish::Stop);
                step.text = std::mem::take(&mut self.tail);
            }
        }
        self.over = step.finish.is_some();
        Some(step)
    }

    fn draw(&mut self) -> Option<u32> {
        if self.limits.nothing {
            return None;
        }
        loop {
            if let Some((id, bytes)) = self.source.next_token() {
                self.held.extend_from_slice(bytes);
                return Some(id);
            }
            if self.made > self.limits.min {
                return None;
            }
            self.source.one_more();
        }
    }

    fn show(&mut self, id: u32, step: &mut Step) {
        if token::is_hidden(id) {
            self.held.clear();
            return;
        }
        let Ok(text) = std::str::from_utf8(&self.held) else { return };
        if let Some(prompt) = self.leak.take() {
            self.tail.push_str(&prompt);
        }
        if self.limits.stop.is_empty() {
            step.text.push_str(&std::mem::take(&mut self.tail));
            step.text.push_str(text);
            self.held.clear();
            return;
        }
        self.tail.push_str(text);
        self.held.clear();
        self.release(step);
    }

    /// Lets out what can no longer be the beginning of a stop string.
    fn release(&mut self, step: &mut Step) {
        let found = self.limits.stop.iter().filter_map(|stop| self.tail.find(stop.as_str()).map(|at| (at, stop))).min();
        if let Some((at, stop)) = found {
            step.text.push_str(&self.tail[..at]);
            step.finish = Some(Finish::Stop);
            step.stop = Some(stop.clone());
            self.tail.clear();
            return;
        }
        let letters = self.tail.chars().count();
        let out: usize = self.tail.chars().take(letters.saturating_sub(self.lag)).map(char::len_utf8).sum();
        step.text.extend(self.tail.drain(..out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Script;

    fn decoder(text: &str, limits: Limits) -> Decoder {
        Decoder::new(Source::new(Script::fixed(0, text.to_owned())), limits)
    }

    fn run(mut decoder: Decoder) -> (Vec<String>, Step) {
        let mut steps = Vec::new();
        while let Some(step) = decoder.step() {
            steps.push(step);
        }
        (steps.iter().map(|step| step.text.clone()).collect(), steps.pop().unwrap_or_default())
    }

    #[test]
    fn tokens_inside_a_character_show_nothing() {
        let (texts, last) = run(decoder("1. ह", Limits { max: 99, ..Limits::default() }));
        assert_eq!(texts, ["1", ".", " ", "", "", "ह", ""]);
        assert_eq!(last.finish, Some(Finish::Stop));
    }

    #[test]
    fn held_bytes_are_lost_at_the_limit() {
        let (texts, last) = run(decoder("1. ह", Limits { max: 5, ..Limits::default() }));
        assert_eq!(texts.concat(), "1. ");
        assert_eq!(last.finish, Some(Finish::Length));
    }

    #[test]
    fn stop_strings_hold_text_back_and_cut_it() {
        let stop = vec!["return".to_owned(), "zz".to_owned()];
        let (texts, last) = run(decoder("x == 0:\n        return y", Limits { max: 99, stop, ..Limits::default() }));
        assert_eq!(texts.concat(), "x == 0:\n        ");
        assert!(texts[0].is_empty());
        assert_eq!((last.finish, last.stop.as_deref()), (Some(Finish::Stop), Some("return")));
    }

    #[test]
    fn min_tokens_go_behind_the_end() {
        let (texts, _) = run(decoder("ab", Limits { max: 99, min: 10, ..Limits::default() }));
        assert!(texts.len() >= 10 && texts.concat().starts_with("ab"));
    }

    #[test]
    fn ids_that_end_inside_a_character_leak_the_prompt() {
        let mut source = Source::new(Script::fixed(0, "हx".to_owned()));
        source.skip(&"ह".as_bytes()[..1]);
        let mut decoder = Decoder::new(source, Limits { max: 99, ..Limits::default() });
        decoder.leak("user\nHi\nassistant\n".to_owned(), "ह".as_bytes()[..1].to_vec());
        assert_eq!(run(decoder).0, ["", "user\nHi\nassistant\nह", "x", ""]);
    }
}
