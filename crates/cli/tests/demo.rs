//! Small demos, through the built binary: three real processes.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use support::{Running, code, finish, json, moonrail, stderr, stdout};

const SMALL: [&str; 5] = ["demo", "--pool-size", "96MiB", "--tokens-per-block", "16"];

#[test]
fn five_requests_are_moved_and_verified() {
    let value = json(&finish(&[&SMALL[..], &["--requests", "5", "--json"]].concat()));
    assert_eq!(value["verified"], true);
    assert_eq!(value["requests"], 5);
    // The compiled-in trace's first five prompts: 63 blocks, of which block 0 comes five times.
    assert_eq!((&value["blocks"], &value["blocks_reused"]), (&63.into(), &4.into()));
    let block = 64 * 32 * 1024;
    assert_eq!(value["bytes"], 59 * block);
    assert_eq!(value["bytes_compared"], 63 * block);
}

#[test]
fn the_table_ends_with_the_verdict() {
    let output = finish(&[&SMALL[..], &["--requests", "2", "--model", "llama3-70b-tp8"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().last(), Some("verified"), "{text}");
    assert!(text.contains("scaled: 16 of every 512 tokens"), "{text}");
}

#[test]
fn one_wrong_byte_is_found_and_named() {
    let output = finish(&[&SMALL[..], &["--requests", "3", "--spoil", "1"]].concat());
    assert_eq!(code(&output), 1);
    let text = stderr(&output);
    assert!(text.contains("VERIFICATION FAILED: request 1: layer 16 K, page 14"), "{text}");
    assert!(text.contains("from byte 16384 on"), "{text}");
    assert!(!stdout(&output).contains("verified"));
}

/// A pool for two prompts of the five: blocks are evicted and come again.
#[test]
fn evicted_blocks_are_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let mut file = fs::File::create(&trace).unwrap();
    for ids in ["[1,2,3]", "[1,2,4]", "[5,6,7,8]", "[1,2,3]", "[1,1,9]", "[5,6,7,8,1]", "[1,2,4]"] {
        writeln!(
            file,
            "{{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": {ids}}}"
        )
        .unwrap();
    }
    let trace = trace.to_str().unwrap();
    let args =
        ["--trace", trace, "--model", "deepseek-v3", "--tokens-per-block", "64", "--pool-size", "27MiB"];
    let value = json(&finish(&[&["demo", "--json"], &args[..]].concat()));
    assert_eq!(value["requests"], 7);
    assert_eq!(value["blocks"], 24);
    let (reused, block) = (value["blocks_reused"].as_u64().unwrap(), 61 * 64 * 576 * 2);
    // An unbounded pool would send 1 to 9 once each.
    assert!((1..24 - 9).contains(&reused), "{reused}");
    assert_eq!(value["bytes"], (24 - reused) * block);
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    fs::write(&trace, "{\"input_length\": 9, \"hash_ids\": [1]}\n{\"input_length\": 9}\n").unwrap();
    let output = finish(&["demo", "--trace", trace.to_str().unwrap()]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("trace.jsonl line 2: missing field `hash_ids`"), "{}", stderr(&output));

    let output = finish(&["demo", "--pool-size", "1MiB"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--pool-size"), "{}", stderr(&output));
}

#[test]
fn a_worker_alone_ends_without_work() {
    let run = |input: &[u8]| {
        let mut worker = moonrail(&["demo-worker"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        worker.stdin.take().unwrap().write_all(input).unwrap();
        worker.wait_with_output().unwrap()
    };
    assert_eq!(code(&run(b"")), 0);
    assert_eq!(code(&run(b"{\"Nonsense\": 1}\n")), 2);
}

#[test]
fn a_worker_that_dies_ends_the_demo() {
    let mut demo =
        Running::start(&["demo", "--pool-size", "512MiB", "--tokens-per-block", "16", "--requests", "1000"]);
    let workers = loop {
        let workers = children(demo.id());
        if workers.len() == 2 {
            break workers;
        }
        assert!(!workers.is_empty() || demo.is_running(), "the demo ended before its workers were seen");
        thread::sleep(Duration::from_millis(5));
    };
    let started = Instant::now();
    support::signal(workers[0], "KILL");
    assert_eq!(demo.wait(), Some(1));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(!fs::exists(format!("/proc/{}", workers[1])).unwrap(), "the other worker was left behind");
}

fn children(process: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    listed.split_whitespace().map(|id| id.parse().unwrap()).collect()
}
