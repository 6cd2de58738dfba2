//! HTTP to the collector, over the client that the metadata server is spoken to with.
//!
//! Must not know what it carries.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tracing::{info, warn};

/// For a whole request, unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise; the specification's default.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer taken, in bytes.
const LONGEST: u64 = 1 << 20;

/// Blocks while it sends: it is called on the exporter's own thread.
#[derive(Debug)]
pub(super) struct Collector {
    agent: ureq::Agent,
    failing: AtomicBool,
}

impl Collector {
    pub(super) fn new() -> Self {
        let limit = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"]
            .iter()
            .find_map(|name| env::var(name).ok()?.parse().ok().map(Duration::from_millis));
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(limit.unwrap_or(PATIENCE)))
            .http_status_as_error(false)
            .max_redirects(0);
        Self { agent: config.build().new_agent(), failing: AtomicBool::new(false) }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(head, body.to_vec()))?;
        let (head, mut body) = response.into_parts();
        let body = body.with_config().limit(LONGEST).read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }

    /// One line when the collector stops taking spans, and one when it takes them again.
    fn tell(&self, failure: Option<String>) {
        let failed = failure.is_some();
        if self.failing.swap(failed, Ordering::Relaxed) == failed {
            return;
        }
        match failure {
            Some(why) => warn!("spans of transfers are lost, as the collector does not take them: {why}"),
            None => info!("the collector takes spans again"),
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let at = request.uri().to_string();
        let outcome = self.send(request);
        self.tell(match &outcome {
            Err(error) => Some(format!("{at}: {error}")),
            Ok(response) if !response.status().is_success() => {
                Some(format!("{at}: HTTP status {}", response.status()))
            }
            Ok(_) => None,
        });
        outcome
    }
}
