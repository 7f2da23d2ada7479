//! What a kubelet and a drain hook ask an engine by HTTP: `/health` and the gauges of `/metrics`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Gauges whose sum is the work that an engine has, vLLM's and SGLang's.
const GAUGES: &[&str] = &["vllm:num_requests_running", "vllm:num_requests_waiting", "sglang:num_running_reqs", "sglang:num_queue_reqs"];

/// `/health` answers 200 within `timeout`.
pub(super) async fn healthy(engine: SocketAddr, timeout: Duration) -> bool {
    matches!(tokio::time::timeout(timeout, fetch(engine, "/health")).await, Ok(Some((200, _))))
}

/// No request runs or waits; false also when the engine does not tell.
pub(in crate::operator) async fn idle(engine: SocketAddr, timeout: Duration) -> bool {
    match tokio::time::timeout(timeout, fetch(engine, "/metrics")).await {
        Ok(Some((200, text))) => work(&text) == Some(0.0),
        Ok(Some(_) | None) | Err(_) => false,
    }
}

async fn fetch(engine: SocketAddr, path: &str) -> Option<(u16, String)> {
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build::<_, Full<Bytes>>(HttpConnector::new());
    let answer = client.get(format!("http://{engine}{path}").parse().ok()?).await.ok()?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Sum of the gauges; nothing if there are none.
fn work(metrics: &str) -> Option<f64> {
    let lines = metrics.lines().filter(|line| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        GAUGES.contains(&name)
    });
    let values: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_summed_and_their_absence_is_no_idleness() {
        let text = "# TYPE x gauge\nvllm:num_requests_running{engine=\"0\"} 2.0\nvllm:num_requests_waiting{engine=\"0\"} 1.0\nvllm:num_requests_waiting_by_reason{reason=\"capacity\"} 7.0\n";
        assert_eq!(work(text), Some(3.0));
        assert_eq!(work("up 1\n"), None);
    }
}
