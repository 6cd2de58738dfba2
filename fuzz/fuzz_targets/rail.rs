//! Rail frames: any bytes decode or are an error, and what decodes encodes to what means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moonrail_wire::rail::{
    ANSWER_LEN, Answer, CANCEL, FEATURES, HELLO_LEN, Head, Hello, MAX_RANGES, REQUEST_LEN, RailError,
    Request, WELCOME_LEN, Welcome,
};

fuzz_target!(|input: &[u8]| {
    if let Some(Ok(hello)) = input.first_chunk::<HELLO_LEN>().map(Hello::decode) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Some(Ok(welcome)) = input.first_chunk::<WELCOME_LEN>().map(Welcome::decode) {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
    if let Some(Ok(request)) = input.first_chunk::<REQUEST_LEN>().map(Request::decode) {
        assert!((1..=MAX_RANGES).contains(&(request.count as usize)));
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
    if let Some(bytes) = input.first_chunk::<REQUEST_LEN>() {
        match Head::decode(bytes, FEATURES) {
            Ok(Head::Present(present)) => {
                assert_eq!(Head::decode(&present.encode(), FEATURES), Ok(Head::Present(present)));
            }
            Ok(Head::Trace(trace)) => {
                assert_eq!(Head::decode(&trace.encode(), FEATURES), Ok(Head::Trace(trace)));
            }
            Err(RailError::Token(_)) => {}
            Ok(Head::Cancel(cancel)) => {
                assert_eq!(Head::decode(&cancel.encode(), CANCEL), Ok(Head::Cancel(cancel)));
                assert!(Head::decode(bytes, 0).is_err());
            }
            other => assert_eq!(other, Request::decode(bytes).map(Head::Request)),
        }
    }
    if let Some(Ok(answer)) = input.first_chunk::<ANSWER_LEN>().map(Answer::decode) {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
});
