//! What pairs and clusters are said to come to. tests/interop checks the same against the releases themselves.

use moonrail_compat::{Engine, Generation, Matrix, Pair, Problem, Severity, Side, judge};

const MOONRAIL: Engine = Engine::Moonrail { rail: Some((1, 1)), refuses_v1: false };

fn side(engine: Engine) -> Side {
    Side {
        engine,
        protocol: "tcp".to_owned(),
        data_host: "192.0.2.1".to_owned(),
        data_port: 15001,
        handshake_port: Some(15500),
        place: None,
        local: false,
    }
}

fn mooncake(generation: Generation) -> Side {
    side(Engine::Mooncake(generation))
}

fn has(pair: &Pair, problem: Problem) -> bool {
    pair.problems.contains(&problem)
}

#[test]
fn moonrails_meet_on_rail_and_on_one_host_without_a_socket() {
    let (a, mut b) = (side(MOONRAIL), side(MOONRAIL));
    let pair = judge(&a, &b);
    assert_eq!((pair.path, pair.protocol.as_deref()), (Some("tcp"), Some("rail-1")));
    assert!(pair.problems.is_empty() && pair.to_string() == "rail", "{pair:?}");
    let mut here = a.clone();
    (here.place, b.place) = (Some("h".to_owned()), Some("h".to_owned()));
    assert_eq!(judge(&here, &b).path, Some("shm"));
    b.engine = Engine::Moonrail { rail: Some((7, 9)), refuses_v1: false };
    assert_eq!(judge(&a, &b).protocol.as_deref(), Some("mooncake-v2"));
}

#[test]
fn genuine_v1_initiators_lie_and_moonrail_does_not() {
    for target in [side(MOONRAIL), mooncake(Generation::From0_3_13), mooncake(Generation::From0_3_10Post2)] {
        let pair = judge(&mooncake(Generation::From0_3_10Post2), &target);
        assert_eq!(pair.severity(), Some(Severity::Lies));
        assert!(has(&pair, Problem::FalseSuccess));
        assert_eq!(has(&pair, Problem::Unchecked), !target.engine.checks_addresses());
    }
    let newest = judge(&mooncake(Generation::From0_3_13), &mooncake(Generation::From0_3_10Post2));
    assert!(has(&newest, Problem::FalseSuccess), "v1 is all that the target speaks");
    assert!(judge(&mooncake(Generation::From0_3_13), &mooncake(Generation::From0_3_12)).problems.is_empty());
    let ours = judge(&side(MOONRAIL), &mooncake(Generation::From0_3_5));
    assert_eq!((ours.severity(), ours.problems), (Some(Severity::Note), vec![Problem::ReadBack]));
}

#[test]
fn lanes_to_a_target_that_closes_lose_batches() {
    let pair = judge(&mooncake(Generation::From0_3_13), &mooncake(Generation::From0_3_5));
    assert!(has(&pair, Problem::LosesBatches) && has(&pair, Problem::ProbeSaysDead), "{pair:?}");
    assert_eq!((pair.severity(), pair.to_string()), (Some(Severity::Broken), "v1 LOSES".to_owned()));
    let kept = judge(&mooncake(Generation::From0_3_13), &mooncake(Generation::From0_3_10));
    assert!(!has(&kept, Problem::LosesBatches) && has(&kept, Problem::ProbeSaysDead));
}

#[test]
fn what_cannot_meet_is_said_to() {
    let oldest = mooncake(Generation::UpTo0_3_4);
    assert_eq!(judge(&oldest, &side(MOONRAIL)).problems, [Problem::PortBeside]);
    let mut beside = side(MOONRAIL);
    beside.data_port = 15501;
    assert!(has(&judge(&oldest, &beside), Problem::FalseSuccess));
    let mut shut = side(MOONRAIL);
    shut.engine = Engine::Moonrail { rail: Some((1, 1)), refuses_v1: true };
    let pair = judge(&mooncake(Generation::From0_3_5), &shut);
    assert_eq!((pair.path, pair.problems.as_slice()), (None, &[Problem::RefusesV1][..]));
    let mut loopback = side(MOONRAIL);
    loopback.data_host = "127.0.0.1".to_owned();
    assert_eq!(judge(&side(MOONRAIL), &loopback).problems, [Problem::OtherHost]);
    loopback.local = true;
    assert!(judge(&loopback, &loopback).problems.is_empty());
    let mut rdma = side(MOONRAIL);
    rdma.protocol = "rdma".to_owned();
    assert_eq!(judge(&side(MOONRAIL), &rdma).to_string(), "no (other-protocol)");
}

#[test]
fn the_oldest_is_upgraded_first() {
    let cluster = vec![
        mooncake(Generation::From0_3_5),
        mooncake(Generation::From0_3_10Post2),
        mooncake(Generation::From0_3_12),
        mooncake(Generation::From0_3_13),
        side(MOONRAIL),
    ];
    let steps = Matrix::new(cluster).upgrades();
    let order: Vec<usize> = steps.iter().map(|step| step.index).collect();
    assert_eq!(order, [0, 1]);
    assert_eq!(steps[1].left, 0);
    assert!(Matrix::new(vec![side(MOONRAIL), mooncake(Generation::From0_3_12)]).upgrades().is_empty());
}
