//! An answer that is not streamed: one object.
//!
//! Also the pure way to know what an engine must answer: [`Answer::of`] runs a job to its end without a network, and
//! load clients compare with it.

use super::ask::Endpoint;
use super::choice::{Choice, Chunk};
use super::decode::Finish;
use super::events::{Usage, list, logprobs, null, quoted, usage_object};
use super::job::Job;
use super::parser::Piece;

/// What one choice says in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// `content`, or `text` of a completion.
    pub content: String,
    /// `reasoning`
    pub reasoning: String,
    /// Name and arguments of the tool call, and the id that the engine gave it.
    pub tool: Option<(String, String, String)>,
    /// `finish_reason`
    pub finish: Option<Finish>,
    /// `stop_reason`
    pub stop: Option<String>,
    /// The tokens.
    pub ids: Vec<u32>,
    had_content: bool,
}

impl Said {
    /// Adds an event.
    pub fn push(&mut self, chunk: Chunk) {
        match chunk.piece {
            None => {}
            Some(Piece::Content(text)) => {
                self.had_content = true;
                self.content.push_str(&text);
            }
            Some(Piece::Reasoning(text)) => self.reasoning.push_str(&text),
            Some(Piece::ToolStart { id, name }) => self.tool = Some((name, String::new(), id)),
            Some(Piece::ToolArguments(text)) => {
                if let Some((_, arguments, _)) = &mut self.tool {
                    arguments.push_str(&text);
                }
            }
        }
        self.ids.extend(chunk.ids);
        self.finish = self.finish.or(chunk.finish);
        self.stop = self.stop.take().or(chunk.stop);
    }
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// By index.
    pub choices: Vec<Said>,
    /// The sum over all choices.
    pub usage: Usage,
}

impl Answer {
    /// Runs `job` to its end.
    pub fn of(job: &Job) -> Self {
        Self::collect(job, job.choices())
    }

    /// Runs `job` until each choice has `tokens`, and aborts it there.
    pub fn aborted(job: &Job, tokens: usize) -> Self {
        let mut answer = Self::collect(job, (0..job.ask.n).map(|index| job.choice(index, tokens.max(1))).collect());
        for said in answer.choices.iter_mut().filter(|said| said.finish == Some(Finish::Length) && tokens < job.max_tokens) {
            said.finish = Some(Finish::Abort);
        }
        answer
    }

    fn collect(job: &Job, choices: Vec<Choice>) -> Self {
        let mut answer = Self { choices: Vec::new(), usage: Usage { prompt: job.prompt_tokens, ..Usage::default() } };
        for mut choice in choices {
            let mut said = Said::default();
            while !choice.is_over() {
                if let Some(chunk) = choice.advance() {
                    said.push(chunk);
                }
            }
            answer.usage.completion += choice.made();
            answer.usage.reasoning = choice.reasoning_tokens().map(|tokens| tokens + answer.usage.reasoning.unwrap_or(0));
            answer.choices.push(said);
        }
        answer
    }

    /// The longest choice, in tokens: how long the engine takes.
    pub fn longest(&self) -> usize {
        self.choices.iter().map(|said| said.ids.len()).max().unwrap_or(0)
    }

    /// The body.
    pub fn body(&self, job: &Job, id: &str, created: u64, fingerprint: &str) -> String {
        let chat = job.ask.endpoint == Endpoint::Chat;
        let object = if chat { "chat.completion" } else { "text_completion" };
        let choices: Vec<_> = self.choices.iter().enumerate().map(|(index, said)| choice_object(job, index, said)).collect();
        let prompt_ids = if job.ask.return_token_ids { list(&job.prompt_ids()) } else { null() };
        let prompt_text = if job.ask.return_prompt_text { quoted(&job.split.prompt_text()) } else { null() };
        let usage = usage_object(self.usage, "\"prompt_tokens_details\":null,\"completion_tokens_details\"");
        let middle = if chat {
            format!("\"prompt_logprobs\":null,\"prompt_token_ids\":{prompt_ids},\"prompt_text\":{prompt_text},")
        } else {
            String::new()
        };
        format!(
            "{{\"id\":{},\"object\":\"{object}\",\"created\":{created},\"model\":{},\"choices\":[{}],\"service_tier\":null,\
             \"system_fingerprint\":{},\"usage\":{usage},{middle}\"kv_transfer_params\":null,\"ec_transfer_params\":null,\"metrics\":null}}",
            quoted(id),
            quoted(&job.model),
            choices.join(","),
            quoted(fingerprint),
        )
    }
}

fn choice_object(job: &Job, index: usize, said: &Said) -> String {
    let finish = said.finish.map_or_else(null, |finish| quoted(finish.as_str()));
    let stop = said.stop.as_deref().map_or_else(null, quoted);
    let ids = if job.ask.return_token_ids { list(&said.ids) } else { null() };
    let echoed = if job.ask.echo { String::from_utf8_lossy(&job.split.prefix) } else { "".into() };
    if job.ask.endpoint == Endpoint::Completion {
        let prompt_ids = if job.ask.return_token_ids { list(&job.prompt_ids()) } else { null() };
        let text = quoted(&said.content);
        return format!(
            "{{\"index\":{index},\"text\":{text},\"logprobs\":null,\"finish_reason\":{finish},\"stop_reason\":{stop},\"token_ids\":{ids},\
             \"prompt_logprobs\":null,\"prompt_token_ids\":{prompt_ids},\"routed_experts\":null}}"
        );
    }
    let content = if said.had_content || (said.tool.is_none() && said.reasoning.is_empty()) {
        quoted(&format!("{echoed}{}", said.content))
    } else {
        null()
    };
    let reasoning = if said.reasoning.is_empty() { null() } else { quoted(&said.reasoning) };
    let tools = said.tool.as_ref().map(|(name, arguments, id)| {
        let function = format!("{{\"name\":{},\"arguments\":{}}}", quoted(name), quoted(arguments));
        format!("\"tool_calls\":[{{\"id\":{},\"type\":\"function\",\"function\":{function}}}],", quoted(id))
    });
    let logprobs = if job.ask.logprobs { logprobs(&said.ids) } else { null() };
    format!(
        "{{\"index\":{index},\"message\":{{\"role\":{},\"content\":{content},\"refusal\":null,\"annotations\":null,\"audio\":null,\
         \"function_call\":null,{}\"reasoning\":{reasoning}}},\"logprobs\":{logprobs},\"finish_reason\":{finish},\"stop_reason\":{stop},\
         \"token_ids\":{ids},\"routed_experts\":null}}",
        quoted(&job.split.role),
        tools.unwrap_or_default(),
    )
}
