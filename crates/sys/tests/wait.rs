//! Waiting: `poll`, the waker, `epoll`.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonrail_sys::Waker;
use moonrail_sys::poll::{Interest, Readiness, Ready, wait, wait_or_woken, wait_readable, wait_writable};
use moonrail_sys::poller::{Events, Poller};

const NOW: Option<Duration> = Some(Duration::ZERO);
const SHORT: Duration = Duration::from_millis(30);

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

#[test]
fn a_wait_ends_with_the_timeout() {
    let (here, _there) = pair();
    let began = Instant::now();
    assert_eq!(wait_readable(&here, Some(SHORT)).unwrap(), Ready::TimedOut);
    assert!(began.elapsed() >= SHORT);
    assert_eq!(wait_readable(&here, NOW).unwrap(), Ready::TimedOut);
    assert_eq!(wait(&here, Interest::None, NOW).unwrap(), Ready::TimedOut);
}

#[test]
fn readiness_is_told_by_kind() {
    let (here, mut there) = pair();
    let writable = Ready::Ready(Readiness { writable: true, ..Readiness::default() });
    assert_eq!(wait_writable(&here, None).unwrap(), writable);
    assert_eq!(wait(&here, Interest::Both, None).unwrap(), writable);
    there.write_all(b"x").unwrap();
    let readable = Ready::Ready(Readiness { readable: true, ..Readiness::default() });
    assert_eq!(wait_readable(&here, None).unwrap(), readable);
    // No timeout is too long for the kernel.
    assert_eq!(wait_readable(&here, Some(Duration::MAX)).unwrap(), readable);
    drop(there);
    let Ready::Ready(seen) = wait(&here, Interest::None, None).unwrap() else {
        panic!("a hang-up is reported")
    };
    assert!(seen.closed && seen.readable);
}

#[test]
fn a_closed_half_is_readable_and_closed() {
    let (here, there) = pair();
    there.shutdown(std::net::Shutdown::Write).unwrap();
    let seen = wait_readable(&here, None).unwrap();
    assert_eq!(seen, Ready::Ready(Readiness { readable: true, writable: false, closed: true }));
}

#[test]
fn a_waker_ends_a_wait_and_wins() {
    let (here, mut there) = pair();
    let waker = Waker::new().unwrap();
    assert_eq!(wait_or_woken(&here, Interest::Read, &waker, NOW).unwrap(), Ready::TimedOut);
    there.write_all(b"x").unwrap();
    let readable = Ready::Ready(Readiness { readable: true, ..Readiness::default() });
    assert_eq!(wait_or_woken(&here, Interest::Read, &waker, None).unwrap(), readable);
    waker.wake();
    waker.wake();
    assert_eq!(wait_or_woken(&here, Interest::Read, &waker, None).unwrap(), Ready::Woken);
    assert_eq!(wait_or_woken(&here, Interest::Read, &waker, None).unwrap(), Ready::Woken, "until drained");
    assert!(waker.drain());
    assert!(!waker.drain(), "two wakes are one");
    assert_eq!(wait_or_woken(&here, Interest::Read, &waker, None).unwrap(), readable);
}

#[test]
fn a_waker_works_across_threads() {
    let (here, _there) = pair();
    let waker = Waker::new().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait_or_woken(&here, Interest::Read, &waker, None));
        std::thread::sleep(SHORT);
        waker.wake();
        assert_eq!(waiting.join().unwrap().unwrap(), Ready::Woken);
    });
}

#[test]
fn a_signal_interrupts_a_wait() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a zeroed sigaction is valid; the handler does nothing. SA_RESTART is set, as a library cannot rely on
    // its absence.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    static DONE: AtomicBool = AtomicBool::new(false);
    let (here, _there) = pair();
    let waiting = std::thread::spawn(move || {
        let ended = wait_readable(&here, Some(Duration::from_secs(20)));
        DONE.store(true, Ordering::SeqCst);
        ended
    });
    while !DONE.load(Ordering::SeqCst) {
        // SAFETY: the thread is not joined yet, so its handle is valid.
        unsafe { libc::pthread_kill(waiting.as_pthread_t(), libc::SIGUSR2) };
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(waiting.join().unwrap().unwrap(), Ready::Interrupted);
}

#[test]
fn a_poller_tells_tokens_apart() {
    let poller = Poller::new().unwrap();
    let mut events = Events::with_capacity(8);
    let (a, mut to_a) = pair();
    let (b, mut to_b) = pair();
    poller.add(&a, u64::MAX, Interest::Read).unwrap();
    poller.add(&b, 2, Interest::Read).unwrap();
    assert_eq!(poller.add(&b, 3, Interest::Read).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    to_a.write_all(b"x").unwrap();
    assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
    let event = events.iter().next().unwrap();
    assert_eq!((event.token, event.readiness.readable, event.readiness.closed), (u64::MAX, true, false));
    assert_eq!(poller.wait(&mut events, None).unwrap(), 1, "level-triggered");

    poller.modify(&a, 7, Interest::Write).unwrap();
    poller.wait(&mut events, None).unwrap();
    let event = events.iter().next().unwrap();
    assert_eq!((event.token, event.readiness.readable, event.readiness.writable), (7, false, true));

    poller.modify(&a, 7, Interest::None).unwrap();
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    to_b.write_all(b"x").unwrap();
    assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
    poller.remove(&b).unwrap();
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    assert_eq!(poller.remove(&b).unwrap_err().kind(), std::io::ErrorKind::NotFound);

    drop(to_a);
    poller.wait(&mut events, None).unwrap();
    assert!(events.iter().next().unwrap().readiness.closed, "a hang-up needs no interest");
}

#[test]
fn a_poller_reports_the_rest_next_time() {
    let poller = Poller::new().unwrap();
    let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
    for (token, (here, _)) in pairs.iter().enumerate() {
        poller.add(here.as_fd(), token as u64, Interest::Write).unwrap();
    }
    let mut events = Events::with_capacity(6);
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < pairs.len() {
        assert!(poller.wait(&mut events, None).unwrap() <= 6);
        for event in events.iter() {
            assert!(seen.insert(event.token), "each once");
            poller.remove(&pairs[event.token as usize].0).unwrap();
        }
    }
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
}

#[test]
fn a_waker_wakes_a_poller() {
    let poller = Poller::new().unwrap();
    let waker = Waker::new().unwrap();
    poller.add(&waker, 9, Interest::Read).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut events = Events::with_capacity(1);
            poller.wait(&mut events, None).unwrap();
            events.iter().next().map(|event| event.token)
        });
        std::thread::sleep(SHORT);
        waker.wake();
        assert_eq!(waiting.join().unwrap(), Some(9));
    });
}
