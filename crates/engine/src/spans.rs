//! Spans of transfers, for an OpenTelemetry collector (docs/tracing.md).
//!
//! Owns what a span says of a transfer, at both of its ends, and the exporter. Must not know how a transfer is carried out.

mod collector;

use std::env;
use std::time::Duration;

use moonrail_tcp::{TraceSink, TracedRequests};
use moonrail_transport::{Code, Error, Opcode, Work};
use moonrail_wire::TraceContext;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use self::collector::Collector;
use crate::config::Config;
use crate::errors;
use crate::request::Request;

/// How long the end of an engine may wait for its last spans to be taken.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the environment names a collector.
pub(crate) fn wanted() -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let disabled = env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    !disabled && (set("OTEL_EXPORTER_OTLP_ENDPOINT") || set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
}

/// Makes and sends the spans of one engine, on a thread of its own. When it cannot keep up, spans are dropped, not transfers
/// delayed.
pub(crate) struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// The span of a transfer under way.
pub(crate) struct TransferSpan {
    span: Span,
    /// Of the last try.
    path: Option<&'static str>,
}

impl Spans {
    /// For the engine called `name`, if it is to send spans. Nothing is connected yet.
    pub(crate) fn open(config: &Config, name: &str) -> Result<Option<Self>, Error> {
        if !config.otlp {
            return Ok(None);
        }
        let unusable = |error: &dyn std::fmt::Display| {
            let message = format!("spans cannot be sent: {error} (see the variables OTEL_EXPORTER_OTLP_…)");
            errors::initialize(Code::InvalidArgument, message)
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(Collector::new())
            .build()
            .map_err(|error| unusable(&error))?;
        let mut resource = Resource::builder();
        if env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("moonrail");
        }
        let resource = resource.with_attribute(KeyValue::new("service.instance.id", name.to_owned())).build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let tracer = provider.tracer("moonrail");
        Ok(Some(Self { provider, tracer }))
    }

    /// Makes a span of what traced calls of peers came to here.
    pub(crate) fn sink(&self) -> TraceSink {
        let tracer = self.tracer.clone();
        TraceSink::new(move |requests| served(&tracer, &requests))
    }

    pub(crate) fn begin(&self, request: &Request, work: &Work<'_>) -> TransferSpan {
        let attributes = [
            KeyValue::new("moonrail.op", request.opcode.as_str()),
            KeyValue::new("moonrail.peer", request.peer.clone()),
            KeyValue::new("moonrail.bytes", signed(work.bytes())),
            KeyValue::new("moonrail.descriptors", signed(work.entries.len() as u64)),
        ];
        let builder = SpanBuilder::from_name(format!("transfer {}", request.opcode.as_str()))
            .with_kind(SpanKind::Client)
            .with_attributes(attributes);
        TransferSpan { span: self.tracer.build_with_context(builder, &parent(request.trace)), path: None }
    }

    /// Sends what is not sent yet, and no more after it.
    pub(crate) fn close(&self) {
        // What did not go out is told by the collector's client.
        let _ = self.provider.shutdown_with_timeout(PATIENCE);
    }
}

impl TransferSpan {
    pub(crate) fn context(&self) -> TraceContext {
        let context = self.span.span_context();
        TraceContext {
            trace_id: context.trace_id().to_bytes(),
            span_id: context.span_id().to_bytes(),
            flags: context.trace_flags().to_u8(),
        }
    }

    /// The transfer was given to this path.
    pub(crate) fn tried(&mut self, path: &'static str) {
        self.path = Some(path);
    }

    pub(crate) fn end(mut self, outcome: &Result<(), Error>) {
        let span = &mut self.span;
        if let Some(path) = self.path {
            span.set_attribute(KeyValue::new("moonrail.path", path));
            // The kernel copies between the two memories: the target's process takes no part and has no span.
            span.set_attribute(KeyValue::new("moonrail.target_has_span", path != "shm"));
        }
        let code = outcome.as_ref().map_or_else(|error| error.code().as_str(), |()| "OK");
        span.set_attribute(KeyValue::new("moonrail.code", code));
        if let Err(error) = outcome {
            span.set_attribute(KeyValue::new("error.type", code));
            span.set_attribute(KeyValue::new("moonrail.stage", error.stage().as_str()));
            span.set_status(Status::error(error.message().to_owned()));
        }
        span.end();
    }
}

fn served(tracer: &SdkTracer, requests: &TracedRequests) {
    let op = requests.opcode.map_or("nothing", Opcode::as_str);
    let attributes = [
        KeyValue::new("moonrail.op", op),
        KeyValue::new("moonrail.path", "tcp"),
        KeyValue::new("client.address", requests.client.ip().to_string()),
        KeyValue::new("client.port", i64::from(requests.client.port())),
        KeyValue::new("moonrail.bytes", signed(requests.bytes)),
        KeyValue::new("moonrail.descriptors", signed(requests.descriptors)),
        KeyValue::new("moonrail.frames", signed(requests.requests)),
        KeyValue::new("moonrail.refused_frames", signed(requests.refused)),
    ];
    let builder = SpanBuilder::from_name(format!("serve {op}"))
        .with_kind(SpanKind::Server)
        .with_start_time(requests.began)
        .with_attributes(attributes);
    let mut span = tracer.build_with_context(builder, &parent(Some(requests.context)));
    if requests.refused > 0 {
        span.set_status(Status::error("frames were refused"));
    } else if requests.unfinished {
        span.set_status(Status::error("the initiator ended the call early, or was lost"));
    }
    span.end_with_timestamp(requests.ended);
}

fn parent(trace: Option<TraceContext>) -> Context {
    let Some(trace) = trace.filter(TraceContext::is_valid) else { return Context::new() };
    Context::new().with_remote_span_context(SpanContext::new(
        TraceId::from_bytes(trace.trace_id),
        SpanId::from_bytes(trace.span_id),
        TraceFlags::new(trace.flags),
        true,
        TraceState::default(),
    ))
}

/// OpenTelemetry has no unsigned numbers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
