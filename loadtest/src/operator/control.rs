//! The control port of `loadtest operator`: what tests do by library calls, for shells and scripts.
//!
//! `GET /pods`; `POST /pods/NAMESPACE/NAME/{kill,restart,hang,ready,not-ready}`; `POST /deployments/NAMESPACE/NAME/roll`;
//! `POST /deployments/NAMESPACE/NAME/scale/ROLE/REPLICAS`; `POST /admission/hold/SECONDS`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{OperatorError, OperatorHandle, Order};

/// Serves commands until dropped. At most one task for each open connection.
pub(super) async fn serve(listener: TcpListener, operator: Arc<OperatorHandle>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let operator = Arc::clone(&operator);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&operator), request));
            // A client that hangs up in the middle concerns nobody else.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn answer(operator: Arc<OperatorHandle>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let (status, text) = match obey(&operator, request.method(), &path).await {
        Ok(Some(text)) => (StatusCode::OK, text),
        Ok(None) => (StatusCode::NOT_FOUND, "no such command".to_owned()),
        Err(error) => (StatusCode::CONFLICT, error.to_string()),
    };
    let mut response = Response::new(Full::from(text + "\n"));
    *response.status_mut() = status;
    Ok(response)
}

async fn obey(operator: &OperatorHandle, method: &Method, path: &[&str]) -> Result<Option<String>, OperatorError> {
    match (method, path) {
        (&Method::GET, ["pods"]) => return Ok(serde_json::to_string_pretty(&operator.pods()).ok()),
        (&Method::POST, ["pods", namespace, pod, word]) => match order(word) {
            Some(order) => operator.order(namespace, pod, order)?,
            None => return Ok(None),
        },
        (&Method::POST, ["deployments", namespace, name, "roll"]) => operator.roll(namespace, name).await?,
        (&Method::POST, ["deployments", namespace, name, "scale", role, replicas]) => match replicas.parse() {
            Ok(replicas) => operator.scale(namespace, name, role, replicas).await?,
            Err(_) => return Ok(None),
        },
        (&Method::POST, ["admission", "hold", seconds]) => match seconds.parse() {
            Ok(seconds) => operator.hold_admission(Duration::from_secs(seconds)).await,
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    }
    Ok(Some("done".to_owned()))
}

fn order(word: &str) -> Option<Order> {
    Some(match word {
        "kill" => Order::Kill,
        "restart" => Order::Restart,
        "hang" => Order::Hang,
        "ready" => Order::SetReady(true),
        "not-ready" => Order::SetReady(false),
        _ => return None,
    })
}
