//! Initiators that are killed or stopped in the middle of copies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::{MemoryRange, RegionOptions, UnregisterError};
use moonrail_shm::ShmServer;
use moonrail_transport::testkit::Side;
use rustix::process::Signal;

use crate::support::{Dice, Other, Way};

fn writer(server: &ShmServer, range: MemoryRange, way: Way) -> Other {
    let mut facts = vec![
        ("CONTACT", server.contact().to_string()),
        ("REMOTE", range.addr().to_string()),
        ("LEN", range.len().to_string()),
        ("BYTE", "170".to_owned()),
    ];
    facts.extend(way.fact());
    let mut other = Other::start("writer", &facts);
    assert_eq!(other.hear("running") != "0", way == Way::Mapped);
    other
}

fn guarded(range: MemoryRange, round: u8) {
    let guard = vec![round; range.len() as usize];
    Side::poke(range, &guard);
    std::thread::sleep(Duration::from_millis(3));
    assert!(Side::peek(range) == guard, "round {round}: a byte changed behind the fence");
}

#[test]
fn a_killed_initiator_holds_nothing() {
    killed(Way::Across);
}

#[test]
fn a_killed_initiator_holds_nothing_mapped() {
    killed(Way::Mapped);
}

fn killed(way: Way) {
    let side = Side::new();
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    let range = side.range(8 << 20);
    let mut dice = Dice(0x6d6f_6f6e);
    for round in 0..25 {
        let mut other = writer(&server, range, way);
        std::thread::sleep(Duration::from_micros(dice.below(6000)));
        other.kill();
        let since = Instant::now();
        side.regions.unregister(range.addr(), Duration::from_secs(10)).unwrap();
        assert!(since.elapsed() < Duration::from_millis(500), "round {round}: {:?}", since.elapsed());
        guarded(range, round);
        side.regions.register(range, RegionOptions::default()).unwrap();
    }
    let since = Instant::now();
    while server.initiators() > 0 {
        assert!(since.elapsed() < Duration::from_secs(5), "dead processes stay connected");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stopped_initiator_keeps_the_memory_it_copies_to_and_no_other() {
    stopped(Way::Across);
}

#[test]
fn a_stopped_initiator_keeps_the_mapped_memory_it_copies_to_and_no_other() {
    stopped(Way::Mapped);
}

fn stopped(way: Way) {
    let side = Side::new();
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    let (range, unrelated) = (side.range(16 << 20), side.range(4096));
    let patience = Duration::from_millis(150);
    let mut dice = Dice(0x7261_696c);
    let mut caught = 0;
    for round in 0..40 {
        let mut other = writer(&server, range, way);
        std::thread::sleep(Duration::from_micros(dice.below(3000)));
        other.freeze();
        let since = Instant::now();
        side.regions
            .unregister(unrelated.addr(), Duration::from_secs(2))
            .expect("a region that nobody copies to");
        assert!(since.elapsed() < Duration::from_secs(1), "waited for copies to other memory");
        side.regions.register(unrelated, RegionOptions::default()).unwrap();
        let since = Instant::now();
        match side.regions.unregister(range.addr(), patience) {
            Ok(()) => guarded(range, round),
            Err(busy) => {
                caught += 1;
                assert!(since.elapsed() >= patience && since.elapsed() < patience * 4);
                assert!(
                    matches!(busy, UnregisterError::Busy { outside: Some(pid), holds: 0, .. } if pid == other.pid())
                );
                assert!(busy.to_string().contains(&format!("process {}", other.pid())), "{busy}");
                side.regions
                    .register(range, RegionOptions::default())
                    .expect_err("memory that is still in use was registered anew");
                if round % 2 == 0 {
                    other.signal(Signal::CONT);
                    side.regions.unregister(range.addr(), Duration::from_secs(10)).unwrap();
                } else {
                    // It is looked at anew when its memory is registered again, also without another unregister.
                    other.kill();
                    let since = Instant::now();
                    while side.regions.register(range, RegionOptions::default()).is_err() {
                        assert!(since.elapsed() < Duration::from_secs(5), "a dead process keeps its hold");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    side.regions.unregister(range.addr(), Duration::ZERO).unwrap();
                }
                guarded(range, round);
            }
        }
        drop(other);
        side.regions.register(range, RegionOptions::default()).unwrap();
        if caught == 4 {
            return;
        }
    }
    panic!("a process that copies all the time was only {caught} times stopped in the middle of a copy");
}
