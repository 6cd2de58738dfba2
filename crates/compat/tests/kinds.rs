//! Kinds against the matrix of every pair: what stands in the small one must be what the large one says.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use moonrail_compat::{Engine, Generation, Kinds, Matrix, Pair, Side};

fn side(engine: Engine, host: &str, place: Option<&str>) -> Side {
    Side {
        engine,
        protocol: "tcp".to_owned(),
        data_host: host.to_owned(),
        data_port: 16000,
        handshake_port: Some(15000),
        place: place.map(str::to_owned),
        local: host.starts_with("127."),
    }
}

fn moonrail(refuses_v1: bool) -> Engine {
    Engine::Moonrail { rail: Some((1, 1)), refuses_v1 }
}

/// Each outcome with the number of its pairs, from the matrix of every pair.
fn by_pairs(sides: &[Side]) -> BTreeMap<String, usize> {
    let matrix = Matrix::new(sides.to_vec());
    let mut found = BTreeMap::new();
    for from in 0..sides.len() {
        for to in (0..sides.len()).filter(|&to| to != from) {
            *found.entry(format!("{:?}", matrix.pair(from, to))).or_default() += 1;
        }
    }
    found
}

/// The same from the kinds.
fn by_kinds(sides: &[Side]) -> BTreeMap<String, usize> {
    let kinds = Kinds::new(sides.to_vec());
    let mut found = BTreeMap::new();
    for from in 0..kinds.all().len() {
        for to in 0..kinds.all().len() {
            for (pair, count) in kinds.meeting(from, to).parts() {
                *found.entry(format!("{pair:?}")).or_default() += count;
            }
        }
    }
    found
}

#[test]
fn kinds_say_of_every_pair_what_the_matrix_says() {
    let engines = [
        moonrail(false),
        moonrail(true),
        Engine::Mooncake(Generation::UpTo0_3_4),
        Engine::Mooncake(Generation::From0_3_5),
        Engine::Mooncake(Generation::From0_3_13),
    ];
    let hosts =
        [("10.0.0.1", Some("a")), ("10.0.0.2", Some("b")), ("127.0.0.1", Some("a")), ("fd00::1", None)];
    let mut sides = Vec::new();
    for count in 1..=3 {
        for (number, engine) in engines.into_iter().enumerate() {
            for (host, place) in hosts.into_iter().take(1 + (count + number) % hosts.len()) {
                sides.push(side(engine, host, place.filter(|_| engine.is_moonrail())));
            }
        }
        sides.last_mut().unwrap().data_port = 0;
        assert_eq!(by_kinds(&sides), by_pairs(&sides), "{} engines", sides.len());
    }
}

#[test]
fn engines_of_one_kind_meet_each_other_near_and_apart() {
    let at = |place| side(moonrail(false), "10.0.0.1", Some(place));
    let kinds = Kinds::new(vec![at("a"), at("a"), at("b")]);
    assert_eq!(kinds.all().len(), 1);
    let meeting = kinds.meeting(0, 0);
    let path = |part: &Option<(Pair, usize)>| part.as_ref().map(|(pair, count)| (pair.path, *count));
    assert_eq!((path(&meeting.near), path(&meeting.apart)), (Some((Some("shm"), 2)), Some((Some("tcp"), 4))));
    assert_eq!(Kinds::new(vec![at("a")]).meeting(0, 0).parts().count(), 0, "nobody else is there");
}

#[test]
fn thousands_are_a_few_kinds() {
    let sides = (0..20_000)
        .map(|n| side(moonrail(false), &format!("10.1.{}.{}", n / 250, n % 250), Some(&n.to_string())));
    let kinds = Kinds::new(sides.collect());
    assert_eq!(kinds.all().len(), 1);
    assert_eq!(kinds.meeting(0, 0).apart.unwrap().1, 20_000 * 19_999);
}
