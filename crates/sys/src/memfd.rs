//! Memory without a name that several processes map: memfds of a sealed size.
//!
//! Owns creating, sealing, checking and mapping. The size is sealed before anybody else sees the descriptor, or a truncate
//! would be a SIGBUS in whoever has it mapped. It hands out no Rust references: others may write at any time, so the memory
//! is reached by address only. It must not know what is stored.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

/// The size of a huge page, and of the alignment that the kernel wants to map one.
pub const HUGE: usize = 2 << 20;

/// What a memfd is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Pages of the usual size, each taken when it is first touched.
    Usual,
    /// Huge pages that the administrator has set aside (hugetlbfs), reserved when they are first mapped.
    Hugetlb,
}

/// A memfd whose size is sealed.
#[derive(Debug)]
pub struct Memfd {
    fd: OwnedFd,
    len: usize,
    writable: bool,
}

impl Memfd {
    /// Makes `len` zeroed bytes (whole pages of the kind). They take no memory yet.
    ///
    /// # Errors
    /// No memfds here (ENOSYS, EPERM), out of descriptors, the process's limit on file sizes is below `len` (EFBIG);
    /// for huge pages also EINVAL and EOPNOTSUPP where the kernel has none.
    pub fn create(name: &CStr, len: usize, pages: Pages) -> io::Result<Memfd> {
        let fd = unsealed(name, len, pages)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Memfd { fd, len, writable: true })
    }

    /// Takes a memfd that another process made.
    ///
    /// # Errors
    /// `InvalidData` when it is none, its size is not sealed, or it is empty.
    pub fn open(fd: OwnedFd) -> io::Result<Memfd> {
        let (len, seals) = sealed_size(&fd)?;
        let writable = !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
        Ok(Memfd { fd, len, writable })
    }

    /// Lets nobody make a writable mapping any more; those that exist stay. Neither can [`Memfd::discard`] be used then.
    ///
    /// # Errors
    /// EINVAL before Linux 5.1.
    pub fn seal_writes(&mut self) -> io::Result<()> {
        fcntl_add_seals(&self.fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        self.writable = false;
        Ok(())
    }

    /// The length in bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it can be mapped to be written.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Gives whole pages back to the system, for every process that has them mapped; they read as zeros from then on.
    ///
    /// # Errors
    /// EPERM when writes are sealed.
    pub fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.fd, flags, offset as u64, len as u64)?)
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A mapping of a whole memfd, unmapped when dropped. It starts at an address that huge pages can be mapped at, if it has
/// room for one.
#[derive(Debug)]
pub struct SharedMapping {
    start: NonNull<libc::c_void>,
    len: usize,
    writable: bool,
}

impl SharedMapping {
    /// Maps all of it: to be read, and to be written where that is not sealed.
    ///
    /// # Errors
    /// `OutOfMemory` when the address space, the limit on it or on the number of mappings is exhausted, or when there are
    /// not so many free huge pages.
    pub fn new(memfd: &Memfd) -> io::Result<SharedMapping> {
        let prot = if memfd.writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let start = if memfd.len >= HUGE {
            map_aligned(memfd, prot)?
        } else {
            // SAFETY: the kernel chooses a free address range, so no existing memory is touched; the result is owned by
            // the value made below and by nothing else.
            unsafe { mmap(std::ptr::null_mut(), memfd.len, prot, MapFlags::SHARED, memfd, 0)? }
        };
        let start = NonNull::new(start).expect("invariant: mmap does not choose the null page");
        Ok(SharedMapping { start, len: memfd.len, writable: memfd.writable })
    }

    /// The first address.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// The length in bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be written.
    #[inline]
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The address of the `len` bytes at `offset`, if they lie inside.
    #[inline]
    pub fn at(&self, offset: u64, len: u64) -> Option<u64> {
        offset.checked_add(len).filter(|&end| end <= self.len as u64)?;
        Some(self.addr() + offset)
    }

