//! The key exchange against itself, and against whoever changes, repeats, reflects or invents its bytes.
#![allow(clippy::unwrap_used, missing_docs)]

use moonrail_access::prove::{Admitted, BLOCK_LEN, DOUBLE_LEN};
use moonrail_access::{Denied, Initiator, Key, Keys, Offer, Session, Step, Target, nonce};
use moonrail_wire::auth::{FEATURE_KEY, Port};
use moonrail_wire::rail::{Hello, VERSION, Welcome, WelcomeStatus};
use proptest::prelude::*;

const OFFER: Offer =
    Offer { port: Port::Data, epoch: 42, features: 0b0101, max_payload: 64 << 20, binding: None };

fn key(material: &str) -> Key {
    Key::new(material.as_bytes()).unwrap()
}

fn keys(material: &str) -> Keys {
    Keys::one(key(material))
}

const SECRET: &str = "a shared key of the tests";

/// What both sides said, in order.
struct Record {
    hello: [u8; 64],
    challenge: [u8; DOUBLE_LEN],
    proof: [u8; 32],
    verdict: [u8; DOUBLE_LEN],
}

type Both = (Result<Admitted, Denied>, Result<Session, Denied>);

/// The whole exchange, with somebody on the way who may change what he likes.
fn meet(calling: &Keys, called: &Keys, offer: Offer, meddle: &dyn Fn(&mut Record)) -> (Both, Record) {
    let mut initiator = Initiator::new(offer.port, calling, offer.epoch, 0b1001, nonce().unwrap());
    let mut record = Record {
        hello: *initiator.hello(),
        challenge: [0; DOUBLE_LEN],
        proof: [0; 32],
        verdict: [0; DOUBLE_LEN],
    };
    meddle(&mut record);
    let challenge = match Target::challenge(offer, called, &record.hello, nonce().unwrap()) {
        Ok(challenge) => challenge,
        Err((why, welcome)) => {
            let told = welcome.map_or(Denied::Malformed, |bytes| initiator.take(&bytes).unwrap_err());
            return ((Err(told), Err(why)), record);
        }
    };
    record.challenge = challenge.bytes;
    meddle(&mut record);
    let (welcome, targets_nonce) = halves(&record.challenge);
    let proof = initiator.take(&welcome).and_then(|step| match step {
        Step::Receive => initiator.take(&targets_nonce),
        other => panic!("{other:?}"),
    });
    match proof {
        Ok(Step::Send(proof)) => record.proof = proof,
        Ok(other) => panic!("{other:?}"),
        // The initiator has closed the connection; the target saw no proof.
        Err(why) => return ((Err(why), Err(Denied::WrongProof)), record),
    }
    meddle(&mut record);
    let (verdict, session) = match challenge.target.judge(&record.proof) {
        Ok(admitted) => admitted,
        Err((why, welcome)) => return ((Err(initiator.take(&welcome).unwrap_err()), Err(why)), record),
    };
    record.verdict = verdict;
    meddle(&mut record);
    let (welcome, proof) = halves(&record.verdict);
    let outcome = initiator.take(&welcome).and_then(|step| match step {
        Step::Receive => initiator.take(&proof),
        other => panic!("{other:?}"),
    });
    let outcome = outcome.map(|step| match step {
        Step::Done(admitted) => admitted,
        other => panic!("{other:?}"),
    });
    ((outcome, Ok(session)), record)
}

fn halves(double: &[u8; DOUBLE_LEN]) -> ([u8; BLOCK_LEN], [u8; BLOCK_LEN]) {
    (double[..BLOCK_LEN].try_into().unwrap(), double[BLOCK_LEN..].try_into().unwrap())
}

#[test]
fn members_of_one_key_admit_each_other_and_share_a_session() {
    for port in [Port::Data, Port::Handshake] {
        let offer = Offer { port, ..OFFER };
        let ((initiator, target), _) = meet(&keys(SECRET), &keys(SECRET), offer, &|_| {});
        let (admitted, session) = (initiator.unwrap(), target.unwrap());
        assert_eq!(admitted.welcome.max_payload, 64 << 20);
        assert_eq!(admitted.welcome.features, 0b0001 | FEATURE_KEY, "what both know");
        let tag = admitted.session.seal_request(b"frame");
        assert!(session.is_request(b"frame", &tag));
        assert!(!session.is_request(b"frame.", &tag));
        assert!(!session.is_reply(b"frame", &tag), "a request is no reply");
        assert!(admitted.session.is_reply(b"frame", &session.seal_reply(b"frame")));
    }
}

#[test]
fn a_rotated_key_is_admitted_as_long_as_it_stands_in_the_list() {
    let both = Keys::new(vec![key("the new key of the tests"), key(SECRET)]).unwrap();
    assert!(matches!(meet(&keys(SECRET), &both, OFFER, &|_| {}).0, (Ok(_), Ok(_))));
    assert!(matches!(meet(&both, &both, OFFER, &|_| {}).0, (Ok(_), Ok(_))));
    let (outcome, _) = meet(&both, &keys(SECRET), OFFER, &|_| {});
    assert!(matches!(outcome, (Err(Denied::KeyRefused), Err(Denied::UnknownKey))), "{outcome:?}");
}

