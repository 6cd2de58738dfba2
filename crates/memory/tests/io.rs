//! Held memory and real sockets; managed buffers.
#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use moonrail_memory::io::HeldIov;
use moonrail_memory::{
    Access, AllocateError, FreeError, Hold, ManagedBuffers, RegionOptions, RegionSpan, RegionTable,
    UnregisterError, Want,
};

const NOW: Duration = Duration::ZERO;

fn buffers() -> (Arc<RegionTable>, ManagedBuffers) {
    let table = Arc::new(RegionTable::new());
    let buffers = ManagedBuffers::new(Arc::clone(&table));
    (table, buffers)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 253) as u8).collect()
}

fn contents(hold: &Hold) -> Vec<u8> {
    let mut bytes = vec![0; hold.region().len as usize];
    hold.copy_out(hold.region().addr, &mut bytes).unwrap();
    bytes
}

#[test]
fn bytes_go_from_held_memory_into_held_memory() {
    let (table, buffers) = buffers();
    let (source, _) = buffers.allocate(10_000).unwrap();
    let (sink, _) = buffers.allocate(10_000).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let data = pattern(10_000);
    table.hold(source, 10_000, Want::Write).unwrap().copy_in(source, &data).unwrap();

    let read = table.hold(source, 10_000, Want::Read).unwrap();
    let written = table.hold(sink, 10_000, Want::Write).unwrap();
    // A header before the payload, as a data protocol has it; the payload's two halves change places on the way.
    let mut out = HeldIov::new();
    out.push_bytes(b"HEADER__");
    out.push_held(&read, source + 5000, 5000).unwrap();
    out.push_held(&read, source, 5000).unwrap();
    out.push_held(&read, source + 10_000, 0).unwrap();
    assert_eq!((out.len(), out.bytes()), (3, 10_008));
    let mut header = [0_u8; 8];
    let mut back = HeldIov::new();
    back.push_bytes_mut(&mut header);
    back.push_held(&written, sink, 10_000).unwrap();
    while !back.is_empty() {
        let moved = out.send(&here).unwrap();
        out.advance(moved);
        let moved = back.recv(&there).unwrap();
        back.advance(moved);
    }
    assert_eq!(&header, b"HEADER__");
    assert_eq!(contents(&written), [&data[5000..], &data[..5000]].concat());
}

