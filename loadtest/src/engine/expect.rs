//! What an engine must answer, computed without one.
//!
//! Load clients and tests compare every character with this. It takes the request as the *client* sent it: whatever a
//! gateway does in between (retries, resumes) must not show.

use serde_json::Value;

use super::ask::{Ask, Endpoint};
use super::errors::ApiError;
use super::job::Job;
use super::persona::Persona;
use super::whole::Answer;

/// The answer of an engine with this persona to a chat request. Sampled texts are only known with a `seed` or with
/// [`Unseeded::Same`](super::Unseeded::Same).
///
/// # Errors
///
/// The engine's refusal, if it refuses the request.
pub fn expected_chat(request: &Value, persona: &Persona) -> Result<Answer, ApiError> {
    expected(Endpoint::Chat, request, persona)
}

/// The same for a request of `/v1/completions`.
///
/// # Errors
///
/// The engine's refusal, if it refuses the request.
pub fn expected_completion(request: &Value, persona: &Persona) -> Result<Answer, ApiError> {
    expected(Endpoint::Completion, request, persona)
}

/// The content of the first choice of a chat; empty if the engine refuses the request.
pub fn expected_text(request: &Value, persona: &Persona) -> String {
    expected_chat(request, persona).ok().and_then(|answer| answer.choices.into_iter().next()).map(|said| said.content).unwrap_or_default()
}