#[test]
fn another_key_is_refused_also_under_the_right_id() {
    let (outcome, _) = meet(&keys("another key of the tests"), &keys(SECRET), OFFER, &|_| {});
    assert!(matches!(outcome, (Err(Denied::KeyRefused), Err(Denied::UnknownKey))), "{outcome:?}");
    let id = key(SECRET).id();
    let (outcome, _) = meet(&keys("another key of the tests"), &keys(SECRET), OFFER, &move |record| {
        record.hello[56..].copy_from_slice(&id);
    });
    assert!(matches!(outcome, (Err(Denied::KeyRefused), Err(Denied::WrongProof))), "{outcome:?}");
}

#[test]
fn recorded_bytes_are_of_no_use_to_either_side() {
    let (_, old) = meet(&keys(SECRET), &keys(SECRET), OFFER, &|_| {});
    // Sent again to the target: its nonce is another.
    let challenge = Target::challenge(OFFER, &keys(SECRET), &old.hello, nonce().unwrap()).unwrap();
    assert_eq!(challenge.target.judge(&old.proof).unwrap_err().0, Denied::WrongProof);
    // And to an initiator: so is its own.
    let mut initiator = Initiator::new(Port::Data, &keys(SECRET), OFFER.epoch, 0, nonce().unwrap());
    let ((welcome, targets_nonce), (verdict, proof)) = (halves(&old.challenge), halves(&old.verdict));
    initiator.take(&welcome).unwrap();
    initiator.take(&targets_nonce).unwrap();
    initiator.take(&verdict).unwrap();
    assert_eq!(initiator.take(&proof).unwrap_err(), Denied::Impostor);
    assert_eq!(initiator.take(&proof).unwrap_err(), Denied::Malformed, "and it stays over");
}

#[test]
fn a_proof_is_good_for_one_role_only() {
    // The initiator's own proof, sent back to it.
    let mut initiator = Initiator::new(Port::Data, &keys(SECRET), OFFER.epoch, 0, nonce().unwrap());
    initiator.take(&OFFER.welcome(WelcomeStatus::Prove, FEATURE_KEY)).unwrap();
    let Step::Send(own) = initiator.take(&[7; 32]).unwrap() else { panic!() };
    initiator.take(&OFFER.welcome(WelcomeStatus::Open, FEATURE_KEY)).unwrap();
    assert_eq!(initiator.take(&own).unwrap_err(), Denied::Impostor);
}

#[test]
fn what_was_said_on_one_port_is_nothing_on_the_other() {
    let keys = keys(SECRET);
    let called = Initiator::new(Port::Handshake, &keys, 0, 0, nonce().unwrap());
    let refused = Target::challenge(Offer { epoch: 0, ..OFFER }, &keys, called.hello(), nonce().unwrap());
    assert!(matches!(refused, Err((Denied::Malformed, None))));
    // With the magic changed on the way, the proof is of another session.
    let hello = *called.hello();
    let (outcome, _) = meet(&keys, &keys, OFFER, &move |record| {
        record.hello[..8].copy_from_slice(&Port::Data.magic());
        record.hello[24..56].copy_from_slice(&hello[24..56]);
    });
    assert!(matches!(outcome, (Err(Denied::KeyRefused), Err(Denied::WrongProof))), "{outcome:?}");
}

#[test]
fn an_initiator_with_a_key_does_not_go_on_without_it() {
    let plain = [
        (WelcomeStatus::Open, 0, Denied::NotAsked),
        (WelcomeStatus::Open, FEATURE_KEY, Denied::NotAsked),
        (WelcomeStatus::Prove, 0, Denied::NotAsked),
        (WelcomeStatus::KeyRequired, 0, Denied::NotAsked),
        (WelcomeStatus::NotAdmitted, 0, Denied::KeyRefused),
        (WelcomeStatus::Epoch, 0, Denied::Epoch),
        (WelcomeStatus::Version, 0, Denied::Version),
        (WelcomeStatus::Other(9), FEATURE_KEY, Denied::Malformed),
    ];
    for (status, features, why) in plain {
        let mut initiator = Initiator::new(Port::Data, &keys(SECRET), 42, 0, nonce().unwrap());
        assert_eq!(initiator.take(&OFFER.welcome(status, features)).unwrap_err(), why, "{status:?}");
    }
}

