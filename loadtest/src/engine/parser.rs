//! Output parsers: which field of an answer a piece of text belongs to.
//!
//! Reasoning (`--reasoning-parser`) and tool calls (`--tool-call-parser`), in the form of engine facts, section 6: marks
//! are never shown, an event may lack for a token. Pure state machines over the text.

/// A piece of an answer and its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// `content`
    Content(String),
    /// `reasoning`
    Reasoning(String),
    /// A tool call begins.
    ToolStart {
        /// Made at random by each engine.
        id: String,
        /// The function's name.
        name: String,
    },
    /// A piece of the arguments.
    ToolArguments(String),
}

/// The state of one choice's parser.
#[derive(Debug, Clone)]
pub struct Parser {
    state: State,
    salt: u64,
    called: bool,
}

#[derive(Debug, Clone)]
enum State {
    Plain,
    Thinking,
    Answering,
    BeforeCall,
    /// Between `<tool_call>` and the arguments.
    Header(String),
    /// Inside the arguments: the depth of braces, and whether a string is open.
    Arguments {
        depth: usize,
        quoted: bool,
        escaped: bool,
    },
    AfterCall,
}

impl Parser {
    /// All text is content.
    pub fn plain() -> Self {
        Self { state: State::Plain, salt: 0, called: false }
    }

    /// Text is reasoning until `</think>`; `answering` if that was before.
    pub fn reasoning(answering: bool) -> Self {
        Self { state: if answering { State::Answering } else { State::Thinking }, salt: 0, called: false }
    }

    /// Text is content until `<tool_call>`; `salt` makes the call's id.
    pub fn tool(salt: u64) -> Self {
        Self { state: State::BeforeCall, salt, called: false }
    }

    /// True if every token has an event of its own.
    pub fn is_plain(&self) -> bool {
        matches!(self.state, State::Plain)
    }

    /// True while tokens count as `reasoning_tokens`.
    pub fn is_thinking(&self) -> bool {
        matches!(self.state, State::Thinking)
    }

    /// True for a reasoning parser, whose usage has details.
    pub fn counts_reasoning(&self) -> bool {
        matches!(self.state, State::Thinking | State::Answering)
    }

    /// True once a whole tool call was seen.
    pub fn called(&self) -> bool {
        self.called
    }

    /// Takes the text of one token.
    pub fn push(&mut self, text: &str) -> Option<Piece> {
        if text.is_empty() && !self.is_plain() {
            return None;
        }
        match &mut self.state {
            State::Plain => Some(Piece::Content(text.to_owned())),
            State::Thinking => self.think(text),
            State::Answering => Some(Piece::Content(text.to_owned())),
            State::BeforeCall if text == "<tool_call>" => {
                self.state = State::Header(String::new());
                None
            }
            State::BeforeCall => Some(Piece::Content(text.to_owned())),
            State::Header(header) => {
                header.push_str(text);
                self.header()
            }
            State::Arguments { .. } => self.arguments(text),
            State::AfterCall => None,
        }
    }

    fn think(&mut self, text: &str) -> Option<Piece> {
        match text {
            "<think>" => None,
            "</think>" => {
                self.state = State::Answering;
                None
            }
            _ => Some(Piece::Reasoning(text.to_owned())),
        }
    }

    fn header(&mut self) -> Option<Piece> {
        let State::Header(header) = &self.state else { return None };
        let (head, _) = header.split_once("\"arguments\":")?;
        let name = head.split("\"name\": \"").nth(1)?.split('"').next()?.to_owned();
        self.state = State::Arguments { depth: 0, quoted: false, escaped: false };
        Some(Piece::ToolStart { id: format!("chatcmpl-tool-{:016x}", crate::text::mix(self.salt, random())), name })
    }

    fn arguments(&mut self, text: &str) -> Option<Piece> {
        let State::Arguments { depth, quoted, escaped } = &mut self.state else { return None };
        let text = if *depth == 0 { text.trim_start() } else { text };
        let mut end = None;
        for (at, letter) in text.char_indices() {
            match letter {
                _ if std::mem::take(escaped) => {}
                '\\' if *quoted => *escaped = true,
                '"' => *quoted = !*quoted,
                '{' if !*quoted => *depth += 1,
                '}' if !*quoted => {
                    *depth -= 1;
                    if *depth == 0 {
                        end = Some(at + 1);
                        break;
                    }
                }
                _ => {}
            }
        }
        if end.is_some() {
            self.state = State::AfterCall;
            self.called = true;
        }
        let text = &text[..end.unwrap_or(text.len())];
        (!text.is_empty()).then(|| Piece::ToolArguments(text.to_owned()))
    }
}

/// Tool call ids differ at every engine and request; nobody may compare them.
fn random() -> u64 {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::token;

    fn run(mut parser: Parser, text: &str) -> Vec<Piece> {
        let ids = token::encode(text);
        ids.iter().filter_map(|id| parser.push(std::str::from_utf8(token::bytes_of(*id)).unwrap_or("?"))).collect()
    }

    #[test]
    fn thoughts_are_reasoning_and_marks_are_hidden() {
        let (mut thought, mut answer) = (String::new(), String::new());
        for piece in run(Parser::reasoning(false), "<think>\nso it is\n</think>\n\nThe sum") {
            match piece {
                Piece::Reasoning(text) => thought.push_str(&text),
                Piece::Content(text) => answer.push_str(&text),
                Piece::ToolStart { .. } | Piece::ToolArguments(_) => panic!("no tool was called"),
            }
        }
        assert_eq!((thought.as_str(), answer.as_str()), ("\nso it is\n", "\n\nThe sum"));
    }

    #[test]
    fn a_call_is_its_name_and_its_arguments() {
        let call = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"a}b\", \"days\": {\"n\": 3}}}\n</tool_call>";
        let pieces = run(Parser::tool(0), call);
        assert!(matches!(&pieces[0], Piece::ToolStart { name, .. } if name == "get"));
        let arguments: String = pieces[1..].iter().map(|p| if let Piece::ToolArguments(t) = p { t.as_str() } else { "?" }).collect();
        assert_eq!(arguments, "{\"city\": \"a}b\", \"days\": {\"n\": 3}}");
    }
}
