//! Unregistering while other processes write as fast as they can.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::RegionOptions;
use moonrail_shm::ShmServer;
use moonrail_transport::testkit::Side;

use crate::support::{Other, Way};

#[test]
fn no_byte_changes_behind_the_fence() {
    fence(Way::Across);
}

#[test]
fn no_mapped_byte_changes_behind_the_fence() {
    fence(Way::Mapped);
}

fn fence(way: Way) {
    let side = Side::new();
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    // One that takes many calls, one that takes a microsecond.
    for len in [8_u64 << 20, 4096] {
        let range = side.range(len);
        let others: Vec<Other> = (0..3)
            .map(|at| {
                let mut facts = vec![
                    ("CONTACT", server.contact().to_string()),
                    ("REMOTE", range.addr().to_string()),
                    ("LEN", len.to_string()),
                    ("BYTE", (200 + at).to_string()),
                ];
                facts.extend(way.fact());
                let mut other = Other::start("writer", &facts);
                assert_eq!(other.hear("running") != "0", way == Way::Mapped);
                other
            })
            .collect();
        for round in 0..60_u8 {
            side.regions.unregister(range.addr(), Duration::from_secs(10)).unwrap();
            let guard = vec![round; len as usize];
            Side::poke(range, &guard);
            std::thread::sleep(Duration::from_micros(u64::from(round) * 50));
            assert!(Side::peek(range) == guard, "round {round}: a byte changed behind the fence");
            side.regions.register(range, RegionOptions::default()).unwrap();
            // They find it again.
            std::thread::sleep(Duration::from_millis(2));
        }
        let since = Instant::now();
        while !Side::peek(range).iter().all(|&byte| byte >= 200) {
            assert!(since.elapsed() < Duration::from_secs(10), "the writers did not go on");
        }
        drop(others);
        side.regions.unregister(range.addr(), Duration::from_secs(10)).unwrap();
    }
}
