//! The demo's traffic: an open-loop schedule with streams that outlast the grace period. Pure.
//!
//! Differs from the plan of `loadtest run` in one thing that matters here: lengths are shares of the Pods' grace period, and a quarter of
//! the streams is longer than it, so that no drain can wait for them. Next: `load` sends it.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::plan::Arrival;

/// What the load is like; times are as the clients see them.
#[derive(Debug, Clone)]
pub(super) struct LoadShape {
    pub(super) model: String,
    /// Requests a second, on average.
    pub(super) rate: f64,
    /// The grace period of the Pods: a quarter of the streams last longer.
    pub(super) grace: Duration,
    /// From token to token.
    pub(super) token: Duration,
    pub(super) seed: u64,
}

/// The endless schedule.
pub(super) struct Traffic {
    shape: LoadShape,
    rng: StdRng,
    at: Duration,
    number: usize,
}

impl Traffic {
    pub(super) fn new(shape: LoadShape) -> Self {
        let rng = StdRng::seed_from_u64(shape.seed);
        Self { shape, rng, at: Duration::ZERO, number: 0 }
    }
}

impl Iterator for Traffic {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.number += 1;
        let gap = -(1.0 - self.rng.random::<f64>()).ln() / self.shape.rate.max(0.001);
        self.at += Duration::from_secs_f64(gap.min(60.0));
        let streamed = !self.number.is_multiple_of(10);
        let share = match self.number % 4 {
            // Longer than the grace period: such a stream cannot be waited out.
            0 if streamed => self.rng.random_range(1.2..1.8),
            _ => self.rng.random_range(0.05..0.5),
        };
        let tokens = tokens_in(self.shape.grace.mul_f64(share), self.shape.token);
        let kind = if self.number.is_multiple_of(3) { "mixed" } else { "prose" };
        let prompt = format!("Request {} of seed {}. #kind={kind}", self.number, self.shape.seed);
        let mut request = json!({
            "model": self.shape.model, "temperature": 0, "max_tokens": tokens, "ignore_eos": true,
            "messages": [{"role": "user", "content": prompt}],
        });
        if streamed {
            request["stream"] = json!(true);
            request["stream_options"] = json!({"include_usage": true});
        }
        let id = format!("demo-{}-{}", self.shape.seed, self.number);
        Some(Arrival { number: self.number, id, at: self.at, request, cancel_after: None })
    }
}

fn tokens_in(time: Duration, token: Duration) -> u64 {
    let count = time.as_micros() / token.as_micros().max(1);
    u64::try_from(count).unwrap_or(u64::MAX).max(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Persona, expected_text};

    fn plan(seed: u64) -> Vec<Arrival> {
        let (grace, token) = (Duration::from_secs(30), Duration::from_millis(30));
        Traffic::new(LoadShape { model: "m".into(), rate: 2.0, grace, token, seed }).take(400).collect()
    }

    #[test]
    fn one_seed_gives_one_schedule() {
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn keeps_the_rate_and_holds_streams_longer_than_the_grace() {
        let plan = plan(7);
        let seconds = plan.last().unwrap().at.as_secs_f64();
        assert!((150.0..250.0).contains(&seconds), "400 requests took {seconds} s");
        let long = plan.iter().filter(|arrival| arrival.streamed() && arrival.request["max_tokens"].as_u64() > Some(1000)).count();
        assert!((60..=120).contains(&long), "{long}");
    }

    /// Without this a failing scenario could be the engine's fault: whoever carries a text on at a safe cut must get its rest.
    #[test]
    fn every_text_can_be_carried_on() {
        let persona = Persona::named("m");
        for arrival in plan(3).into_iter().take(12) {
            let whole = expected_text(&arrival.request, &persona);
            let letter = |byte: u8| byte.is_ascii_alphabetic();
            let cuts =
                whole.as_bytes().windows(3).enumerate().filter(|(_, three)| letter(three[0]) && three[1] == b' ' && letter(three[2]));
            for (cut, _) in cuts.map(|(at, three)| (at + 1, three)).step_by(7) {
                let mut request = arrival.request.clone();
                let said = json!({"role": "assistant", "content": &whole[..cut]});
                request["messages"].as_array_mut().unwrap().push(said);
                request["continue_final_message"] = json!(true);
                request["add_generation_prompt"] = json!(false);
                let rest = expected_text(&request, &persona);
                assert!(rest.starts_with(&whole[cut..]), "{} at {cut}: {rest:?} instead of {:?}", arrival.id, &whole[cut..]);
            }
        }
    }
}
