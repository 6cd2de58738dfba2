//! Large registered regions get huge pages, where the kernel can; what is not there stays so.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, Instant};

use moonrail::{Config, Engine, MemoryRange, RegionOptions};
use moonrail_memory::{Hold, Want};
use moonrail_sys::huge_pages::HugePages;
use moonrail_sys::mapping::AnonymousMapping;

fn engine(huge_pages: bool) -> Engine {
    let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
    config.huge_pages = huge_pages;
    Engine::start(config).unwrap()
}

#[test]
fn only_what_is_there_gets_huge_pages() {
    let Some(huge) = HugePages::find() else { return };
    let size = huge.size();
    let memory = AnonymousMapping::new(8 * size as usize).unwrap();
    // SAFETY: the mapping outlives both engines, and no Rust code looks at it.
    let range = unsafe { MemoryRange::assume_valid(memory.addr(), memory.len() as u64) }.unwrap();
    let half = memory.len() / 2;
    let bytes: Vec<u8> = (0..half).map(|at| (at % 251) as u8).collect();
    Hold::unlisted(range, Want::Write).copy_in(range.addr(), &bytes).unwrap();
    let worth =
        huge.whole(range.addr(), range.len()).filter(|&number| huge.is_worth_it(number).unwrap()).count()
            as u64;

    let (on, off) = (engine(true), engine(false));
    off.register(range, RegionOptions::default()).unwrap();
    on.register(range, RegionOptions::default()).unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    // That no huge page is free is no failure.
    while on.report().unwrap().huge_page_bytes < worth * size && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    on.unregister(range.addr()).unwrap();
    assert!(on.report().unwrap().huge_page_bytes <= worth * size, "memory was taken for what was not there");
    assert_eq!(off.report().unwrap().huge_page_bytes, 0);
    let mut back = vec![0; half];
    Hold::unlisted(range, Want::Read).copy_out(range.addr(), &mut back).unwrap();
    assert!(back == bytes);
}
