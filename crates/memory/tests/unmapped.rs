//! Registered memory that its owner unmapped too early. In a test binary of its own: no other thread may map something
//! at the same address meanwhile.
#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use moonrail_memory::io::HeldIov;
use moonrail_memory::{MemoryRange, RegionOptions, RegionTable, Want};
use moonrail_sys::mapping::AnonymousMapping;

#[test]
fn memory_unmapped_too_early_is_an_error() {
    let table = RegionTable::new();
    let mapping = AnonymousMapping::new(1 << 20).unwrap();
    let addr = mapping.addr();
    // SAFETY: the promise is broken below on purpose; nothing else is mapped there afterwards.
    let range = unsafe { MemoryRange::assume_valid(addr, 1 << 20) }.unwrap();
    table.register(range, RegionOptions::default()).unwrap();
    let hold = table.hold(addr, 64, Want::Write).unwrap();
    drop(mapping);

    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(&[7; 64]).unwrap();
    let mut list = HeldIov::new();
    list.push_held(&hold, addr, 64).unwrap();
    assert_eq!(list.recv(&there).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(list.send(&there).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(hold.copy_out(addr, &mut [0; 64]).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(hold.copy_in(addr, &[0; 64]).unwrap_err().raw_os_error(), Some(libc::EFAULT));

    drop(list);
    drop(hold);
    table.unregister(addr, Duration::ZERO).expect("the fence does not touch the memory");
}
