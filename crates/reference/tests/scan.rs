//! Logs as they come: prefixes, colours, wrappings, broken text, and more bytes than memory.

#![allow(clippy::unwrap_used)]

use std::io::{self, Read};

use moonrail_reference::{Report, scan};
use proptest::prelude::*;

const BATCH: &str = "Mooncake's batch transfer requires mooncake-transfer-engine >= 0.3.4.post2. Please upgrade Mooncake by \
                     'pip install mooncake-transfer-engine --upgrade'";
const BATCH_SLUG: &str = "sglang-batch-transfer-requires-0-3-4-post2";

fn slugs(report: &Report) -> Vec<&str> {
    report.found.iter().map(|found| found.record.slug.as_str()).collect()
}

#[test]
fn what_stands_before_and_round_a_message_does_not_matter() {
    for line in [
        format!("RuntimeError: {BATCH}"),
        format!("(RayWorkerWrapper pid=812, ip=10.0.0.3) ERROR 12-01 RuntimeError: {BATCH}\r"),
        format!("\u{1b}[0;36m(EngineCore_DP0 pid=3)\u{1b}[0;0m ERROR {BATCH}"),
        BATCH.replace("Mooncake's", "\u{1b}[01;31m\u{1b}[KMoon\u{1b}[m\u{1b}[Kcake's"),
        format!(
            "{{\"log\":\"RuntimeError: {}\\n\",\"stream\":\"stderr\",\"time\":\"2026-12-01\"}}",
            BATCH.replace('>', "\\u003e")
        ),
        format!("decode-0  | 2026-12-01T03:11:11Z RuntimeError: {}", BATCH),
    ] {
        let report = scan(line.as_bytes()).unwrap();
        assert_eq!(slugs(&report), [BATCH_SLUG], "{line}");
        assert_eq!((report.found[0].first_line, report.lines), (1, 1), "{line}");
    }
}

#[test]
fn what_came_first_stands_first_and_is_counted() {
    let log = format!(
        "start\nE1201 03:11:11.357 9 tcp_transport_session_impl.h:706] ClientSession: WRITE rejected by server, status 1\n\
         x\nDecode instance could be dead, remote mooncake session 10.0.0.2:15001 is not alive\nRuntimeError: {BATCH}\n\
         Decode instance could be dead, remote mooncake session 10.0.0.2:15001 is not alive\n"
    );
    let report = scan(log.as_bytes()).unwrap();
    assert_eq!(
        slugs(&report),
        ["mooncake-rejected-by-server", "sglang-decode-instance-could-be-dead", BATCH_SLUG]
    );
    let dead = &report.found[1];
    assert_eq!((dead.count, dead.first_line, dead.last_line), (2, 4, 6));
    assert_eq!((report.lines, report.bytes), (6, log.len() as u64));
    assert_eq!(report.first_cause().unwrap().record.slug, "mooncake-rejected-by-server");
}

#[test]
fn a_consequence_is_not_the_cause() {
    let log = format!(
        "Decode instance could be dead, remote mooncake session 10.0.0.2:15001 is not alive\nRuntimeError: {BATCH}\n"
    );
    assert_eq!(scan(log.as_bytes()).unwrap().first_cause().unwrap().record.slug, BATCH_SLUG);
}

#[test]
fn the_frame_of_a_traceback_is_told() {
    let log = format!(
        "Traceback (most recent call last):\n  File \"/srv/conn.py\", line 100, in worker\n    send()\n  \
         File \"/srv/engine.py\", line 261, in batch_transfer_sync\n    raise RuntimeError(\n    ^^^^^^^^^^\nRuntimeError: {BATCH}\n"
    );
    let report = scan(log.as_bytes()).unwrap();
    assert_eq!(
        report.found[0].frame.as_deref(),
        Some("File \"/srv/engine.py\", line 261, in batch_transfer_sync")
    );
    assert_eq!(report.found[0].first_line, 7);
    let plain = scan(format!("nothing\n{BATCH}\n").as_bytes()).unwrap();
    assert_eq!(plain.found[0].frame, None);
}

