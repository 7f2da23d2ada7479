//! What a client expects: the engines' persona, and the name under which they are really asked.

use serde_json::Value;

use crate::engine::whole::Answer;
use crate::engine::{Persona, expected_chat};

/// Knows the answer to every chat request.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    /// What the engines write.
    pub persona: Persona,
    /// The served name, if requests name a deployment that a gateway replaces.
    pub served_model: Option<String>,
}

impl Expectation {
    /// For engines that serve the name that requests name.
    pub fn of(persona: Persona) -> Self {
        Self { persona, served_model: None }
    }

    /// The answer that is due; `None` if the engine must refuse the request.
    pub fn answer(&self, request: &Value) -> Option<Answer> {
        match &self.served_model {
            None => expected_chat(request, &self.persona).ok(),
            Some(model) => {
                let mut request = request.clone();
                request["model"] = model.as_str().into();
                expected_chat(&request, &self.persona).ok()
            }
        }
    }
}
