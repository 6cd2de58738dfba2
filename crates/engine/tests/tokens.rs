//! Regions that need a token: none, the right one, and every kind of wrong one, on lanes that were open before and new ones.
//! After each refusal the memory is as it was.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use moonrail::{Code, Config, Engine, Entry, Error, KeySource, Opcode, RegionOptions, Request, Rights};

const LEN: u64 = 4096;
const GUARD: u8 = 0xa5;
const READ: Rights = Rights { read: true, write: false };
const BOTH: Rights = Rights { read: true, write: true };
const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

fn engine_with(shm: bool, key: bool) -> Engine {
    let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
    config.paths.shm = shm;
    config.key = key.then(|| KeySource::text("the test", "the shared key of these tests"));
    Engine::start(config).unwrap()
}

fn engine() -> Engine {
    engine_with(false, false)
}

struct Target {
    engine: Engine,
    addr: u64,
    open: u64,
}

impl Target {
    fn new(engine: Engine) -> Self {
        let allocate = |guarded| {
            let options = RegionOptions { guarded, ..RegionOptions::default() };
            let addr = engine.allocate_with(LEN, options).unwrap();
            engine.write_local(addr, &[GUARD; LEN as usize]).unwrap();
            addr
        };
        let (addr, open) = (allocate(true), allocate(false));
        Self { engine, addr, open }
    }

    fn call(&self, by: &Engine, opcode: Opcode, remotes: &[u64]) -> Result<(), Error> {
        let local = by.allocate(LEN).unwrap();
        by.write_local(local, &[7; LEN as usize]).unwrap();
        let entries = remotes.iter().map(|&remote| Entry { local, remote, len: 64 }).collect();
        let outcome = by.transfer(&Request::new(self.engine.name(), opcode, entries));
        let mut here = vec![0; LEN as usize];
        by.read_local(local, &mut here).unwrap();
        let expected = if outcome.is_ok() && opcode == Opcode::Read { GUARD } else { 7 };
        assert!(here[..64].iter().all(|&byte| byte == expected), "local memory");
        outcome
    }

    fn bars(&self, by: &Engine, opcode: Opcode) {
        let error = self.call(by, opcode, &[self.addr]).unwrap_err();
        assert_eq!(error.code(), Code::TokenRefused, "{error}");
        self.untouched();
    }

    fn untouched(&self) {
        let mut bytes = vec![0; LEN as usize];
        self.engine.read_local(self.addr, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == GUARD), "memory was written");
    }
}

#[test]
fn a_token_lets_in_who_has_it_as_far_as_it_goes() {
    for (shm, key) in [(false, false), (true, false), (false, true)] {
        let (target, with, without) =
            (Target::new(engine_with(shm, key)), engine_with(shm, key), engine_with(shm, key));
        for engine in [&with, &without] {
            // Other memory is not concerned; and the lanes are open then.
            target.call(engine, Opcode::Read, &[target.open]).unwrap();
            target.bars(engine, Opcode::Read);
            target.bars(engine, Opcode::Write);
        }
        with.present(&target.engine.token(target.addr, READ, HOUR).unwrap()).unwrap();
        target.call(&with, Opcode::Read, &[target.addr]).unwrap();
        target.bars(&with, Opcode::Write);
        let error = target.call(&with, Opcode::Write, &[target.open, target.addr]).unwrap_err();
        assert_eq!((error.code(), error.index()), (Code::TokenRefused, Some(1)), "{error}");
        target.untouched();
        target.bars(&without, Opcode::Read);
        with.present(&target.engine.token(target.addr + 100, BOTH, None).unwrap()).unwrap();
        target.call(&with, Opcode::Write, &[target.addr]).unwrap();
        // A new engine, whose first call of all needs the token.
        let late = engine_with(shm, key);
        late.present(&target.engine.token(target.addr + 1, READ, HOUR).unwrap()).unwrap();
        let local = late.allocate(64).unwrap();
        let entry = Entry { local, remote: target.addr, len: 64 };
        late.transfer(&Request::new(target.engine.name(), Opcode::Read, vec![entry])).unwrap();
    }
}

#[test]
fn guarded_memory_is_reached_by_its_token_where_nothing_else_is_registered() {
    let (target, peer) = (engine_with(true, false), engine_with(true, false));
    let options = RegionOptions { guarded: true, ..RegionOptions::default() };
    let (addr, local) = (target.allocate_with(LEN, options).unwrap(), peer.allocate(LEN).unwrap());
    let read = || {
        peer.transfer(&Request::new(
            target.name(),
            Opcode::Read,
            vec![Entry { local, remote: addr, len: 64 }],
        ))
    };
    assert_eq!(read().unwrap_err().code(), Code::TokenRefused);
    peer.present(&target.token(addr, READ, HOUR).unwrap()).unwrap();
    read().unwrap();
}

