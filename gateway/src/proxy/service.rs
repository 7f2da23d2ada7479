//! One request from its head to its response: which kind of path, reading, opening, and the choice between an answer and a wait.
//!
//! Next step: `ingress` and `job`; the answer's body is an `exchange`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::groups::queue::Grant;
use crate::proxy::carry::Carried;
use crate::proxy::exchange::{self, Exchange, Progress};
use crate::proxy::headers::{self, X_LEADGATE_GROUP, X_REQUEST_ID};
use crate::proxy::ingress::{self, Unread};
use crate::proxy::job::Job;
use crate::proxy::kept::Kept;
use crate::proxy::opened::{Answer, Hold, Opened, Stop, is_event_stream};
use crate::proxy::record::Record;
use crate::proxy::relay::Relay;
use crate::proxy::{later, models, route};
use crate::reject::Reject;
use crate::server::io::Written;
use crate::shutdown::Phase;
use crate::telemetry::labels::Route;

/// A response as the server writes it.
pub type Answered = Response<AnswerBody>;
/// Whole bytes, or an answer in progress.
pub type AnswerBody = Either<Full<Bytes>, Box<Exchange>>;

/// Bytes of a body that nobody wants which hyper reads over, if they are there; behind a longer one it closes.
const DRAINED: u64 = 8 * 1024;

/// Who asks, over which connection.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Shared services.
    pub gateway: Arc<Gateway>,
    /// Index of the worker thread.
    pub worker: usize,
    /// The peer.
    pub client: IpAddr,
    /// Bytes and flushes of the connection.
    pub written: Arc<Written>,
}

/// Answers one request. Never fails: what goes wrong is an answer.
pub async fn serve(caller: Caller, request: Request<Incoming>) -> Answered {
    let (parts, body) = request.into_parts();
    let request_id = ingress::request_id(&parts.headers);
    let config = caller.gateway.config.load_full();
    let (path, version) = (parts.uri.path(), parts.version);
    let chunked = version == Version::HTTP_11 && !parts.headers.contains_key(CONTENT_LENGTH) && !hyper::body::Body::is_end_stream(&body);
    let route = route::of_path(path, &config.routes.extra);
    let record = Box::new(Record::new(caller.gateway.telemetry.clone(), &parts, caller.client, &request_id, route));
    let mut response = match special(&caller.gateway, &parts, route) {
        Some(answer) => {
            let unread = hyper::body::Body::size_hint(&body).upper().is_none_or(|most| most > DRAINED);
            let response = finish_here(record, answer);
            if unread { closing(response) } else { response }
        }
        None => routed(caller, parts, body, (config, record, request_id.clone())).await,
    };
    response.headers_mut().insert(X_REQUEST_ID, request_id);
    // RFC 9112 9.3: a proxy keeps no connection with an HTTP/1.0 client. 6.1: hyper drops a Content-Length that stands beside chunked coding and
    // does not tell, so a connection that carried a chunked request is not used again.
    if version == Version::HTTP_10 || chunked { closing(response) } else { response }
}

