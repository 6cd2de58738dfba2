//! Spans of both ends of transfers between two processes, as a real collector gets them (docs/tracing.md).
#![allow(clippy::unwrap_used, missing_docs)]

mod collector;
mod ends;

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use collector::{Collector, Taken, attribute};
use ends::{Call, End};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

/// Carries the calls out between two processes that both send spans, and waits for their end.
fn spans_of(paths: &str, calls: &[Call]) -> Vec<Taken> {
    let collector = Collector::start();
    let target = End::target(Some(collector.url()), paths);
    End::initiator(Some(collector.url()), paths, &target, calls).finish();
    target.finish();
    collector.spans()
}

fn of_kind(spans: &[Taken], kind: SpanKind) -> Vec<&Taken> {
    spans.iter().filter(|taken| taken.span.kind == kind as i32).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn both_ends_of_a_transfer_are_in_the_callers_trace() {
    for op in ["write", "read"] {
        let spans = spans_of("tcp", &[Call { op, entries: 3, len: 1000, trace: traceparent() }]);
        let (clients, servers) = (of_kind(&spans, SpanKind::Client), of_kind(&spans, SpanKind::Server));
        assert_eq!((clients.len(), servers.len(), spans.len()), (1, 1, 2), "{spans:?}");
        let (client, server) = (clients[0], servers[0]);
        assert_eq!(
            (hex(&client.span.trace_id), hex(&client.span.parent_span_id)),
            (TRACE.into(), PARENT.into())
        );
        assert_eq!(hex(&server.span.trace_id), TRACE);
        assert_eq!(server.span.parent_span_id, client.span.span_id);
        assert_eq!((client.service.as_str(), server.service.as_str()), ("initiator", "target"));
        assert_eq!(client.span.name, format!("transfer {op}"));
        assert_eq!(server.span.name, format!("serve {op}"));
        for taken in [client, server] {
            assert_eq!(attribute(&taken.span, "moonrail.op"), op);
            assert_eq!(attribute(&taken.span, "moonrail.path"), "tcp");
            assert_eq!(attribute(&taken.span, "moonrail.bytes"), "3000");
            assert_eq!(attribute(&taken.span, "moonrail.descriptors"), "3");
            assert!(taken.span.start_time_unix_nano <= taken.span.end_time_unix_nano);
        }
        assert_eq!(attribute(&client.span, "moonrail.code"), "OK");
        assert_eq!(attribute(&client.span, "moonrail.target_has_span"), "true");
    }
}

#[test]
fn calls_on_one_lane_are_told_apart_and_one_without_a_caller_begins_a_trace() {
    let call = |trace: String| Call { op: "write", entries: 1, len: 100, trace };
    let spans = spans_of("tcp", &[call(traceparent()), call(String::new()), call(traceparent())]);
    let servers = of_kind(&spans, SpanKind::Server);
    assert_eq!((of_kind(&spans, SpanKind::Client).len(), servers.len()), (3, 3));
    let own: Vec<_> = spans.iter().filter(|taken| hex(&taken.span.trace_id) != TRACE).collect();
    assert_eq!(own.len(), 2);
    assert_eq!(own[0].span.trace_id, own[1].span.trace_id);
    assert!(own.iter().any(|taken| taken.span.parent_span_id.is_empty()));
    let parents: std::collections::HashSet<_> =
        servers.iter().map(|taken| &taken.span.parent_span_id).collect();
    assert_eq!(parents.len(), 3);
}

#[test]
fn a_call_of_many_frames_is_one_span_of_the_target_a_lane() {
    let spans = spans_of("tcp", &[Call { op: "write", entries: 3000, len: 700, trace: traceparent() }]);
    let servers = of_kind(&spans, SpanKind::Server);
    assert_eq!(servers.len(), 1);
    assert_eq!(attribute(&servers[0].span, "moonrail.bytes"), "2100000");
    assert!(attribute(&servers[0].span, "moonrail.frames").parse::<u64>().unwrap() >= 3);

    let spans = spans_of("tcp", &[Call { op: "read", entries: 4, len: 4 << 20, trace: traceparent() }]);
    let servers = of_kind(&spans, SpanKind::Server);
    let bytes = |taken: &&Taken| attribute(&taken.span, "moonrail.bytes").parse::<u64>().unwrap();
    assert_eq!(servers.iter().map(bytes).sum::<u64>(), 16 << 20);
}

#[test]
fn a_same_host_copy_says_that_its_target_has_no_span() {
    let spans = spans_of("tcp,shm", &[Call { op: "write", entries: 1, len: 64, trace: traceparent() }]);
    assert_eq!(spans.len(), 1);
    assert_eq!(attribute(&spans[0].span, "moonrail.path"), "shm");
    assert_eq!(attribute(&spans[0].span, "moonrail.target_has_span"), "false");
    assert_eq!(hex(&spans[0].span.parent_span_id), PARENT);
}

#[test]
fn a_failure_has_its_code_and_stage() {
    let spans = spans_of("tcp", &[Call { op: "outside", entries: 1, len: 64, trace: traceparent() }]);
    assert_eq!(spans.len(), 1);
    let span = &spans[0].span;
    assert_eq!(attribute(span, "moonrail.code"), "REMOTE_NOT_REGISTERED");
    assert_eq!(attribute(span, "error.type"), "REMOTE_NOT_REGISTERED");
    assert!(!attribute(span, "moonrail.stage").is_empty());
    assert_eq!(span.status.as_ref().unwrap().code, StatusCode::Error as i32);
}

#[test]
fn one_end_alone_sends_its_own_spans() {
    let call = [Call { op: "write", entries: 1, len: 64, trace: traceparent() }];
    for (at_initiator, at_target) in [(true, false), (false, true)] {
        let collector = Collector::start();
        let url = |wanted: bool| wanted.then(|| collector.url());
        let target = End::target(url(at_target), "tcp");
        End::initiator(url(at_initiator), "tcp", &target, &call).finish();
        target.finish();
        let kinds: Vec<i32> = collector.spans().iter().map(|taken| taken.span.kind).collect();
        // A call that names no trace is none of the target's.
        assert_eq!(kinds, if at_initiator { vec![SpanKind::Client as i32] } else { vec![] });
    }
}

#[test]
fn a_collector_that_is_not_there_delays_nobody() {
    let nobody = Some("http://127.0.0.1:9".to_owned());
    let began = Instant::now();
    let target = End::target(nobody.clone(), "tcp");
    let call = Call { op: "write", entries: 1, len: 64, trace: traceparent() };
    End::initiator(nobody, "tcp", &target, &vec![call; 20]).finish();
    target.finish();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
