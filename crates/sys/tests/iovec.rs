//! Scatter-gather I/O over real sockets.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use moonrail_sys::iovec::{IovList, IovStorage, MAX_ENTRIES};
use moonrail_sys::mapping::AnonymousMapping;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u64).wrapping_mul(2_654_435_761).to_le_bytes()[1]).collect()
}

#[test]
fn pieces_arrive_in_order_in_other_pieces() {
    let (from, to) = UnixStream::pair().unwrap();
    let sent = bytes(3000 * 7);
    let mut received = vec![0; sent.len()];
    let mut outgoing = IovList::new();
    sent.chunks(7).for_each(|piece| outgoing.push_bytes(piece));
    let mut incoming = IovList::new();
    received.chunks_mut(5).for_each(|piece| incoming.push_bytes_mut(piece));
    assert_eq!((outgoing.len(), outgoing.bytes(), outgoing.is_full()), (3000, 21_000, true));

    let mut calls = 0;
    while incoming.bytes() > 0 {
        let moved = outgoing.send(&from).unwrap();
        assert!(moved <= MAX_ENTRIES * 7);
        outgoing.advance(moved);
        calls += 1;
        while incoming.bytes() > outgoing.bytes() {
            let moved = incoming.recv(&to).unwrap();
            incoming.advance(moved);
        }
    }
    assert!(calls >= 3, "one call takes {MAX_ENTRIES} pieces at most");
    assert!(outgoing.is_empty() && incoming.is_empty());
    assert_eq!(received, sent);
}

#[test]
fn advancing_stops_inside_a_piece() {
    let (from, mut to) = UnixStream::pair().unwrap();
    let mut list = IovList::new();
    list.push_bytes(b"abc");
    list.push_bytes(b"");
    list.push_bytes(b"defg");
    assert_eq!(list.len(), 2, "an empty piece is skipped");
    list.advance(0);
    list.advance(4);
    assert_eq!((list.len(), list.bytes()), (1, 3));
    assert_eq!(list.send(&from).unwrap(), 3);
    let mut got = [0; 3];
    to.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"efg");
    list.advance(3);
    assert_eq!(list.send(&from).unwrap(), 0);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| list.advance(1))).is_err());
}