/// The same answer as the last one of its connection (RFC 9112 9.6); over HTTP/2 hyper leaves the field out.
fn closing(mut response: Answered) -> Answered {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Requests that are answered without a leader; `None`: a routed one, whose authority is checked when it is read.
fn special(gateway: &Gateway, parts: &Parts, route: Route) -> Option<Result<Response<Bytes>, Reject>> {
    if headers::has_looped(&parts.headers, &gateway.identity.name) {
        return Some(Err(Reject::Loop));
    }
    let answer = match (route, &parts.method) {
        (Route::Other, _) => Err(Reject::UnknownPath),
        (Route::Models, &Method::GET | &Method::HEAD) => {
            let rest = parts.uri.path().strip_prefix("/v1/models").unwrap_or_default();
            models::answer(&gateway.tables.load(), rest)
        }
        (Route::Models, _) => Err(Reject::MethodNotAllowed("GET, HEAD")),
        (_, &Method::POST) => return None,
        _ => Err(Reject::MethodNotAllowed("POST")),
    };
    // RFC 9112 3.2: a request without a valid Host is refused for that, whatever it asks.
    match headers::authority(&parts.uri, &parts.headers, parts.version) {
        Ok(_) => Some(answer),
        Err(what) => Some(Err(Reject::BadRequest(what.to_owned()))),
    }
}

fn finish_here(mut record: Box<Record>, answer: Result<Response<Bytes>, Reject>) -> Answered {
    match answer {
        Ok(response) => {
            record.answered(response.status().as_u16());
            record.passed_own(response.body());
            record.complete();
            response.map(|body| Either::Left(Full::new(body)))
        }
        Err(reject) => refused(&mut record, &reject),
    }
}

fn refused(record: &mut Record, reject: &Reject) -> Answered {
    record.refused(reject);
    let response = reject.response();
    record.passed_own(response.body());
    let response = response.map(|body| Either::Left(Full::new(body)));
    // The rest of a body that is refused is not read: the connection cannot be used again.
    let last = matches!(reject, Reject::BodyTooLarge { .. } | Reject::BodyTimeout | Reject::ShuttingDown);
    if last { closing(response) } else { response }
}

/// The client left during its upload. The record ends without a verdict, so as cancelled; only who closed half of its connection reads this answer.
fn left(record: Box<Record>) -> Answered {
    drop(record);
    Reject::BadRequest("the request body broke off".to_owned()).response().map(|body| Either::Left(Full::new(body)))
}

async fn routed(
    caller: Caller,
    parts: Parts,
    body: Incoming,
    (config, mut record, request_id): (Arc<config::Config>, Box<Record>, HeaderValue),
) -> Answered {
    let Some(entered) = caller.gateway.enter() else {
        return closing(refused(&mut record, &Reject::QueueFull { what: "requests in the gateway" }));
    };
    let (request, bytes) = ((record.route, request_id), (&caller.gateway.bodies, &mut record.request_bytes));
    let mut inbound = match ingress::read(request, parts, body, &config.limits, bytes).await {
        Ok(inbound) => inbound,
        Err(Unread::Refused(reject)) => return refused(&mut record, &reject),
        Err(Unread::Left) => return left(record),
    };
    if inbound.scanned.stream {
        inbound.compact();
    }
    record.stream = inbound.scanned.stream;
    let job = Job::new((caller.gateway.clone(), caller.worker), config, inbound, record, entered);
    open(&caller, job).await
}

/// [`Job::open`], until the gateway's own end cuts what is still open.
async fn open_until_cut(job: &mut Job, hold: Hold) -> Result<Opened, Stop> {
    let (gateway, version) = (job.gateway.clone(), job.inbound.version);
    tokio::select! {
        biased;
        result = job.open(hold) => result,
        () = cutting(&gateway, version) => Err(Stop::Reject(Reject::ShuttingDown)),
    }
}

/// The requests of an HTTP/2 connection are tasks of their own; one by HTTP/1.1 is polled with its connection, which watches the phase.
async fn cutting(gateway: &Gateway, version: Version) {
    if version == Version::HTTP_2 {
        gateway.lame_duck.reached(Phase::Cutting).await;
    } else {
        gateway.lame_duck.seen(Phase::Cutting).await;
    }
}

async fn open(caller: &Caller, mut job: Box<Job>) -> Answered {
    match open_until_cut(&mut job, Hold::Refuse).await {
        Ok(opened) => respond(caller, job, opened),
        Err(Stop::Reject(reject)) => refused(&mut job.record, &reject),
        Err(Stop::MustHold) if job.streamed() => open_or_comfort(caller, job).await,
        Err(Stop::MustHold) => match open_until_cut(&mut job, Hold::Wait).await {
            Ok(opened) => respond(caller, job, opened),
            Err(Stop::Reject(reject)) => refused(&mut job.record, &reject),
            Err(Stop::MustHold) => refused(&mut job.record, &Reject::Internal),
        },
    }
}

/// Waits for a leader; after `hold.heartbeat_after` the client gets its head and comments.
async fn open_or_comfort(caller: &Caller, mut job: Box<Job>) -> Answered {
    let hold = job.settings().hold.clone();
    let kept = Kept::new(&job.gateway.kept);
    let early_head = job.record.early_head();
    let mut opening = exchange::opening(job);
    let Progress { mut job, result, .. } = match timeout(hold.heartbeat_after, &mut opening).await {
        Ok(progress) => progress,
        Err(_) => {
            early_head.get_or_init(Instant::now);
            let exchange = Exchange::waiting(exchange::opening_stream(opening), kept, hold.heartbeat_interval, caller.written.clone());
            return comforted(exchange);
        }
    };
    match result {
        Ok(Carried::Opened(opened)) => respond(caller, job, opened),
        Ok(Carried::Finish(_)) => refused(&mut job.record, &Reject::Internal),
        Err(reject) => refused(&mut job.record, &reject),
    }
}

fn comforted(exchange: Exchange) -> Answered {
    let mut response = Response::new(Either::Right(Box::new(exchange)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Passes a leader's answer on.
fn respond(caller: &Caller, mut job: Box<Job>, mut opened: Opened) -> Answered {
    let group = headers::group(&opened.group.key);
    let (mut head, body) = match opened.answer {
        Answer::Whole { head, body } => {
            opened.grant.iter_mut().for_each(Grant::started);
            job.record.answered(head.status.as_u16());
            job.record.passed(&body);
            job.record.complete();
            job.settle();
            later::put_off(job);
            (*head, Either::Left(Full::new(body)))
        }
        Answer::Running { mut started, prefix } => {
            let mut head = std::mem::replace(&mut started.head, Response::new(()).into_parts().0);
            let events = head.status.is_success() && is_event_stream(&head);
            if events {
                // A stream may be carried on by another leader: its length is not known (field report 63).
                head.headers.remove(CONTENT_LENGTH);
            } else {
                job.record.comes_in_pieces();
            }
            job.record.answered(head.status.as_u16());
            let relay = Relay::new((*started, prefix), opened.group, opened.settings, opened.grant, (opened.sent, events));
            let exchange = Exchange::relaying(job, relay, caller.written.clone(), events);
            (head, Either::Right(Box::new(exchange)))
        }
    };
    headers::downward(&mut head.headers);
    head.headers.insert(X_LEADGATE_GROUP, group);
    head.version = Version::default();
    head.extensions.clear();
    Response::from_parts(head, body)
}
