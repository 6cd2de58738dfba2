//! Copying between two mapped addresses with the processor's own loads and stores.
//!
//! Owns the choice of instructions. An address that is not mapped is a SIGSEGV here, unlike in [`copy`](crate::copy): the
//! caller must know. It must not know whose memory it is.

use std::sync::OnceLock;

/// How the copy is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches: whoever uses the bytes next finds them there.
    Cached,
    /// Past the caches, for copies that would only push everything else out of them. On processors without such stores the
    /// same as `Cached`.
    Streaming,
}

impl Stores {
    /// The faster way for a copy of `bytes` in all: streaming from half of the last-level cache on, as source and
    /// destination together fill it then.
    #[inline]
    pub fn for_bytes(bytes: u64) -> Stores {
        if bytes < SMALLEST_CACHE { Stores::Cached } else { Stores::for_many(bytes) }
    }

    #[cold]
    fn for_many(bytes: u64) -> Stores {
        if bytes >= last_level_cache() / 2 { Stores::Streaming } else { Stores::Cached }
    }
}

/// Copies `len` bytes. When it returns, everything it stored comes before whatever the caller stores next with release
/// ordering, for other processors too.
///
/// Either range may change during the copy, or be the other one seen through another mapping: then it is undefined which of
/// the bytes arrive, and nothing else.
///
/// # Safety
/// During the call `from` is readable and `to` writable for `len` bytes, and nothing that Rust code borrows or relies on
/// lies in `to..to + len`; nothing that Rust code borrows mutably lies in `from..from + len`.
#[inline]
pub unsafe fn copy(from: u64, to: u64, len: usize, stores: Stores) {
    let from = std::ptr::with_exposed_provenance::<libc::c_void>(from as usize);
    let to = std::ptr::with_exposed_provenance_mut::<libc::c_void>(to as usize);
    match stores {
        // SAFETY: by the contract above.
        Stores::Streaming if len >= LEAST_STREAM => unsafe { stream(from.cast(), to.cast(), len) },
        // SAFETY: by the contract above. It is the C library's function, which the compiler does not look into: that other
        // processes store there meanwhile is outside of what it reasons about, as with a copy by the kernel.
        _ => unsafe {
            libc::memmove(to, from, len);
        },
    }
}

/// Shorter copies are stored through the caches in any case.
const LEAST_STREAM: usize = 512;
/// What is taken for the last-level cache where the system does not tell.
const ASSUMED_CACHE: u64 = 32 << 20;
/// Below this, caches are not worth asking for.
const SMALLEST_CACHE: u64 = 2 << 20;

/// The size in bytes of the largest cache of the first processor.
fn last_level_cache() -> u64 {
    static SIZE: OnceLock<u64> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let size = |index| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
        };
        (0..8).filter_map(size).max().unwrap_or(ASSUMED_CACHE).max(2 * SMALLEST_CACHE)
    })
}

/// # Safety
/// As [`copy`].
#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: by the contract; the processor has the instructions.
        unsafe { stream_avx(from, to, len) }
    } else {
        // SAFETY: by the contract.
        unsafe { stream_sse2(from, to, len) }
    }
}

/// # Safety
/// As [`copy`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as in `copy`.
    unsafe { libc::memmove(to.cast(), from.cast(), len) };
}

/// Streams `len` bytes, `WIDTH` at a time to aligned addresses by the macro's instructions, and the ends through the caches.
#[cfg(target_arch = "x86_64")]
macro_rules! streaming {
    ($(#[$attribute:meta])* $name:ident, $vector:ty, $load:ident, $store:ident) => {
        /// # Safety
        /// As [`copy`]; the processor has the instructions.
        $(#[$attribute])*
        unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
            use std::arch::x86_64::{$load, $store, _mm_sfence};
            const WIDTH: usize = size_of::<$vector>();
            const ROUND: usize = 4 * WIDTH;
            let head = to.align_offset(ROUND).min(len);
            let rounds = (len - head) / ROUND;
            let tail = head + rounds * ROUND;
            // SAFETY: every access lies within the two ranges of `len` bytes, and the stores of `WIDTH` are aligned to it.
            unsafe {
                libc::memmove(to.cast(), from.cast(), head);
                let (mut source, mut sink) = (from.add(head), to.add(head));
                for _ in 0..rounds {
                    let four: [$vector; 4] = std::array::from_fn(|at| $load(source.cast::<$vector>().add(at)));
                    for (at, one) in four.into_iter().enumerate() {
                        $store(sink.cast::<$vector>().add(at), one);
                    }
                    (source, sink) = (source.add(ROUND), sink.add(ROUND));
                }
                // Such stores are in no order with others until this.
                _mm_sfence();
                libc::memmove(to.add(tail).cast(), from.add(tail).cast(), len - tail);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
streaming!(
    #[target_feature(enable = "avx")]
    stream_avx,
    std::arch::x86_64::__m256i,
    _mm256_loadu_si256,
    _mm256_stream_si256
);
#[cfg(target_arch = "x86_64")]
streaming!(stream_sse2, std::arch::x86_64::__m128i, _mm_loadu_si128, _mm_stream_si128);

#[cfg(test)]
mod tests {
    use super::*;

    type Copy = unsafe fn(*const u8, *mut u8, usize);

    #[test]
    fn every_way_copies_exactly_what_it_is_told_to() {
        let mut ways: Vec<(&str, Copy)> = vec![("stream", stream as Copy)];
        #[cfg(target_arch = "x86_64")]
        ways.push(("stream_sse2", stream_sse2 as Copy));
        let from: Vec<u8> = (0..3000).map(|at| (at % 251 + 1) as u8).collect();
        for (name, way) in ways {
            for len in (0..300).chain([1000, 2048, 2900]) {
                for (source, sink) in [(0, 0), (1, 0), (0, 1), (7, 13), (64, 95)] {
                    let mut to = vec![0; 3000];
                    // SAFETY: both vectors are this test's own, and long enough.
                    unsafe { way(from.as_ptr().add(source), to.as_mut_ptr().add(sink), len) };
                    assert!(to[sink..][..len] == from[source..][..len], "{name} {len} {source} {sink}");
                    let around = to[..sink].iter().chain(&to[sink + len..]);
                    assert!(around.clone().all(|&byte| byte == 0), "{name} {len} {source} {sink}: beyond");
                }
            }
        }
    }

    #[test]
    fn both_kinds_of_stores() {
        for stores in [Stores::Cached, Stores::Streaming] {
            let (from, mut to) = (vec![7_u8; 100_000], vec![0_u8; 100_000]);
            let addr = (from.as_ptr().expose_provenance(), to.as_mut_ptr().expose_provenance());
            // SAFETY: both vectors are this test's own.
            unsafe { copy(addr.0 as u64, addr.1 as u64, 100_000, stores) };
            assert!(to == from);
        }
        assert_eq!(Stores::for_bytes(64), Stores::Cached);
        assert_eq!(Stores::for_bytes(u64::MAX), Stores::Streaming);
    }
}
