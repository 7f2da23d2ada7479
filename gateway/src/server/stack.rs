//! What every request gets, whatever its path: a panic guard and the cross-origin answers.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use http::Request;
use http::header::ORIGIN;
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use crate::proxy::service::{self, Answered, Caller};
use crate::reject::Reject;
use crate::server::cors;

/// Answers a request; a panic becomes a 500 and is counted.
pub async fn call(caller: Caller, request: Request<Incoming>) -> Result<Answered, Infallible> {
    let config = caller.gateway.config.load_full();
    if let Some(answer) = cors::preflight(&config.cors, request.method(), request.headers()) {
        let mut answer = answer.map(|body| Either::Left(Full::new(body)));
        cors::mark(&config.cors, request.headers().get(ORIGIN), answer.headers_mut());
        return Ok(answer);
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let telemetry = caller.gateway.telemetry.clone();
    // Boxed: hyper keeps room for this future as long as the connection lives; the box is free again when the answer has begun.
    let serving = Box::pin(service::serve(caller, request));
    let mut answer = AssertUnwindSafe(serving).catch_unwind().await.unwrap_or_else(|_| {
        telemetry.metrics.panics.inc();
        tracing::error!("a request handler panicked");
        Reject::Internal.response().map(|body| Either::Left(Full::new(body)))
    });
    cors::mark(&config.cors, origin.as_ref(), answer.headers_mut());
    Ok(answer)
}
