//! The error reference, served beside the metadata: for whoever looks at a cluster without access to the internet.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use moonrail_reference::{Answer, answer};
use percent_encoding::percent_decode_str;

pub(super) fn router() -> Router {
    Router::new()
        .route("/errors", get(reference))
        .route("/errors/{*key}", get(reference))
        .route("/api/errors", get(reference))
        .route("/api/errors/{*key}", get(reference))
}

async fn reference(request: Request) -> Response {
    // Hundreds of records are put together for the list; the first request also reads them.
    let made = tokio::task::spawn_blocking(move || {
        let path = percent_decode_str(request.uri().path()).decode_utf8_lossy().into_owned();
        let known = request.headers().get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
        answer(&path, request.uri().query(), known)
    });
    match made.await {
        Ok(Some(answer)) => respond(answer),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn respond(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, answer.body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    if let Ok(etag) = HeaderValue::from_str(&answer.etag) {
        headers.insert(header::ETAG, etag);
    }
    for (name, value) in Answer::HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
