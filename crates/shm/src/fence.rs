//! The order of accesses that makes unregistering a fence for copies by other processes: docs/same-host.md, "The fence".
//!
//! Owns the orderings, over any atomic word, so that the model test runs this very code. Must not know what is copied.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::layout::entry;

/// An atomic word: the one in shared memory, or the model's.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// The initiator says that copies within `low..high` may be going on from now on, checked against `version` of the mirror or
/// a later one. A version that is loaded behind this call is one whose fence sees the entry, or newer.
#[inline]
pub(crate) fn enter<W: Word>(words: &[W], low: u64, high: u64, version: u64) {
    // Release: whoever sees these has seen the end of the entry's last use.
    words[entry::LOW].store(low, Ordering::Release);
    words[entry::HIGH].store(high, Ordering::Release);
    words[entry::STATE].store(version << 1 | 1, Ordering::Release);
    W::fence(Ordering::SeqCst);
}

/// The initiator's copies are over; `state` is the entry's.
#[inline]
pub(crate) fn leave<W: Word>(state: &W) {
    state.store(0, Ordering::Release);
}

/// The target publishes a version, after what has changed.
pub(crate) fn publish<W: Word>(word: &W, version: u64) {
    word.store(version, Ordering::SeqCst);
}

/// Between publishing a version and looking at entries: what is loaded behind this shows every entry whose initiator has
/// not seen the version.
pub(crate) fn before_looking<W: Word>() {
    W::fence(Ordering::SeqCst);
}

/// The target looks at an entry: bounds of the copies that may be going on there, checked before `version` was published.
pub(crate) fn in_the_way<W: Word>(words: &[W], version: u64) -> Option<(u64, u64)> {
    let state = words[entry::STATE].load(Ordering::Acquire);
    if state & 1 == 0 || state >> 1 >= version {
        return None;
    }
    // In this order: docs/same-host.md, "The fence".
    let low = words[entry::LOW].load(Ordering::Acquire);
    let high = words[entry::HIGH].load(Ordering::Acquire);
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic as model;
    use loom::thread;

    use super::*;

    impl Word for model::AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            model::AtomicU64::load(self, order)
        }

        fn store(&self, value: u64, order: Ordering) {
            model::AtomicU64::store(self, value, order);
        }

        fn fence(order: Ordering) {
            model::fence(order);
        }
    }

    /// A word whose fences do nothing.
    struct Unfenced(model::AtomicU64);

    impl Word for Unfenced {
        fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
        }

        fn fence(_: Ordering) {}
    }

    /// One entry, the mirror's version, one region's key in it, and the region's memory.
    struct Shared<W> {
        entry: [W; 3],
        version: W,
        key: W,
        memory: UnsafeCell<u64>,
    }

    impl<W: Word> Shared<W> {
        fn new(word: fn(u64) -> W) -> Self {
            let entry = [word(0), word(0), word(0)];
            Self { entry, version: word(1), key: word(7), memory: UnsafeCell::new(0) }
        }

        /// As `Worker::piece`: enters, looks at the mirror as it is now, copies what is listed, leaves.
        fn copy(&self) {
            let version = self.version.load(Ordering::Acquire);
            enter(&self.entry, 16, 24, version);
            self.version.load(Ordering::Acquire);
            if self.key.load(Ordering::Acquire) != 0 {
                // Loom ends the test where another thread is at the memory too.
                self.memory.with_mut(|_| ());
            }
            leave(&self.entry[entry::STATE]);
        }

        /// As `Mirror::delist` and `Initiators::fence`; then the memory is somebody else's.
        fn unregister(&self) {
            self.key.store(0, Ordering::Release);
            publish(&self.version, 2);
            before_looking::<W>();
            while let Some((low, high)) = in_the_way(&self.entry, 2) {
                // Bounds that are not the copy's would let a fence pass it by.
                assert!(low == 16 && high == 24, "{low}..{high}");
                thread::yield_now();
            }
            self.memory.with_mut(|_| ());
        }
    }

    fn explore<W: Word + 'static>(word: fn(u64) -> W) {
        loom::model(move || {
            let shared = Arc::new(Shared::new(word));
            let other = Arc::clone(&shared);
            let initiator = thread::spawn(move || other.copy());
            shared.unregister();
            initiator.join().expect("it does not panic");
        });
    }

    #[test]
    fn behind_an_unregister_no_copy_is_going_on_in_any_interleaving() {
        explore(model::AtomicU64::new);
    }

    #[test]
    #[should_panic(expected = "Concurrent")]
    fn without_the_fences_the_model_finds_a_copy_that_is_going_on() {
        explore(|value| Unfenced(model::AtomicU64::new(value)));
    }
}