#[test]
fn read_only_pieces_are_not_received_into() {
    let (mut from, to) = UnixStream::pair().unwrap();
    from.write_all(b"xx").unwrap();
    let constant = *b"ab";
    let mut list = IovList::new();
    list.push_bytes(&constant);
    assert_eq!(list.recv(&to).unwrap_err().kind(), ErrorKind::InvalidInput);

    let mut list = IovList::new();
    // SAFETY: the list is only asked to receive, which it must refuse.
    unsafe { list.push_raw_read_only(constant.as_ptr().expose_provenance() as u64, 2) };
    assert_eq!(list.recv(&to).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(IovList::new().recv(&to).unwrap_err().kind(), ErrorKind::InvalidInput, "0 would mean the end");
    assert_eq!(&constant, b"ab");
}

#[test]
fn calls_never_block_nor_raise_sigpipe() {
    // Both sockets are in blocking mode.
    let (from, to) = UnixStream::pair().unwrap();
    let mut byte = [0];
    let mut incoming = IovList::new();
    incoming.push_bytes_mut(&mut byte);
    assert_eq!(incoming.recv(&to).unwrap_err().kind(), ErrorKind::WouldBlock);
    let data = bytes(1 << 16);
    let mut outgoing = IovList::new();
    outgoing.push_bytes(&data);
    let blocked = loop {
        match outgoing.send(&from) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
    drop(to);
    assert_eq!(outgoing.send(&from).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn the_end_of_the_stream_is_zero() {
    let (from, to) = UnixStream::pair().unwrap();
    drop(from);
    let mut byte = [0];
    let mut list = IovList::new();
    list.push_bytes_mut(&mut byte);
    assert_eq!(list.recv(&to).unwrap(), 0);
}

#[test]
fn unmapped_memory_is_an_error_of_the_call() {
    let (mut from, to) = UnixStream::pair().unwrap();
    from.write_all(b"abcd").unwrap();
    // The lowest page is never mapped; the highest addresses are the kernel's; the third wraps round.
    for addr in [1_u64, 64, u64::MAX - 1, 1 << 63] {
        let mut list = IovList::new();
        // SAFETY: nothing is mapped there.
        unsafe { list.push_raw(addr, 4) };
        assert_eq!(list.recv(&to).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        assert_eq!(list.send(&to).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }
}

#[test]
fn raw_memory_is_sent_and_received() {
    let (from, to) = UnixStream::pair().unwrap();
    let (source, sink) = (AnonymousMapping::new(5000).unwrap(), AnonymousMapping::new(5000).unwrap());
    let sent = bytes(5000);
    let mut back = vec![0; 5000];
    // SAFETY: nothing else knows the two mappings.
    unsafe {
        moonrail_sys::copy::copy_to(source.addr(), &sent).unwrap();
        let mut list = IovList::new();
        list.push_raw_read_only(source.addr(), 4000);
        list.push_raw(source.addr() + 4000, 1000);
        assert_eq!(list.send(&from).unwrap(), 5000);
        let mut list = IovList::from_storage(list.into_storage());
        list.push_raw(sink.addr(), 5000);
        assert_eq!(list.recv(&to).unwrap(), 5000);
        moonrail_sys::copy::copy_from(sink.addr(), &mut back).unwrap();
    }
    assert_eq!(back, sent);
}

#[test]
fn storage_is_used_again() {
    let mut storage = IovStorage::with_capacity(MAX_ENTRIES);
    for round in 0..3_usize {
        let data = bytes(round + 1);
        let mut list = IovList::from_storage(storage);
        assert!(list.is_empty() && list.bytes() == 0);
        list.push_bytes(&data);
        assert_eq!((list.len(), list.bytes()), (1, round + 1));
        storage = list.into_storage();
    }
}

#[test]
fn a_list_is_copied_from_and_to_at_any_offset_and_in_pieces_of_any_length() {
    // More pieces than one copy is given, of lengths 1 to 7, and a long one at the end.
    let mut lengths: Vec<usize> = (0..200).map(|nth| nth % 7 + 1).collect();
    lengths.push(100_000);
    let total: usize = lengths.iter().sum();
    let source: Vec<u8> = (0..total).map(|at| (at * 31 % 251) as u8).collect();
    let mut list = IovList::new();
    let mut rest = source.as_slice();
    for &length in &lengths {
        let (piece, behind) = rest.split_at(length);
        list.push_bytes(piece);
        rest = behind;
    }
    for length in [0, 1, 2, 100, 300, 801, total] {
        let mut out = vec![0; length];
        list.copy_out(&mut out).unwrap();
        assert_eq!(out, source[..length]);
    }
    assert_eq!(list.copy_out(&mut vec![0; total + 1]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(list.copy_in(0, &[1]).unwrap_err().kind(), ErrorKind::InvalidInput, "it may only be sent");
    for (offset, length) in [(0, total), (1, 1), (3, 500), (799, 2), (total - 5, 5), (total, 0)] {
        let mut memory = vec![0_u8; total];
        let mut list = IovList::new();
        let mut rest = memory.as_mut_slice();
        for &length in &lengths {
            let (piece, behind) = rest.split_at_mut(length);
            list.push_bytes_mut(piece);
            rest = behind;
        }
        list.copy_in(offset, &source[..length]).unwrap();
        assert_eq!(list.copy_in(total - 1, &[1, 2]).unwrap_err().kind(), ErrorKind::InvalidInput);
        drop(list);
        memory[total - 1] = if offset + length == total && length > 0 { source[length - 1] } else { 0 };
        let mut expected = vec![0; total];
        expected[offset..offset + length].copy_from_slice(&source[..length]);
        assert_eq!(memory, expected);
    }
}

#[test]
fn copying_unmapped_memory_is_a_fault() {
    let mut list = IovList::new();
    let mut bytes = [1; 16];
    list.push_bytes_mut(&mut bytes);
    // SAFETY: nothing is mapped in the lowest page.
    unsafe { list.push_raw(64, 16) };
    let mut out = [0; 32];
    assert_eq!(list.copy_out(&mut out).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(list.copy_in(8, &out[..16]).unwrap_err().raw_os_error(), Some(libc::EFAULT));
}
