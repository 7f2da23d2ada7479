//! An open-loop schedule: what is sent when, drawn from a seed before anything is sent.
//!
//! Open loop means that arrivals do not wait for answers, so a slow server cannot hide its slowness by being asked less.
//! Pure: the same seed gives the same requests at the same times.

use std::time::Duration;

use serde_json::{Value, json};

use crate::text::{Rng, mix};

/// What a schedule is drawn from.
#[derive(Debug, Clone, serde::Serialize)]
pub struct PlanSpec {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Arrivals for each second, on average; they come as a Poisson process.
    pub rate: f64,
    /// How long requests arrive.
    pub duration: Duration,
    /// The `model` field.
    pub model: String,
    /// Length of prompts in words, from and to.
    pub prompt_words: (usize, usize),
    /// `max_tokens`, from and to.
    pub output_tokens: (usize, usize),
    /// Share of streamed requests, in percent.
    pub streamed: usize,
    /// Share of requests that are cancelled in the middle, in percent.
    pub cancelled: usize,
    /// Share of sampled requests (with a seed), in percent; the rest is greedy.
    pub sampled: usize,
    /// Share of requests with something that is hard to carry on, in percent: penalties, stop strings, a grammar, two
    /// choices, no temperature, log probabilities.
    pub variety: usize,
    /// Kinds of text, as the engine's `#kind=` marker; evenly.
    pub kinds: Vec<String>,
}

impl Default for PlanSpec {
    fn default() -> Self {
        Self {
            seed: 0,
            rate: 10.0,
            duration: Duration::from_secs(30),
            model: "tiny".to_owned(),
            prompt_words: (8, 60),
            output_tokens: (20, 200),
            streamed: 80,
            cancelled: 0,
            sampled: 0,
            variety: 0,
            kinds: ["prose", "mixed", "code", "cjk"].map(str::to_owned).to_vec(),
        }
    }
}

/// One request of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// Position in the schedule.
    pub number: usize,
    /// `X-Request-Id`: unique for seed and number.
    pub id: String,
    /// When it is sent, from the start.
    pub at: Duration,
    /// The chat request.
    pub request: Value,
    /// The client goes away behind this many events (or at once, if not streamed).
    pub cancel_after: Option<u64>,
}

impl Arrival {
    /// True for a streamed request.
    pub fn streamed(&self) -> bool {
        self.request.get("stream").and_then(Value::as_bool).unwrap_or(false)
    }
}

/// Draws arrivals one by one, so that a long schedule costs no memory.
#[derive(Debug, Clone)]
pub struct Plan {
    spec: PlanSpec,
    rng: Rng,
    at: Duration,
    number: usize,
}

impl Plan {
    /// The schedule of `spec`.
    pub fn new(spec: PlanSpec) -> Self {
        Self { rng: Rng::new(spec.seed), spec, at: Duration::ZERO, number: 0 }
    }

    fn between(&mut self, (from, to): (usize, usize)) -> usize {
        from + self.rng.below(to.saturating_sub(from) + 1)
    }

    fn request(&mut self) -> Value {
        let words = self.between(self.spec.prompt_words);
        let tokens = self.between(self.spec.output_tokens).max(1);
        let (streamed, sampled) = (self.rng.chance(self.spec.streamed), self.rng.chance(self.spec.sampled));
        let kind = match self.spec.kinds.len() {
            0 => String::new(),
            kinds => format!(" #kind={}", self.spec.kinds[self.rng.below(kinds)]),
        };
        let mut prompt = format!("Request {} of plan {}:", self.number, self.spec.seed);
        for _ in 0..words {
            prompt.push(' ');
            prompt.push_str(self.rng.pick(&["tell", "me", "about", "the", "harbour", "in", "winter", "and", "its", "lanterns"]));
        }
        // More sentences than `max_tokens` allows, so that the length is the planned one.
        prompt.push_str(&format!("{kind} #sentences={tokens}"));
        let mut request = json!({
            "model": self.spec.model, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0
        });
        if sampled {
            request["temperature"] = 0.8.into();
            request["seed"] = (self.rng.below(1 << 30) as u64).into();
        }
        if self.rng.chance(self.spec.variety) {
            self.vary(&mut request);
        }
        if streamed {
            request["stream"] = true.into();
            request["stream_options"] = json!({"include_usage": true});
        }
        request
    }

    fn vary(&mut self, request: &mut Value) {
        match self.rng.below(6) {
            0 => request["presence_penalty"] = 0.5.into(),
            1 => request["stop"] = json!(["leader", "return", "。"]),
            2 => request["response_format"] = json!({"type": "json_object"}),
            3 => {
                request["n"] = 2.into();
                request["temperature"] = 0.8.into();
                request["seed"] = 7.into();
            }
            4 => {
                // What an SDK sends by default: sampled, without a seed.
                if let Some(fields) = request.as_object_mut() {
                    fields.remove("temperature");
                }
            }
            _ => request["logprobs"] = true.into(),
        }
    }
}

impl Iterator for Plan {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if self.spec.rate <= 0.0 {
            return None;
        }
        // Exponential gaps; the logarithm of at most 1 is at most 0.
        let gap = -(1.0 - self.rng.unit()).ln() / self.spec.rate;
        self.at += Duration::try_from_secs_f64(gap).unwrap_or_default();
        if self.at >= self.spec.duration {
            return None;
        }
        let request = self.request();
        let cancel_after = self.rng.chance(self.spec.cancelled).then(|| 1 + self.rng.below(20) as u64);
        let number = self.number;
        self.number += 1;
        let id = format!("plan-{:08x}-{number}", mix(self.spec.seed, 1) >> 32);
        Some(Arrival { number, id, at: self.at, request, cancel_after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_schedule() {
        let plan = || Plan::new(PlanSpec { seed: 9, rate: 50.0, duration: Duration::from_secs(20), ..PlanSpec::default() });
        let arrivals: Vec<_> = plan().collect();
        assert_eq!(arrivals, plan().collect::<Vec<_>>());
        assert!((800..1200).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let streamed = arrivals.iter().filter(|arrival| arrival.streamed()).count();
        assert!((arrivals.len() * 7 / 10..arrivals.len() * 9 / 10).contains(&streamed));
    }

    #[test]
    fn lengths_stay_in_their_bounds() {
        let spec = PlanSpec { output_tokens: (3, 5), cancelled: 100, ..PlanSpec::default() };
        for arrival in Plan::new(spec) {
            let tokens = arrival.request["max_tokens"].as_u64().unwrap();
            assert!((3..=5).contains(&tokens) && arrival.cancel_after.is_some());
        }
    }
}
