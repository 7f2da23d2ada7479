//! Values that an engine refuses, and flags that do not go together.
//!
//! The texts are those of engine facts section 2. Pure.

use super::ask::{Ask, Endpoint};
use super::errors::ApiError;
use super::persona::Persona;
use super::template::Mode;

/// Which message the answer is.
pub(crate) fn mode(ask: &Ask) -> Result<Mode, ApiError> {
    match (ask.continue_final, ask.generation_prompt) {
        (true, Some(true)) => Err(ApiError::bad("Cannot set both `continue_final_message` and `add_generation_prompt` to True.", None)),
        (true, None) => Err(ApiError::bad(
            "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you want the model to \
             continue the final message, and add_generation_prompt when you want to add a header that will prompt it to start a new \
             assistant message instead.",
            None,
        )),
        (true, Some(false)) => Ok(Mode::Continue),
        (false, Some(false)) => Ok(Mode::Bare),
        (false, _) => Ok(Mode::New),
    }
}

/// Sampling, `n` and tools.
pub(crate) fn values(ask: &Ask, persona: &Persona) -> Result<(), ApiError> {
    if ask.temperature < 0.0 {
        let message = format!("temperature must be non-negative, got {0:?}. (parameter=temperature, value={0:?})", ask.temperature);
        return Err(ApiError::bad(message, Some("temperature")));
    }
    if ask.n > 1 && !ask.sampled() {
        return Err(ApiError::bad(format!("n must be 1 when using greedy sampling, got {}.", ask.n), None));
    }
    if ask.n > 64 {
        return Err(ApiError::bad(format!("n must be at most 64, got {}. (parameter=n, value={})", ask.n, ask.n), Some("n")));
    }
    let automatic = ask.tools.as_ref().is_some_and(|tools| !tools.required);
    if automatic && !persona.tool_parser {
        let message = "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set";
        return Err(ApiError::bad(message, None));
    }
    Ok(())
}

/// The number of tokens that may be made.
pub(crate) fn length(ask: &Ask, prompt: usize, limit: usize) -> Result<usize, ApiError> {
    if prompt > limit {
        let message = format!(
            "This model's maximum context length is {limit} tokens. However, your prompt contains at least {0} input tokens, which exceeds \
             this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={0})",
            limit + 1
        );
        return Err(ApiError::bad(message, Some("input_tokens")));
    }
    let left = limit - prompt;
    let asked = match ask.max_tokens {
        None if ask.endpoint == Endpoint::Completion => 16,
        None => left,
        Some(tokens) if tokens < 1 => {
            let message = format!("max_tokens must be at least 1, got {tokens}. (parameter=max_tokens, value={tokens})");
            return Err(ApiError::bad(message, Some("max_tokens")));
        }
        Some(tokens) => usize::try_from(tokens).unwrap_or(usize::MAX),
    };
    if asked > limit {
        let message = format!(
            "max_tokens={asked} cannot be greater than max_model_len={limit}. Please request fewer output tokens. (parameter=max_tokens, \
             value={asked})"
        );
        return Err(ApiError::bad(message, Some("max_tokens")));
    }
    Ok(asked.min(left).max(1))
}
