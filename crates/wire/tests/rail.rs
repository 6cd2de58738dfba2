//! Rail frames: the vectors of version 1 stay as they are, every head round-trips, any bytes are taken.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use moonrail_wire::TraceContext;
use moonrail_wire::rail::{
    ANSWER_LEN, Answer, AnswerKind, AnswerStatus, CANCEL, Cancel, HELLO_LEN, Head, Hello, MAX_RANGES,
    Present, REQUEST_LEN, RailError, Range, Request, RequestKind, TOKEN, TRACE, Trace, WELCOME_LEN, Welcome,
    WelcomeStatus,
};
use proptest::prelude::*;

/// The bytes of `vectors/rail-v1/NAME.hex`.
fn vector(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/rail-v1/{name}.hex"));
    let text = std::fs::read_to_string(path).unwrap();
    let digits = text.trim().as_bytes();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn the_hello_and_welcome_of_version_1_stay() {
    let hello = Hello { version: 1, features: 0, target_epoch: 0x0123_4567_89ab_cdef };
    assert_eq!(vector("hello"), hello.encode());
    let welcome = Welcome {
        version: 1,
        status: WelcomeStatus::Open,
        features: 0,
        epoch: 0x0123_4567_89ab_cdef,
        max_payload: 64 << 20,
    };
    assert_eq!(vector("welcome"), welcome.encode());
    let other = Welcome { status: WelcomeStatus::Epoch, ..welcome };
    assert_eq!(vector("welcome_other_epoch"), other.encode());
}

#[test]
fn the_requests_and_answers_of_version_1_stay() {
    let first = Range { addr: 0x7f00_0000_1000, len: 4096 };
    let write = Request { kind: RequestKind::Write, count: 2, id: 7, payload: 4097, epoch: 9, first };
    let second = Range { addr: 0x7f00_0000_4000, len: 1 };
    assert_eq!(vector("write_two_ranges"), [&write.encode()[..], &second.encode()].concat());
    let read = Request { kind: RequestKind::Read, count: 1, id: 8, payload: 4096, epoch: 9, first };
    assert_eq!(vector("read_one_range"), read.encode());
    let done = Answer { kind: AnswerKind::Write, status: AnswerStatus::Ok, id: 7, index: 0, payload: 0 };
    assert_eq!(vector("write_ok"), done.encode());
    let data = Answer { kind: AnswerKind::Read, status: AnswerStatus::Ok, id: 8, index: 0, payload: 4096 };
    assert_eq!(vector("read_ok"), data.encode());
    let refused =
        Answer { kind: AnswerKind::Write, status: AnswerStatus::Refused, id: 7, index: 1, payload: 0 };
    assert_eq!(vector("write_refused"), refused.encode());
}

/// The hello and welcome of a lane on which only this feature is in force.
fn opens_with(feature: &str, features: u32) {
    let hello = Hello { version: 1, features, target_epoch: 0x0123_4567_89ab_cdef };
    assert_eq!(vector(&format!("{feature}/hello")), hello.encode());
    let welcome = Welcome {
        version: 1,
        status: WelcomeStatus::Open,
        features,
        epoch: 0x0123_4567_89ab_cdef,
        max_payload: 64 << 20,
    };
    assert_eq!(vector(&format!("{feature}/welcome")), welcome.encode());
}

#[test]
fn the_frames_of_the_feature_cancel_stay() {
    opens_with("cancel", CANCEL);
    let cancel = Cancel { id: 12, from: 8, epoch: 9 };
    assert_eq!(vector("cancel/cancel"), cancel.encode());
    let done = Answer { kind: AnswerKind::Cancel, status: AnswerStatus::Ok, id: 12, index: 0, payload: 0 };
    assert_eq!(vector("cancel/cancel_ok"), done.encode());
    let dropped =
        Answer { kind: AnswerKind::Read, status: AnswerStatus::Cancelled, id: 8, index: 0, payload: 0 };
    assert_eq!(vector("cancel/read_cancelled"), dropped.encode());
}

#[test]
fn the_frames_of_the_feature_token_stay() {
    opens_with("token", TOKEN);
    let present = Present { id: 12, epoch: 9 };
    assert_eq!(vector("token/present"), present.encode());
    assert_eq!(Head::decode(&present.encode(), TOKEN), Ok(Head::Present(present)));
    assert_eq!(Head::decode(&present.encode(), !TOKEN), Err(RailError::Kind(4)));
    let mut longer = present.encode();
    longer[16] += 1;
    assert_eq!(Head::decode(&longer, TOKEN), Err(RailError::Token(81)));
    let taken = Answer { kind: AnswerKind::Present, status: AnswerStatus::Ok, id: 12, index: 0, payload: 0 };
    assert_eq!(vector("token/present_ok"), taken.encode());
    let not_taken = Answer { status: AnswerStatus::Token, ..taken };
    assert_eq!(vector("token/present_not_taken"), not_taken.encode());
    let without = Answer { kind: AnswerKind::Read, status: AnswerStatus::Token, id: 8, index: 1, payload: 0 };
    assert_eq!(vector("token/read_without_token"), without.encode());
}

#[test]
fn the_frames_of_the_feature_trace_stay() {
    opens_with("trace", TRACE);
    let context: TraceContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let trace = Trace { id: 7, payload: 4097, context };
    assert_eq!(vector("trace/trace"), trace.encode());
    assert_eq!(Head::decode(&trace.encode(), TRACE), Ok(Head::Trace(trace)));
    assert_eq!(Head::decode(&trace.encode(), !TRACE), Err(RailError::Kind(5)));
    let mut later = trace.encode();
    later[7] = 1;
    assert_eq!(Head::decode(&later, TRACE), Ok(Head::Trace(trace)));
}

#[test]
fn a_cancel_is_one_only_where_it_is_in_force() {
    let cancel = Cancel { id: 12, from: 8, epoch: 9 };
    assert_eq!(Head::decode(&cancel.encode(), CANCEL), Ok(Head::Cancel(cancel)));
    assert_eq!(Head::decode(&cancel.encode(), 0), Err(RailError::Kind(3)));
    assert_eq!(Head::decode(&cancel.encode(), !CANCEL), Err(RailError::Kind(3)));
}

#[test]
fn heads_out_of_bounds_are_errors() {
    let first = Range { addr: 1, len: 1 };
    let good = Request { kind: RequestKind::Read, count: 1, id: 0, payload: 1, epoch: 0, first };
    for count in [0, MAX_RANGES as u32 + 1, u32::MAX] {
        assert_eq!(Request::decode(&Request { count, ..good }.encode()), Err(RailError::Count(count)));
    }
    let mut bytes = good.encode();
    bytes[0] = 3;
    assert_eq!(Request::decode(&bytes), Err(RailError::Kind(3)));
    assert!(matches!(Hello::decode(&[0; HELLO_LEN]), Err(RailError::Magic(_))));
    assert!(matches!(Welcome::decode(&[0; WELCOME_LEN]), Err(RailError::Magic(_))));
}

proptest! {
    #[test]
    fn requests_round_trip(write: bool, count in 1..=MAX_RANGES as u32, id: u64, payload: u64, epoch: u64, addr: u64, len: u64) {
        let kind = if write { RequestKind::Write } else { RequestKind::Read };
        let request = Request { kind, count, id, payload, epoch, first: Range { addr, len } };
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        prop_assert_eq!(request.table_len(), (count as usize - 1) * 16);
    }

    #[test]
    fn answers_and_welcomes_round_trip_whatever_the_status(bytes: [u8; ANSWER_LEN], status: u32, id: u64, index: u32, payload: u64) {
        if let Ok(answer) = Answer::decode(&bytes) {
            prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        let status = match status { 0..=6 => AnswerStatus::Ok, other => AnswerStatus::Other(other) };
        let answer = Answer { kind: AnswerKind::Read, status, id, index, payload };
        prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        let _ = Welcome::decode(&bytes);
    }

    #[test]
    fn any_bytes_are_taken(hello in any::<[[u8; 32]; 2]>(), head in any::<[[u8; 24]; 2]>()) {
        let _ = Hello::decode(hello.as_flattened().try_into().unwrap());
        let bytes: [u8; REQUEST_LEN] = head.as_flattened().try_into().unwrap();
        if let Ok(request) = Request::decode(&bytes) {
            prop_assert!(request.table_len() < MAX_RANGES * 16);
        }
        match Head::decode(&bytes, CANCEL | TOKEN | TRACE) {
            Ok(Head::Trace(trace)) => prop_assert_eq!(Head::decode(&trace.encode(), TRACE), Ok(Head::Trace(trace))),
            Ok(Head::Present(present)) => prop_assert_eq!(Head::decode(&present.encode(), TOKEN), Ok(Head::Present(present))),
            Err(RailError::Token(len)) => prop_assert!(len != 80),
            Ok(Head::Cancel(cancel)) => prop_assert_eq!(Head::decode(&cancel.encode(), CANCEL), Ok(Head::Cancel(cancel))),
            other => prop_assert_eq!(other, Request::decode(&bytes).map(Head::Request)),
        }
    }
}
