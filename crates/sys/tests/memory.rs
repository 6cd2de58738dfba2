//! Mappings and process limits.
#![allow(clippy::unwrap_used)]

use moonrail_sys::mapping::AnonymousMapping;
use moonrail_sys::process::{nofile_limit, raise_nofile_limit};

#[test]
fn a_mapping_is_zeroed_whole_pages() {
    for (asked, got) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
        let mapping = AnonymousMapping::new(asked).unwrap();
        assert_eq!(mapping.len() % rustix::param::page_size(), 0);
        assert!(mapping.len() >= got);
        assert_eq!(mapping.addr() % rustix::param::page_size() as u64, 0);
        let mut bytes = vec![1; mapping.len()];
        // SAFETY: nothing else knows the mapping.
        unsafe { moonrail_sys::copy::copy_from(mapping.addr(), &mut bytes) }.unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn an_impossible_mapping_is_an_error() {
    for len in [usize::MAX, usize::MAX - 4096, 1 << 60] {
        let error = AnonymousMapping::new(len).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{len:#x}: {error}");
    }
}

#[test]
fn the_descriptor_limit_is_raised_to_the_hard_one() {
    let before = nofile_limit();
    let after = raise_nofile_limit().unwrap();
    assert_eq!(after.soft, before.hard);
    assert_eq!(after, nofile_limit());
}
