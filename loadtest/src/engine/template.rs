//! The chat template: messages to prompt text, and prompt text back to what came before the answer.
//!
//! Owns the ways in which a template spoils a continuation (engine facts 5.2, 5.3): trimming, stripped thoughts. The
//! text of an answer belongs to the prompt *without* the prefix that is continued, so both directions end in a [`Split`].

use super::ask::Message;
use super::errors::ApiError;
use super::persona::Template;

const START: &str = "<|im_start|>";
const END: &str = "<|im_end|>";

/// In a raw `/v1/completions` prompt, text behind the last one of these continues the answer to the text before it.
pub const RAW_MARK: &str = "\n###\n";

/// A prompt, divided where the answer begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Everything up to and including the header of the message that is written.
    pub conversation: String,
    /// The beginning of the answer, which is continued. May end inside a character if it came as token ids.
    pub prefix: Vec<u8>,
    /// Role of the message that is written.
    pub role: String,
}

impl Split {
    /// The prompt as the engine shows it.
    pub fn prompt_text(&self) -> String {
        format!("{}{}", self.conversation, String::from_utf8_lossy(&self.prefix))
    }
}

/// Which message the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A new message of the assistant.
    New,
    /// No header at all: `add_generation_prompt: false` alone.
    Bare,
    /// The last message goes on.
    Continue,
}

/// Renders a chat.
///
/// # Errors
///
/// 400 for an empty chat, and for a template that strips what is to be continued.
pub fn render(messages: &[Message], template: Template, mode: Mode) -> Result<Split, ApiError> {
    let Some((last, before)) = messages.split_last() else {
        return Err(ApiError::bad("Cannot apply chat template to an empty conversation. Provide at least one message.", None));
    };
    let mut conversation = String::new();
    let closed = if mode == Mode::Continue { before } else { messages };
    for message in closed {
        conversation.push_str(&format!("{START}{}\n{}{END}\n", message.role, treat(message, template)));
    }
    let role = if mode == Mode::Continue { last.role.clone() } else { "assistant".to_owned() };
    if mode != Mode::Bare {
        conversation.push_str(&format!("{START}{role}\n"));
    }
    let mut split = Split { conversation, prefix: Vec::new(), role };
    if mode == Mode::Continue {
        continued(&mut split, last, template)?;
    }
    Ok(split)
}

/// Finds the beginning of the answer in prompt text that was rendered elsewhere.
pub fn divide(prompt: &[u8]) -> Split {
    let header = format!("{START}assistant");
    let (conversation, prefix) = if let Some(at) = rfind(prompt, header.as_bytes()) {
        let mut from = at + header.len();
        if prompt.get(from) == Some(&b'\n') {
            from += 1;
        }
        prompt.split_at(from)
    } else if let Some(at) = rfind(prompt, RAW_MARK.as_bytes()) {
        prompt.split_at(at + RAW_MARK.len())
    } else {
        (prompt, &[][..])
    };
    Split { conversation: String::from_utf8_lossy(conversation).into_owned(), prefix: prefix.to_vec(), role: "assistant".to_owned() }
}

fn rfind(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::rfind(haystack, needle)
}

fn treat(message: &Message, template: Template) -> &str {
    match template {
        Template::Plain => &message.content,
        Template::Trim => message.content.trim(),
        Template::StripThink if message.role == "assistant" => strip_thought(&message.content),
        Template::StripThink => &message.content,
    }
}

fn strip_thought(content: &str) -> &str {
    content.rsplit("</think>").next().unwrap_or("").trim_start_matches('\n')
}

fn continued(split: &mut Split, last: &Message, template: Template) -> Result<(), ApiError> {
    let treated = treat(last, template);
    if template == Template::StripThink && treated.len() != last.content.len() {
        let message = format!(
            "continue_final_message is set but the final message does not appear in the chat after applying the chat template! This can \
             happen if the chat template deletes portions of the final message. Please verify the chat template and final message in your \
             chat to ensure they are compatible.Final message to continue: {}\nRendered chat:\n{}{treated}CONTINUE_FINAL_MESSAGE_TAG {END}",
            last.content, split.conversation
        );
        return Err(ApiError::bad(message, None));
    }
    split.prefix = treated.as_bytes().to_vec();
    if template == Template::Trim && split.prefix.is_empty() {
        // All white space at the end of the prompt goes, the newline of the header too.
        split.conversation.truncate(split.conversation.trim_end().len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(prefix: &str) -> Vec<Message> {
        let message = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
        vec![message("user", " Hello "), message("assistant", prefix)]
    }

    #[test]
    fn plain_template_keeps_the_prefix() {
        let split = render(&chat("One\n"), Template::Plain, Mode::Continue).unwrap();
        assert_eq!(split.prompt_text(), "<|im_start|>user\n Hello <|im_end|>\n<|im_start|>assistant\nOne\n");
        assert_eq!(divide(split.prompt_text().as_bytes()), split);
    }

    #[test]
    fn trimming_template_strips_the_end_of_the_prompt() {
        let split = render(&chat("One\n"), Template::Trim, Mode::Continue).unwrap();
        assert_eq!(split.prefix, b"One");
        let empty = render(&chat(""), Template::Trim, Mode::Continue).unwrap();
        assert!(empty.prompt_text().ends_with("<|im_start|>assistant"));
    }

    #[test]
    fn stripped_thoughts_are_refused_only_behind_their_end() {
        assert!(render(&chat("<think>\nso"), Template::StripThink, Mode::Continue).is_ok());
        let error = render(&chat("<think>\nso\n</think>\n\nThe sum"), Template::StripThink, Mode::Continue).unwrap_err();
        assert_eq!(error.status, 400);
        assert!(error.message.contains("assistant\nThe sumCONTINUE_FINAL_MESSAGE_TAG <|im_end|>"));
    }

    #[test]
    fn raw_prompts_are_continued_behind_the_mark() {
        let split = divide(b"def f(x):\n###\n return");
        assert_eq!((split.conversation.as_str(), split.prefix.as_slice()), ("def f(x):\n###\n", &b" return"[..]));
    }
}
