//! Handshake frames: the outcome does not depend on how the bytes are cut, and a message encodes to what was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moonrail_wire::handshake::{DEFAULT_MAX_LEN, Decoder, FrameError, Message};

fuzz_target!(|input: &[u8]| {
    let Some((&size, bytes)) = input.split_first() else { return };
    let whole = decode([bytes]);
    assert_eq!(decode(bytes.chunks(1)), whole);
    assert_eq!(decode(bytes.chunks(usize::from(size).max(1))), whole);
    let (message, excess, end) = whole;
    if let Some(message) = message {
        assert_eq!(message.encode(), bytes[..bytes.len() - excess]);
        assert_eq!(end, Ok(()));
    } else {
        assert!(end.is_err());
    }
});

fn decode<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Option<Message>, usize, Result<(), FrameError>) {
    let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
    let mut message = None;
    for piece in pieces {
        match decoder.feed(piece) {
            Ok(complete) => message = message.or(complete),
            Err(error) => assert_eq!(decoder.finish(), Err(error)),
        }
    }
    (message, decoder.excess(), decoder.finish())
}