#[test]
fn bytes_that_are_no_text_are_passed_over() {
    let mut log = vec![0xff, 0xfe, b'\n', 0x00, b'\n'];
    log.extend_from_slice(b"\xc3\x28 ");
    log.extend_from_slice(BATCH.as_bytes());
    log.extend_from_slice(b" \xff\n\x1b]0;evil\x07\n");
    let report = scan(&log[..]).unwrap();
    assert_eq!(slugs(&report), [BATCH_SLUG]);
    assert_eq!(report.found[0].first_line, 3);
    assert!(report.found[0].excerpt.chars().all(|c| !c.is_control()));
}

#[test]
fn warnings_of_moonrail_that_no_record_knows_are_told() {
    let log = "moonrail WARNING something that nobody wrote down\nmoonrail WARNING send_probe returned -102: \
               PEER_UNREACHABLE peer 127.0.0.1:1 (probe, retry safe): 127.0.0.1:1: connection refused: nothing listens at this address\n";
    let report = scan(log.as_bytes()).unwrap();
    assert_eq!(slugs(&report), ["moonrail-peer-unreachable"]);
    assert_eq!(report.unknown, 1);
    assert_eq!(report.unknown_lines, ["moonrail WARNING something that nobody wrote down"]);
}

/// Gives a pattern over and over, in pieces of odd sizes, and never has all of it.
struct Endless {
    left: u64,
    at: u64,
    piece: usize,
    message_at: u64,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = into.len().min(self.piece).min(usize::try_from(self.left).unwrap());
        for byte in &mut into[..length] {
            let inside =
                self.at.checked_sub(self.message_at).and_then(|at| BATCH.as_bytes().get(at as usize));
            *byte = *inside.unwrap_or(&b'x');
            self.at += 1;
        }
        self.left -= length as u64;
        Ok(length)
    }
}

#[test]
fn a_message_in_one_endless_line_is_found_once_wherever_it_stands() {
    const BLOCK: u64 = 1 << 20;
    for message_at in [0, 100, BLOCK - 4096 - 60, BLOCK - 4096, BLOCK - 60, BLOCK, 3 * BLOCK - 5] {
        let log = Endless { left: 5 * BLOCK, at: 0, piece: 77_777, message_at };
        let report = scan(log).unwrap();
        assert_eq!(slugs(&report), [BATCH_SLUG], "at {message_at}");
        assert_eq!((report.found[0].count, report.lines), (1, 1), "at {message_at}");
    }
}

#[test]
fn nothing_is_found_in_nothing() {
    let report = scan(io::empty()).unwrap();
    assert_eq!((report.lines, report.bytes, report.found.len()), (0, 0, 0));
    assert!(report.first_cause().is_none());
    assert_eq!(scan(&b"one line without its end"[..]).unwrap().lines, 1);
}

proptest! {
    /// Whatever surrounds them and however they arrive, messages are found at their lines.
    #[test]
    fn the_size_of_the_pieces_does_not_matter(noise in prop::collection::vec("[ -~]{0,300}", 1..30), at in 0..30usize, piece in 1..5000usize) {
        struct Slow<'a>(&'a [u8], usize);
        impl Read for Slow<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let length = self.1.min(into.len()).min(self.0.len());
                into[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }
        let mut lines = noise;
        let at = at % lines.len();
        lines[at] = format!("{}{BATCH}", lines[at]);
        let log = lines.join("\n");
        let report = scan(Slow(log.as_bytes(), piece)).unwrap();
        let found = report.found.iter().find(|found| found.record.slug == BATCH_SLUG).unwrap();
        prop_assert_eq!((found.count, found.first_line), (1, at as u64 + 1));
        prop_assert_eq!(report.lines, lines.len() as u64 - u64::from(log.ends_with('\n') || log.is_empty()));
    }

    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        let report = scan(&bytes[..]).unwrap();
        prop_assert_eq!(report.bytes, bytes.len() as u64);
    }
}
