//! Waiting for a state instead of for a time: the only place of the harness that looks at something again and again.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::Outcome;

/// A generous bound for one step on a busy machine. Nothing is measured against it: a test that passes never waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks: short beside what the tests wait for, long beside what a look costs.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks with `check` until it answers `Ok`, and fails with `what` and its last `Err` once `within` has passed.
pub async fn eventually<T, Check, Look>(within: Duration, what: &str, mut check: Check) -> Outcome<T>
where
    Check: FnMut() -> Look,
    Look: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(seen) if start.elapsed() >= within => return Err(format!("{what}: not within {within:?}; last seen: {seen}").into()),
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_as_soon_as_the_state_is_there() {
        let mut looks = 0;
        let seen = eventually(PATIENCE, "third look", || {
            looks += 1;
            let now = looks;
            async move { if now == 3 { Ok(now) } else { Err(format!("look {now}")) } }
        })
        .await;
        assert_eq!(seen.unwrap(), 3);
    }

    #[tokio::test]
    async fn says_what_it_last_saw() {
        let seen = eventually::<(), _, _>(Duration::ZERO, "the impossible", || async { Err("nothing".to_owned()) }).await;
        let text = seen.unwrap_err().to_string();
        assert!(text.contains("the impossible") && text.contains("last seen: nothing"), "{text}");
    }
}
