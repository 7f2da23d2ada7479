//! One small GET, for readiness, metrics and model lists of the stage.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::Failure;

/// Whoever does not answer by then is not ready.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Status and text of `http://ADDRESS` + path.
pub(super) async fn get(address: SocketAddr, path: &str) -> Result<(u16, String), Failure> {
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build::<_, Full<Bytes>>(HttpConnector::new());
    let url = format!("http://{address}{path}").parse()?;
    let answer = tokio::time::timeout(TIMEOUT, client.get(url)).await??;
    let status = answer.status().as_u16();
    let body = tokio::time::timeout(TIMEOUT, answer.into_body().collect()).await??.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
