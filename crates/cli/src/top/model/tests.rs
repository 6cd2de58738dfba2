//! Rates between reports, restarts, and what is shown of engines that cannot be reached.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::super::report::{Latency, Served};
use super::*;

fn at(port: u16) -> Endpoint {
    format!("127.0.0.1:{port}").parse().unwrap()
}

fn report(epoch: &str, uptime: f64, transfers: u64, bytes: u64) -> Report {
    let latency_us = Latency { count: transfers, p50: 100.0, p99: 400.0 };
    let op = Op { op: "write".to_owned(), path: "tcp".to_owned(), transfers, bytes, failures: 0, latency_us };
    let peer = Peer { name: "far".to_owned(), lanes: 2, ops: vec![op], ..Peer::default() };
    Report {
        schema: 1,
        name: "near".to_owned(),
        epoch: epoch.to_owned(),
        uptime_seconds: uptime,
        served: Served { bytes_in: bytes / 2, bytes_out: bytes / 4, ..Served::default() },
        peers: vec![peer],
        ..Report::default()
    }
}

fn model_after(reports: &[Report]) -> Model {
    let mut model = Model::new(&[at(1)]);
    for report in reports {
        model.take(&at(1), Ok(report.clone()), Instant::now());
    }
    model
}

#[test]
fn one_report_has_no_rate_and_two_have_the_difference() {
    let model = model_after(&[report("a", 10.0, 5, 1000)]);
    assert_eq!(model.rows()[0].bytes_per_second, None);
    assert_eq!((model.rows()[0].bytes, model.rows()[0].p99_us), (1000, Some(400.0)));

    let model = model_after(&[report("a", 10.0, 5, 1000), report("a", 12.0, 9, 5000)]);
    let row = &model.rows()[0];
    assert_eq!((row.bytes_per_second, row.transfers_per_second), (Some(2000.0), Some(2.0)));
    let engine = &model.engines(Instant::now())[0];
    assert_eq!(
        (engine.moved, engine.served_in, engine.served_out),
        (Some(2000.0), Some(1000.0), Some(500.0))
    );
}

#[test]
fn the_same_report_twice_keeps_its_rates() {
    let second = report("a", 12.0, 9, 5000);
    let model = model_after(&[report("a", 10.0, 5, 1000), second.clone(), second]);
    assert_eq!(model.rows()[0].bytes_per_second, Some(2000.0));
}

#[test]
fn a_restart_is_no_rate_and_is_counted() {
    for again in [report("b", 1.0, 1, 10), report("b", 20.0, 90, 9000), report("a", 1.0, 90, 9000)] {
        let model = model_after(&[report("a", 10.0, 5, 1000), report("a", 11.0, 6, 1100), again]);
        assert_eq!(model.rows()[0].bytes_per_second, None);
        let engine = &model.engines(Instant::now())[0];
        assert_eq!((engine.moved, engine.restarts), (None, 1));
    }
}

#[test]
fn a_peer_that_is_new_began_at_nothing() {
    let mut before = report("a", 10.0, 5, 1000);
    before.peers.clear();
    let model = model_after(&[before, report("a", 12.0, 9, 5000)]);
    assert_eq!(model.rows()[0].bytes_per_second, Some(2500.0));
}

#[test]
fn an_engine_that_cannot_be_reached_says_why_and_comes_back() {
    let mut model = model_after(&[report("a", 10.0, 5, 1000), report("a", 11.0, 6, 1100)]);
    let lost = Instant::now();
    model.take(&at(1), Err("connection refused".to_owned()), lost);
    model.take(&at(1), Err("connection refused".to_owned()), lost + Duration::from_secs(3));
    let engine = &model.engines(lost + Duration::from_secs(4))[0];
    assert_eq!(engine.unreachable.as_deref(), Some("connection refused"));
    assert_eq!((engine.unreachable_seconds, engine.moved), (Some(4), None));
    assert_eq!(model.rows(), []);

    model.take(&at(1), Ok(report("a", 21.0, 16, 2100)), lost);
    assert_eq!(model.engines(lost)[0].unreachable, None);
    assert_eq!(model.rows()[0].bytes_per_second, Some(100.0));
}

#[test]
fn what_is_announced_no_more_is_gone_and_what_was_given_stays() {
    let mut model = Model::new(&[at(1)]);
    model.announce(&[at(1), at(2), at(3)]);
    assert_eq!(model.engines(Instant::now()).len(), 3);
    model.announce(&[at(3)]);
    assert!(model.knows(&at(1)) && !model.knows(&at(2)) && model.knows(&at(3)));
    // An answer that was under way changes nothing.
    model.take(&at(2), Ok(report("a", 1.0, 1, 1)), Instant::now());
    assert_eq!(model.engines(Instant::now()).len(), 2);
}

#[test]
fn a_peer_without_transfers_has_a_row() {
    let mut only = report("a", 1.0, 0, 0);
    only.peers[0].ops.clear();
    let rows = model_after(&[only]).rows();
    assert_eq!((rows.len(), &rows[0].op, rows[0].lanes), (1, &None, 2));
}

#[test]
fn failures_are_newest_first_and_name_a_command_that_is_safe_to_paste() {
    let failed = |time_ms, code: &str| Failed { time_ms, code: code.to_owned(), ..Failed::default() };
    let mut first = report("a", 1.0, 0, 0);
    first.time_ms = 9000;
    first.failures = vec![failed(1000, "PEER_GONE"), failed(8500, "x; rm -rf /")];
    let rows = model_after(&[first]).failures();
    assert_eq!(
        (rows[0].code.as_str(), rows[0].explain.as_str(), rows[0].seconds_ago),
        ("x; rm -rf /", "", 0)
    );
    assert_eq!((rows[1].explain.as_str(), rows[1].seconds_ago), ("moonrail explain PEER_GONE", 8));
}

fn any_report() -> impl Strategy<Value = Report> {
    ("[ab]", -5.0..50.0_f64, 0..3_u64, any::<u64>()).prop_map(|(epoch, uptime, transfers, bytes)| {
        let mut report = report(&epoch, uptime, transfers, bytes);
        if transfers == 0 {
            report.peers.clear();
        }
        report
    })
}

proptest! {
    #[test]
    fn whatever_engines_say_no_rate_is_negative(reports in proptest::collection::vec(any_report(), 1..8)) {
        let model = model_after(&reports);
        for row in model.rows() {
            prop_assert!(row.bytes_per_second.is_none_or(|rate| rate >= 0.0 && rate.is_finite()));
            prop_assert!(row.transfers_per_second.is_none_or(|rate| rate >= 0.0 && rate.is_finite()));
        }
        for engine in model.engines(Instant::now()) {
            prop_assert!(engine.moved.is_none_or(|rate| rate >= 0.0));
        }
    }
}