#[test]
fn a_token_ends_by_itself() {
    let (target, peer) = (Target::new(engine()), engine());
    let brief = target.engine.token(target.addr, BOTH, Some(Duration::ZERO)).unwrap();
    peer.present(&brief).unwrap();
    target.bars(&peer, Opcode::Write);
    // One that is good when it is presented, and ends on an open lane.
    peer.present(&target.engine.token(target.addr, READ, Some(Duration::from_millis(1500))).unwrap())
        .unwrap();
    target.call(&peer, Opcode::Read, &[target.addr]).unwrap();
    let ends = std::time::Instant::now() + Duration::from_secs(10);
    while target.call(&peer, Opcode::Read, &[target.addr]).is_ok() {
        assert!(std::time::Instant::now() < ends, "it never ends");
        std::thread::sleep(Duration::from_millis(50));
    }
    target.bars(&peer, Opcode::Read);
    target.call(&peer, Opcode::Read, &[target.open]).unwrap();
}

#[test]
fn tokens_of_others_and_invented_ones_are_refused() {
    let (target, other, peer) = (Target::new(engine()), Target::new(engine()), engine());
    let good = target.engine.token(target.addr, BOTH, HOUR).unwrap();
    // Another engine's; and its bytes under this engine's epoch.
    peer.present(&other.engine.token(other.addr, BOTH, HOUR).unwrap()).unwrap();
    let theirs = other.engine.token(other.addr, BOTH, HOUR).unwrap();
    peer.present(&format!("{}{}{}", &theirs[..20], &good[20..36], &theirs[36..])).unwrap();
    // More rights, a later end, another region than was granted.
    let read = target.engine.token(target.addr, READ, HOUR).unwrap();
    for at in [6, 4 + 2 * 16, 4 + 2 * 24 + 8, good.len() - 1] {
        let mut forged = read.clone().into_bytes();
        forged[at] = if forged[at] == b'3' { b'2' } else { b'3' };
        peer.present(&String::from_utf8(forged).unwrap()).unwrap();
    }
    target.bars(&peer, Opcode::Read);
    target.bars(&peer, Opcode::Write);
    for text in ["", "mrt1", &good[1..], &good[..good.len() - 2], "a token"] {
        assert_eq!(peer.present(text).unwrap_err().code(), Code::InvalidArgument);
    }
    peer.present(&good).unwrap();
    target.call(&peer, Opcode::Write, &[target.addr]).unwrap();
}

#[test]
fn a_token_is_for_one_registration_of_the_memory() {
    let (target, peer) = (Target::new(engine()), engine());
    let side = moonrail_transport::testkit::Side::new();
    let range = side.range(LEN);
    let guarded = || RegionOptions { guarded: true, ..RegionOptions::default() };
    target.engine.register(range, guarded()).unwrap();
    peer.present(&target.engine.token(range.addr(), BOTH, None).unwrap()).unwrap();
    target.call(&peer, Opcode::Write, &[range.addr()]).unwrap();
    target.engine.unregister(range.addr()).unwrap();
    target.engine.register(range, guarded()).unwrap();
    let error = target.call(&peer, Opcode::Write, &[range.addr()]).unwrap_err();
    assert_eq!(error.code(), Code::TokenRefused, "{error}");
}

#[test]
fn mooncakes_protocol_does_not_get_at_guarded_memory() {
    let target = Target::new(engine());
    let data = target.engine.report().unwrap().data;
    for opcode in [0x80_u8, 0x81, 0, 1] {
        // Alone, and as the last of several small ones, which are taken together.
        for before in [0, 3] {
            let mut bytes = Vec::new();
            let mut request = |addr: u64| {
                bytes.extend(8_u64.to_le_bytes());
                bytes.extend(addr.to_le_bytes());
                bytes.extend([opcode, 0, 0, 0, 0, 0, 0, 0]);
                if opcode & 1 == 1 {
                    bytes.extend([GUARD ^ u8::from(addr == target.addr); 8]);
                }
            };
            (0..before).for_each(|_| request(target.open));
            request(target.addr);
            let mut stream = TcpStream::connect(data).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(&bytes).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let served = if opcode & 1 == 0 { 8 * before } else { 0 };
            assert!(answer.len() <= served + 8 * (before + 1), "guarded memory was read: {answer:02x?}");
            target.untouched();
        }
    }
}

#[test]
fn only_the_owner_makes_tokens_and_only_for_memory_that_needs_them() {
    let target = Target::new(engine());
    let code = |outcome: Result<String, Error>| outcome.unwrap_err().code();
    assert_eq!(code(target.engine.token(target.open, READ, None)), Code::InvalidArgument);
    assert_eq!(code(target.engine.token(4096, READ, None)), Code::AddressNotRegistered);
    let nothing = Rights { read: false, write: false };
    assert_eq!(code(target.engine.token(target.addr, nothing, None)), Code::InvalidArgument);
}
