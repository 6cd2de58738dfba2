//! Memory that was unmapped while a list still names it. In a test binary of its own: no other thread may map something
//! at the same address meanwhile.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::net::UnixStream;

use moonrail_sys::copy::{copy_from, copy_to};
use moonrail_sys::iovec::IovList;
use moonrail_sys::mapping::AnonymousMapping;

#[test]
fn memory_that_was_unmapped_is_an_error() {
    let (mut from, to) = UnixStream::pair().unwrap();
    from.write_all(&[7; 64]).unwrap();
    let mapping = AnonymousMapping::new(1 << 20).unwrap();
    let addr = mapping.addr();
    let mut list = IovList::new();
    // SAFETY: nothing but this test knows the address, mapped or not.
    unsafe { list.push_raw(addr, 64) };
    drop(mapping);
    assert_eq!(list.recv(&to).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(list.send(&to).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    // SAFETY: as above.
    let (read, written) = unsafe { (copy_from(addr, &mut [0; 64]), copy_to(addr, &[0; 64])) };
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EFAULT));
}