fn expected(endpoint: Endpoint, request: &Value, persona: &Persona) -> Result<Answer, ApiError> {
    Ok(Answer::of(&Job::new(Ask::from_value(endpoint, request)?, persona, 0)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::persona::Template;

    fn chat(prefix: Option<&str>, more: Value) -> Value {
        let mut request =
            json!({"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": "Tell me, number 7. #sentences=6"}]});
        if let Some(prefix) = prefix {
            request["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": prefix}));
            request["continue_final_message"] = true.into();
            request["add_generation_prompt"] = false.into();
        }
        for (name, value) in more.as_object().unwrap() {
            request[name] = value.clone();
        }
        request
    }

    fn rest(prefix: &str, persona: &Persona, more: Value) -> String {
        expected_text(&chat(Some(prefix), more), persona)
    }

    /// Places between a letter and ` letter`, as resumes cut.
    fn safe_cuts(text: &str) -> Vec<usize> {
        let letter = |byte: u8| byte.is_ascii_alphabetic();
        text.as_bytes().windows(3).enumerate().filter(|(_, w)| letter(w[0]) && w[1] == b' ' && letter(w[2])).map(|(at, _)| at + 1).collect()
    }

    #[test]
    fn letter_space_cuts_are_exact_with_both_templates() {
        for template in [Template::Plain, Template::Trim] {
            let persona = Persona { template, ..Persona::default() };
            let whole = expected_text(&chat(None, json!({})), &persona);
            let cuts = safe_cuts(&whole);
            assert!(cuts.len() > 10, "{whole}");
            for cut in cuts {
                assert_eq!(rest(&whole[..cut], &persona, json!({})), whole[cut..], "{template:?} at {cut}");
            }
        }
    }

    #[test]
    fn a_trimming_template_repeats_white_space() {
        let persona = Persona { template: Template::Trim, ..Persona::default() };
        let whole = expected_text(&chat(None, json!({})), &persona);
        let cut = whole.find(' ').unwrap() + 1;
        assert_eq!(rest(&whole[..cut], &persona, json!({})), whole[cut - 1..]);
        assert_eq!(rest("", &persona, json!({})), format!("\n{whole}"));
    }

    #[test]
    fn a_trimming_template_loses_white_space_at_the_beginning() {
        let persona = Persona { template: Template::Trim, ..Persona::default() };
        let blank = json!({"messages": [{"role": "user", "content": "Tell me. #blank #kind=prose"}]});
        let whole = expected_text(&chat(None, blank.clone()), &persona);
        let cut = safe_cuts(&whole)[0];
        let mut request = chat(None, blank);
        request["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": &whole[..cut]}));
        request["continue_final_message"] = true.into();
        request["add_generation_prompt"] = false.into();
        assert!(whole.starts_with('\n') && expected_text(&request, &persona).starts_with("[unknown prefix] "));
    }

    #[test]
    fn what_cannot_be_resumed_comes_out_wrong() {
        let persona = Persona::default();
        for more in [json!({"temperature": 1, "seed": 3}), json!({"presence_penalty": 0.5}), json!({"frequency_penalty": 0.5})] {
            let whole = expected_text(&chat(None, more.clone()), &persona);
            let cut = *safe_cuts(&whole).last().unwrap();
            assert_ne!(rest(&whole[..cut], &persona, more.clone()), whole[cut..], "{more}");
            assert_eq!(expected_text(&chat(None, more), &persona), whole);
        }
        let grammar = json!({"response_format": {"type": "json_object"}});
        let whole = expected_text(&chat(None, grammar.clone()), &persona);
        assert_eq!(rest(&whole[..20], &persona, grammar), whole);
    }

    #[test]
    fn without_the_flags_the_answer_is_another_one() {
        let persona = Persona::default();
        let whole = expected_text(&chat(None, json!({})), &persona);
        let cut = safe_cuts(&whole)[0];
        let more = json!({"continue_final_message": false, "add_generation_prompt": true});
        assert_ne!(rest(&whole[..cut], &persona, more), whole[cut..]);
        assert_eq!(expected_chat(&chat(Some("x"), json!({"add_generation_prompt": true})), &persona).unwrap_err().status, 400);
    }

    #[test]
    fn token_ids_are_exact_behind_text_and_leak_the_prompt_inside_a_character() {
        let persona = Persona::default();
        let request = chat(None, json!({}));
        let job = Job::new(Ask::from_value(Endpoint::Chat, &request).unwrap(), &persona, 0).unwrap();
        let (prompt, whole) = (job.prompt_ids(), Answer::of(&job).choices.remove(0));
        let mut leaks = 0;
        for cut in 1..whole.ids.len() - 1 {
            let ids: Vec<u32> = prompt.iter().chain(&whole.ids[..cut]).copied().collect();
            let more = json!({"model": "tiny", "temperature": 0, "prompt": ids, "max_tokens": 4000});
            let got = expected_completion(&more, &persona).unwrap().choices.remove(0).content;
            let kept = crate::text::token::decode(&whole.ids[..cut], false);
            match std::str::from_utf8(&kept) {
                Ok(kept) => assert_eq!(got, whole.content[kept.len()..], "cut {cut}"),
                Err(_) => {
                    leaks += 1;
                    assert!(got.starts_with("user\nTell me, number 7."), "{got}");
                }
            }
        }
        assert!(leaks > 0);
    }

    #[test]
    fn usage_counts_the_prefix_to_the_prompt() {
        let persona = Persona::default();
        let first = expected_chat(&chat(None, json!({})), &persona).unwrap();
        let whole = &first.choices[0].content;
        let cut = safe_cuts(whole)[3];
        let second = expected_chat(&chat(Some(&whole[..cut]), json!({})), &persona).unwrap();
        assert_eq!(first.usage.prompt + first.usage.completion, second.usage.prompt + second.usage.completion);
        assert!(second.usage.prompt > first.usage.prompt);
    }

    #[test]
    fn thoughts_go_on_as_text_only() {
        let persona = Persona { thinking: true, reasoning_parser: true, ..Persona::default() };
        let whole = expected_chat(&chat(None, json!({})), &persona).unwrap().choices.remove(0);
        let said = |prefix: &str| expected_chat(&chat(Some(prefix), json!({})), &persona).unwrap().choices.remove(0);
        let cut = safe_cuts(&whole.reasoning)[1];
        let inside = said(&format!("<think>{}", &whole.reasoning[..cut]));
        assert_eq!((inside.reasoning.as_str(), &inside.content), (&whole.reasoning[cut..], &whole.content));
        let cut = safe_cuts(&whole.content)[1];
        let after = said(&format!("<think>{}</think>{}", whole.reasoning, &whole.content[..cut]));
        assert_eq!(after.content, whole.content[cut..]);
        // Without its thought, everything is filed under reasoning, and it is another text.
        assert!(said(&whole.content[..cut]).content.is_empty());
    }

    #[test]
    fn a_tool_call_resumed_inside_comes_as_plain_content() {
        let persona = Persona { tool_parser: true, ..Persona::default() };
        let tools = json!({"tools": [{"type": "function", "function": {"name": "get_weather"}}], "tool_choice": "required"});
        let whole = expected_chat(&chat(None, tools.clone()), &persona).unwrap().choices.remove(0);
        assert_eq!(whole.finish.unwrap().as_str(), "tool_calls");
        let (name, arguments, _) = whole.tool.unwrap();
        let prefix = format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {}", &arguments[..9]);
        let resumed = expected_chat(&chat(Some(&prefix), tools), &persona).unwrap().choices.remove(0);
        assert_eq!(resumed.finish.unwrap().as_str(), "stop");
        assert!(resumed.tool.is_none() && resumed.content.ends_with("</tool_call>"));
    }
}
