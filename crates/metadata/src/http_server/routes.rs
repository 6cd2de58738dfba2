//! The requests of the metadata server (Mooncake TE wire, metadata server over HTTP): statuses and bodies are the
//! genuine server's.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use moonrail_access::Telling;
use moonrail_reference::Answer;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::status::{self, Status};
use super::store::{Store, Taken, Written};
use super::{ServerLimits, listing};
use crate::handshake_client::HandshakeClient;
use crate::liveness::{self, Owner};

/// Owners asked at the same time.
pub(super) const PROBES: usize = 32;

/// How often one PUT asks, because the owner has changed meanwhile.
const ATTEMPTS: usize = 3;

#[derive(Debug)]
pub(super) struct Service {
    store: Mutex<Store>,
    limits: ServerLimits,
    client: HandshakeClient,
    probes: Semaphore,
    /// Entries of engines that were gone.
    replaced: Telling,
    status: Status,
}

impl Service {
    pub(super) fn new(limits: ServerLimits, client: HandshakeClient) -> Service {
        let (store, probes) = (Mutex::new(Store::new(limits)), Semaphore::new(PROBES));
        Service { store, limits, client, probes, replaced: Telling::default(), status: Status::new() }
    }
}

pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/metadata", any(metadata))
        .route("/", get(root))
        .route("/api/cluster", get(cluster))
        .route(
            "/api/cluster/schema",
            get(|| async { guarded(typed("application/schema+json", status::SCHEMA)) }),
        )
        .route("/status.css", get(|| async { guarded(typed("text/css; charset=utf-8", status::STYLE)) }))
        .route(
            "/status.js",
            get(|| async { guarded(typed("text/javascript; charset=utf-8", status::SCRIPT)) }),
        )
        .with_state(service)
        .merge(super::reference::router())
}

type Pairs = Vec<(String, String)>;

/// A page for browsers; a plain list for everyone else, as curl and the doctor ask for it.
async fn root(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    Query(query): Query<Pairs>,
) -> Response {
    let as_json =
        query.iter().any(|(name, value)| name == "json" && !matches!(value.as_str(), "0" | "false"));
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut response = if !as_json && accepted.any(|accepted| accepted.contains("text/html")) {
        let filter = query.into_iter().find(|(name, _)| name == "q").map(|(_, filter)| filter);
        match service.status.page(&service.store, filter.unwrap_or_default()).await {
            Some(page) => guarded(typed("text/html; charset=utf-8", page)),
            None => say(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made"),
        }
    } else {
        list(&service, as_json).await
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

async fn cluster(State(service): State<Arc<Service>>) -> Response {
    match service.status.json(&service.store).await {
        Some(json) => guarded(typed("application/json", json)),
        None => say(StatusCode::INTERNAL_SERVER_ERROR, "the cluster could not be put together"),
    }
}

async fn list(service: &Service, as_json: bool) -> Response {
    let entries = listing::snapshot(&service.store.lock());
    let work = move || {
        let segments = listing::collect(&entries);
        if as_json { listing::to_json(&segments) } else { listing::to_text(&segments) }
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(text) if as_json => typed("application/json", text).into_response(),
        Ok(text) => typed("text/plain; charset=utf-8", text).into_response(),
        Err(_) => say(StatusCode::INTERNAL_SERVER_ERROR, "the list could not be made"),
    }
}

async fn metadata(State(service): State<Arc<Service>>, request: Request) -> Response {
    let query = Query::<Pairs>::try_from_uri(request.uri()).map(|Query(pairs)| pairs).unwrap_or_default();
    let key = query.into_iter().find(|(name, _)| name == "key").map(|(_, key)| key).unwrap_or_default();
    if key.is_empty() {
        return say(StatusCode::BAD_REQUEST, "metadata key is required");
    }
    if key.len() > service.limits.key {
        return say(StatusCode::URI_TOO_LONG, "metadata key is too long");
    }
    match *request.method() {
        Method::GET => fetch(&service, &key),
        Method::PUT => put(&service, &key, request.into_body()).await,
        Method::DELETE => delete(&service, &key),
        _ => say(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
    }
}

fn fetch(service: &Service, key: &str) -> Response {
    match service.store.lock().get(key) {
        Some(entry) => typed("application/json", entry.value.clone()).into_response(),
        None => say(StatusCode::NOT_FOUND, "metadata not found"),
    }
}

fn delete(service: &Service, key: &str) -> Response {
    if service.store.lock().remove(key) {
        say(StatusCode::OK, "metadata deleted")
    } else {
        say(StatusCode::NOT_FOUND, "metadata not found")
    }
}

async fn put(service: &Arc<Service>, key: &str, body: Body) -> Response {
    let body = axum::body::to_bytes(body, service.limits.value);
    let value = match tokio::time::timeout(service.limits.body, body).await {
        Ok(Ok(value)) => value,
        Ok(Err(_)) => return say(StatusCode::PAYLOAD_TOO_LARGE, "metadata value is too long"),
        Err(_) => return say(StatusCode::REQUEST_TIMEOUT, "metadata value did not arrive in time"),
    };
    let mut written = service.store.lock().put(key, value.clone());
    for _ in 0..ATTEMPTS {
        let Written::Taken(taken) = &written else { break };
        let Some(reason) = whether_gone(service, taken).await else { break };
        let next = service.store.lock().replace(key, value.clone(), taken);
        if matches!(next, Written::Done) && service.replaced.next().is_some() {
            tracing::warn!(key, reason, "replaced the entries of an engine that is gone");
        }
        written = next;
    }
    match written {
        Written::Done => say(StatusCode::OK, "metadata updated"),
        Written::Full => say(StatusCode::INSUFFICIENT_STORAGE, "metadata server is full"),
        Written::Taken(_) => say(StatusCode::BAD_REQUEST, "Duplicate rpc_meta key not allowed"),
    }
}

/// Asks the holder of a key whether it lives; how that is known, if not. Other requests are served meanwhile.
async fn whether_gone(service: &Arc<Service>, taken: &Taken) -> Option<String> {
    let owner = taken.owner.clone()?;
    let segment = taken.segment.clone();
    let _place = service.probes.acquire().await.ok()?;
    let client = service.client.clone();
    match tokio::task::spawn_blocking(move || liveness::ask(&owner, segment.as_deref(), &client)).await {
        Ok(Owner::Gone(reason)) => Some(reason),
        Ok(Owner::Alive) | Err(_) => None,
    }
}

fn say(status: StatusCode, text: &'static str) -> Response {
    (status, typed("application/json; charset=utf-8", Bytes::from_static(text.as_bytes()))).into_response()
}

/// With the headers of every page: nothing is loaded from elsewhere, nothing runs that is not ours.
fn guarded(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    for (name, value) in Answer::HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn typed(kind: &'static str, body: impl Into<Bytes>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], body.into())
}
