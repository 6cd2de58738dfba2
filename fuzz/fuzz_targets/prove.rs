//! Both sides of the key exchange, given any bytes: no panic, nobody admitted, and with one block of the honest exchange in the
//! place of an invented one no other outcome.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moonrail_access::{Initiator, Key, Keys, Offer, Step, Target};
use moonrail_wire::auth::Port;
use moonrail_wire::rail::{HELLO_LEN, WelcomeStatus};

const OFFER: Offer = Offer { port: Port::Data, epoch: 42, features: 1, max_payload: 1 << 20 };

fuzz_target!(|data: &[u8]| {
    let keys = Keys::one(Key::new(b"the shared key of the fuzz target").expect("long enough"));
    let mut initiator = Initiator::new(Port::Data, &keys, OFFER.epoch, 1, [1; 32]);
    let honest = Target::challenge(OFFER, &keys, initiator.hello(), [2; 32]).expect("an honest hello");
    // The first byte says which blocks are honest.
    let Some((&mixture, data)) = data.split_first() else { return };
    for (nth, block) in data.as_chunks::<32>().0.iter().enumerate() {
        let halves = honest.bytes.as_chunks::<32>().0;
        let block = match nth {
            0 | 1 if mixture >> nth & 1 == 1 => &halves[nth],
            2 if mixture & 4 != 0 => &OFFER.welcome(WelcomeStatus::Open, 3),
            _ => block,
        };
        match initiator.take(block) {
            Ok(Step::Done(_)) => panic!("admitted by invented bytes"),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    if let Some(hello) = data.first_chunk::<HELLO_LEN>() {
        let mut hello = *hello;
        if mixture & 8 != 0 {
            hello[..24].copy_from_slice(&initiator.hello()[..24]);
            hello[56..].copy_from_slice(&initiator.hello()[56..]);
        }
        if let Ok(challenge) = Target::challenge(OFFER, &keys, &hello, [3; 32]) {
            let proof = data[HELLO_LEN..].first_chunk().unwrap_or(&[0; 32]);
            assert!(challenge.target.judge(proof).is_err(), "an invented proof was admitted");
        }
    }
});