#[test]
fn memory_outside_the_hold_is_refused() {
    let (table, buffers) = buffers();
    let (addr, _) = buffers.allocate(100).unwrap();
    let hold = table.hold(addr, 1, Want::Write).unwrap();
    let mut list = HeldIov::new();
    for (at, len) in [(addr - 1, 1), (addr, 101), (addr + 100, 1), (addr, u64::MAX), (addr - 1, 0)] {
        let error = list.push_held(&hold, at, len).unwrap_err();
        assert_eq!((error.addr, error.len, error.region), (at, len, RegionSpan { addr, len: 100 }));
        assert!(error.to_string().contains("lie outside the region"));
    }
    assert!(list.is_empty());
    assert_eq!(hold.copy_out(addr + 99, &mut [0; 2]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(hold.copy_in(addr + 99, &[0; 2]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_read_hold_is_never_written() {
    let (table, buffers) = buffers();
    let (addr, _) = buffers.allocate(8).unwrap();
    let hold = table.hold(addr, 8, Want::Read).unwrap();
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(&[1; 8]).unwrap();
    let mut list = HeldIov::new();
    list.push_held(&hold, addr, 8).unwrap();
    assert_eq!(list.recv(&there).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(hold.copy_in(addr, &[1; 8]).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(contents(&hold), [0; 8]);
    assert_eq!((&there).read(&mut [0; 16]).unwrap(), 8, "nothing was taken off the socket");
}

#[test]
fn a_hold_without_a_table_lends_a_callers_buffer() {
    let mut mine = Box::new([0_u8; 64]);
    let addr = mine.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the box lives on, and is not looked at, until the hold is gone.
    let range = unsafe { moonrail_memory::MemoryRange::assume_valid(addr, 64) }.unwrap();
    let hold = Hold::unlisted(range, Want::Write);
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(&[9; 64]).unwrap();
    let mut list = HeldIov::new();
    list.push_held(&hold, addr, 64).unwrap();
    assert_eq!(list.recv(&there).unwrap(), 64);
    drop(list);
    drop(hold);
    assert_eq!(*mine, [9; 64]);
}

#[test]
fn managed_buffers_are_registered_until_freed() {
    let (table, buffers) = buffers();
    let (addr, range) = buffers.allocate(5000).unwrap();
    assert_eq!((range.addr(), range.len(), addr % 4096), (addr, 5000, 0));
    assert!(buffers.contains(addr) && buffers.len() == 1 && buffers.mapped_bytes() >= 8192);
    assert!(table.hold(addr, 5000, Want::Write).is_ok());
    assert!(table.hold(addr, 5001, Want::Write).is_err(), "exactly what was asked for");
    buffers.free(addr, NOW).unwrap();
    assert!(buffers.is_empty() && table.snapshot().is_empty());
    assert_eq!(buffers.free(addr, NOW), Err(FreeError::NotAllocated { addr }));
}

#[test]
fn an_empty_managed_buffer_is_legal() {
    let (table, buffers) = buffers();
    let (first, _) = buffers.allocate(0).unwrap();
    let (second, _) = buffers.allocate(0).unwrap();
    assert_ne!(first, second);
    assert_eq!(table.snapshot().len(), 2);
    buffers.free(first, NOW).unwrap();
    buffers.free(second, NOW).unwrap();
}

#[test]
fn an_impossible_managed_buffer_is_an_error() {
    let (table, buffers) = buffers();
    for len in [u64::MAX, u64::MAX - 5000, 1 << 62] {
        assert!(matches!(buffers.allocate(len), Err(AllocateError::Memory { .. })), "{len:#x}");
    }
    let named = RegionOptions { name: Some("x".into()), ..RegionOptions::default() };
    buffers.allocate_with(10, named.clone()).unwrap();
    assert!(matches!(buffers.allocate_with(10, named), Err(AllocateError::Register(_))));
    assert_eq!((buffers.len(), table.snapshot().len()), (1, 1));
}

#[test]
fn a_held_buffer_is_not_freed() {
    let (table, buffers) = buffers();
    let options = RegionOptions { access: Access::ReadOnly, ..RegionOptions::default() };
    let (addr, _) = buffers.allocate_with(100, options).unwrap();
    let hold = table.hold(addr, 100, Want::Read).unwrap();
    let busy = buffers.free(addr, NOW).unwrap_err();
    assert!(matches!(busy, FreeError::Busy(UnregisterError::Busy { holds: 1, .. })), "{busy:?}");
    assert_eq!(contents(&hold), [0; 100], "the memory is still there");
    drop(hold);
    buffers.free(addr, NOW).unwrap();
}

#[test]
fn a_buffer_unregistered_by_its_user_can_be_freed() {
    let (table, buffers) = buffers();
    let (addr, range) = buffers.allocate(100).unwrap();
    table.unregister(addr, NOW).unwrap();
    // It is still the user's memory until it is freed.
    assert_eq!(contents(&Hold::unlisted(range, Want::Read)), [0; 100]);
    buffers.free(addr, NOW).unwrap();
    assert!(buffers.is_empty());
}

#[test]
fn dropping_leaves_held_memory_in_place() {
    let (table, buffers) = buffers();
    let (held, _) = buffers.allocate(100).unwrap();
    buffers.allocate(100).unwrap();
    let hold = table.hold(held, 100, Want::Write).unwrap();
    drop(buffers);
    assert!(table.snapshot().is_empty());
    hold.copy_in(held, &[5; 100]).unwrap();
    assert_eq!(contents(&hold), [5; 100]);
}