    /// Takes memory for every page now, and has the kernel put huge pages in their place where they fit. Others keep their
    /// usual pages. Takes about 3 ms for each MiB.
    ///
    /// # Errors
    /// EINVAL where the kernel has no such pages, or no call to ask for them (before 6.1); `OutOfMemory` when it finds no
    /// free ones now.
    pub fn collapse(&self) -> io::Result<()> {
        // SAFETY: the advice takes memory and moves pages, at addresses of this value's own; their content stays.
        unsafe {
            madvise(self.start.as_ptr(), self.len, Advice::LinuxPopulateWrite)?;
            madvise(self.start.as_ptr(), self.len, Advice::LinuxHugepage)?;
            // rustix has no name for it.
            if libc::madvise(self.start.as_ptr(), self.len, libc::MADV_COLLAPSE) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// Maps at an address where a huge page may begin: finds a place with room to spare, then gives the rest back.
fn map_aligned(memfd: &Memfd, prot: ProtFlags) -> io::Result<*mut libc::c_void> {
    let room = memfd.len.checked_add(HUGE).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    // SAFETY: as in `SharedMapping::new`; all of what follows lies inside this range, which nobody else knows.
    unsafe {
        let whole = mmap_anonymous(
            std::ptr::null_mut(),
            room,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?;
        let before = whole.cast::<u8>().align_offset(HUGE);
        let start = whole.wrapping_byte_add(before);
        let mapped = mmap(start, memfd.len, prot, MapFlags::SHARED | MapFlags::FIXED, memfd, 0);
        let Ok(start) = mapped else {
            let _ = munmap(whole, room);
            return Ok(mapped?);
        };
        if before > 0 {
            let _ = munmap(whole, before);
        }
        // The end of a mapping of huge pages may lie at the end of one.
        let end = memfd.len.next_multiple_of(rustix::param::page_size());
        if before + end < room {
            let _ = munmap(start.wrapping_byte_add(end), room - before - end);
        }
        Ok(start)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: this value owns exactly this mapping, and no reference into it was handed out.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        // It fails only when splitting a mapping passes the kernel's limit on their number: then the mapping leaks.
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

// SAFETY: the pointer is only an address here; no method dereferences it, and unmapping may happen on any thread.
unsafe impl Send for SharedMapping {}
// SAFETY: as above; shared access reads plain fields.
unsafe impl Sync for SharedMapping {}

/// A memfd of `len` bytes that can still be sealed in every way.
pub(crate) fn unsealed(name: &CStr, len: usize, pages: Pages) -> io::Result<OwnedFd> {
    // The kernel would send SIGXFSZ, which kills.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < len as u64) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if pages == Pages::Hugetlb {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let fd = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(rustix::io::Errno::INVAL) => memfd_create(name, flags),
        made => made,
    }?;
    ftruncate(&fd, len as u64)?;
    Ok(fd)
}

/// The size of a memfd that cannot change, and its seals.
pub(crate) fn sealed_size(fd: impl AsFd) -> io::Result<(usize, SealFlags)> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    let seals = fcntl_get_seals(&fd).map_err(|_| invalid("not a sealed memfd"))?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(invalid("a memfd whose size is not sealed"));
    }
    let len = usize::try_from(fstat(&fd)?.st_size).ok().filter(|&len| len > 0 && len <= isize::MAX as usize);
    Ok((len.ok_or_else(|| invalid("a memfd of no size"))?, seals))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::copy::{copy_from, copy_to};
    use rustix::io::dup;

    fn again(memfd: &Memfd) -> Memfd {
        Memfd::open(dup(memfd).unwrap()).unwrap()
    }

    #[test]
    fn two_mappings_show_the_same_bytes() {
        for len in [4096, 3 * HUGE + 4096] {
            let memfd = Memfd::create(c"test", len, Pages::Usual).unwrap();
            let (near, far) =
                (SharedMapping::new(&memfd).unwrap(), SharedMapping::new(&again(&memfd)).unwrap());
            assert_eq!((far.len(), far.writable()), (len, true));
            assert!(len < HUGE || (near.addr() % HUGE as u64, far.addr() % HUGE as u64) == (0, 0));
            let mut bytes = [0; 8];
            // SAFETY: nothing else knows the mappings.
            unsafe {
                copy_to(near.at(len as u64 - 8, 8).unwrap(), b"moonrail").unwrap();
                copy_from(far.at(len as u64 - 8, 8).unwrap(), &mut bytes).unwrap();
            }
            assert_eq!(&bytes, b"moonrail");
            assert_eq!((far.at(len as u64 - 8, 9), far.at(u64::MAX, 2)), (None, None));
        }
    }

    #[test]
    fn discarded_pages_are_zeros_everywhere() {
        let memfd = Memfd::create(c"test", 8192, Pages::Usual).unwrap();
        let (near, far) = (SharedMapping::new(&memfd).unwrap(), SharedMapping::new(&memfd).unwrap());
        let mut bytes = [1; 8192];
        // SAFETY: nothing else knows the mappings.
        unsafe {
            copy_to(near.addr(), &[7; 8192]).unwrap();
            memfd.discard(4096, 4096).unwrap();
            copy_from(far.addr(), &mut bytes).unwrap();
        }
        assert_eq!((bytes[4095], bytes[4096]), (7, 0));
    }

    #[test]
    fn what_could_be_truncated_is_refused_and_sealed_writes_stay_sealed() {
        let fd = unsealed(c"test", 4096, Pages::Usual).unwrap();
        assert_eq!(Memfd::open(dup(&fd).unwrap()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut memfd = Memfd::create(c"test", 4096, Pages::Usual).unwrap();
        assert!(ftruncate(&memfd, 0).is_err() && ftruncate(&memfd, 8192).is_err());
        let mine = SharedMapping::new(&memfd).unwrap();
        memfd.seal_writes().unwrap();
        let theirs = again(&memfd);
        assert!(mine.writable() && !theirs.writable() && !SharedMapping::new(&theirs).unwrap().writable());
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(Memfd::open(reader).is_err());
    }

    #[test]
    fn huge_pages_are_there_or_refused() {
        let memfd = Memfd::create(c"test", HUGE, Pages::Usual).unwrap();
        let mapping = SharedMapping::new(&memfd).unwrap();
        let collapsed = mapping.collapse();
        let mut byte = [1];
        // SAFETY: nothing else knows the mapping.
        unsafe { copy_from(mapping.addr(), &mut byte) }.unwrap();
        assert_eq!(byte, [0], "{collapsed:?}");
        // Where the machine has set none aside, one of the two steps says so.
        let reserved = Memfd::create(c"test", HUGE, Pages::Hugetlb);
        if let Ok(mapping) = reserved.and_then(|memfd| SharedMapping::new(&memfd)) {
            assert_eq!(mapping.len(), HUGE);
        }
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        let error =
            Memfd::create(c"test", 1 << 50, Pages::Usual).and_then(|memfd| SharedMapping::new(&memfd));
        assert!(error.is_err());
    }
}