#[test]
fn a_target_tells_the_reason_before_it_closes() {
    let refusal = |hello: &[u8; 64]| {
        let (why, welcome) = Target::challenge(OFFER, &keys(SECRET), hello, nonce().unwrap()).err().unwrap();
        (why, welcome.map(|bytes| Welcome::decode(&bytes).unwrap().status))
    };
    let plain = Hello { version: VERSION, features: 0, target_epoch: 42 };
    assert_eq!(refusal(&plain.encode()), (Denied::KeyRequired, Some(WelcomeStatus::KeyRequired)));
    let other = Hello { target_epoch: 43, features: FEATURE_KEY, ..plain };
    assert_eq!(refusal(&other.encode()), (Denied::Epoch, Some(WelcomeStatus::Epoch)));
    let later = Hello { version: 9, features: FEATURE_KEY, ..plain };
    assert_eq!(refusal(&later.encode()), (Denied::Version, Some(WelcomeStatus::Version)));
    assert_eq!(refusal(&[0; 64]), (Denied::Malformed, None));
}

#[test]
fn nothing_of_the_exchange_shows_a_secret() {
    let keys = keys(SECRET);
    let initiator = Initiator::new(Port::Data, &keys, 42, 0, nonce().unwrap());
    let challenge = Target::challenge(OFFER, &keys, initiator.hello(), nonce().unwrap()).unwrap();
    let ((admitted, session), record) = meet(&keys, &keys, OFFER, &|_| {});
    let shown = format!("{initiator:?} {:?} {admitted:?} {session:?}", challenge.target);
    assert!(!shown.contains(SECRET), "{shown}");
    let tag = session.unwrap().seal_request(b"");
    for secret in [&record.proof[..], &record.verdict[32..], &tag[..]] {
        assert!(!shown.contains(&format!("{:?}", &secret[..8]).replace(['[', ']'], "")), "{shown}");
    }
}

proptest! {
    /// Whatever one bit is changed on the way, no side goes on that the other has not admitted.
    #[test]
    fn a_changed_bit_ends_the_exchange(message in 0usize..4, at in 0usize..512) {
        let flip = |bytes: &mut [u8]| bytes[at / 8 % bytes.len()] ^= 1 << (at % 8);
        let done = std::cell::Cell::new(0);
        let ((initiator, target), _) = meet(&keys(SECRET), &keys(SECRET), OFFER, &|record| {
            if done.replace(done.get() + 1) == message {
                match message {
                    0 => flip(&mut record.hello),
                    1 => flip(&mut record.challenge),
                    2 => flip(&mut record.proof),
                    _ => flip(&mut record.verdict),
                }
            }
        });
        prop_assert!(initiator.is_err());
        // Only the last message comes too late for the target, which has the initiator's proof then.
        prop_assert_eq!(target.is_ok(), message == 3);
    }

    /// Any bytes are taken without a panic, and admitted by nobody.
    #[test]
    fn invented_bytes_are_refused(
        hello in prop::array::uniform32(any::<u8>()),
        blocks in prop::collection::vec(prop::array::uniform32(any::<u8>()), 0..6),
        status in 0u16..8,
    ) {
        let keys = keys(SECRET);
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&hello);
        prop_assert!(Target::challenge(OFFER, &keys, &bytes, [1; 32]).is_err());
        bytes[..24].copy_from_slice(
            &Hello { version: VERSION, features: FEATURE_KEY, target_epoch: 42 }.encode()[..24],
        );
        bytes[56..].copy_from_slice(&key(SECRET).id());
        let target = Target::challenge(OFFER, &keys, &bytes, [1; 32]).unwrap().target;
        prop_assert!(target.judge(&hello).is_err());
        let mut initiator = Initiator::new(Port::Data, &keys, 42, 0, [2; 32]);
        for (nth, mut block) in blocks.into_iter().enumerate() {
            if nth % 2 == 0 {
                block[..8].copy_from_slice(&Port::Data.magic());
                block[10..12].copy_from_slice(&status.to_le_bytes());
            }
            prop_assert!(!matches!(initiator.take(&block), Ok(Step::Done(_))));
        }
    }
}

#[test]
fn a_proof_is_good_for_the_tls_connection_that_it_was_made_in() {
    let run = |ours, theirs| {
        let keys = keys(SECRET);
        let mut initiator = Initiator::new(Port::Data, &keys, OFFER.epoch, 0, nonce().unwrap()).bound(ours);
        let offer = Offer { binding: theirs, ..OFFER };
        let challenge = Target::challenge(offer, &keys, initiator.hello(), nonce().unwrap()).unwrap();
        let (welcome, targets_nonce) = halves(&challenge.bytes);
        initiator.take(&welcome).unwrap();
        let Step::Send(proof) = initiator.take(&targets_nonce).unwrap() else { panic!() };
        challenge.target.judge(&proof).map(drop).map_err(|(why, _)| why)
    };
    assert_eq!(run(Some([1; 32]), Some([1; 32])), Ok(()));
    for (ours, theirs) in [(Some([1; 32]), Some([2; 32])), (Some([1; 32]), None), (None, Some([1; 32]))] {
        assert_eq!(run(ours, theirs), Err(Denied::WrongProof));
    }
}
