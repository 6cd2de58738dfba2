//! What engines learn of each other, and what is seen of one from outside.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use moonrail::{Code, Config, Engine, Survey, V1Clients};

fn engine(refuse_v1: bool) -> Engine {
    let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
    if refuse_v1 {
        config.v1_clients = V1Clients::Refuse;
    }
    Engine::start(config).unwrap()
}

#[test]
fn what_a_peer_can_do_is_kept_once_it_was_met() {
    let (near, far) = (engine(false), engine(true));
    assert!(near.known_peer(far.name()).is_none() && near.known_peers().is_empty());
    let met = near.peer(far.name()).unwrap().capabilities;
    assert!(met.has("rail") && met.has("mooncake-v2") && met.has("tcp"), "{met:?}");
    assert!(!met.has("mooncake-v1"), "it lets no such client in: {met:?}");
    far.shutdown();
    assert_eq!(near.known_peer(far.name()).unwrap().capabilities, met);
    assert_eq!(near.known_peers(), [far.name()]);
}

#[test]
fn an_engine_is_seen_from_outside_as_its_peers_see_it() {
    let (near, far) = (engine(false), engine(false));
    let memory = far.allocate(8192).unwrap();
    let survey = Survey::new("P2PHANDSHAKE", None, Duration::from_secs(2)).unwrap();
    let seen = survey.look(far.name()).unwrap();
    let peer = near.peer(far.name()).unwrap();
    assert_eq!(seen.capabilities, peer.capabilities);
    assert_eq!((&seen.release, &seen.data), (&peer.release, &peer.data));
    assert_eq!(seen.buffers, [(memory, 8192)]);
    assert!(seen.data_failure.is_none() && seen.handshake_failure.is_none() && seen.side.local);
    assert!(!survey.probe(far.name()).unwrap().legacy);
    far.shutdown();
    assert_eq!(survey.look(far.name()).unwrap_err().code(), Code::PeerUnreachable);
    assert_eq!(survey.segments().unwrap_err().code(), Code::InvalidArgument);
}
