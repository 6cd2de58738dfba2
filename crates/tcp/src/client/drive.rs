//! The loop that every exchange runs on: send while there is something to send, receive all the while.
//!
//! Answers are read while requests are sent, or two full socket buffers would block each other; a refusal also
//! arrives before the refused payload is out, and a Mooncake server then resets the connection.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use moonrail_sys::poll::{Interest, wait};
use moonrail_transport::{Code, Control, Failure, Stage, Stop, Target, WAIT_SLICE, Work};
use moonrail_wire::data::DataVersion;

use super::exchange::{Exchange, NO_TOKEN, PERMISSION, Received};
use super::failure::{self, Reached};
use super::lane::Lane;
use super::pipelined::Pipelined;
use super::rail::{Part, RailExchange};
use super::receive::Incoming;
use super::send::Outgoing;

/// What it can mean that no token fits.
const NO_TOKEN_FITS: &str = "the region there is only for those with a token, and none that this engine has presented covers \
                             the call: there is none of this run of the peer, or it has expired, is for another region, or \
                             does not allow this";
/// How long a call that was stopped or refused waits for the peer to say that nothing more of it will land.
const CONFIRMED: Duration = Duration::from_millis(300);
/// The same for one whose deadline has passed already.
const CONFIRMED_LATE: Duration = Duration::from_millis(50);

/// Carries out `work` on `lane`: as rail if the lane speaks it, else in data protocol v2.
pub(super) fn run(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    if lane.rail.is_some() {
        return run_rail(lane, target, work, control, None).map_err(|(failure, _)| failure);
    }
    let mut exchange = Pipelined::new(Outgoing::new(work, DataVersion::V2), Incoming::new(work));
    drive(lane, target, work, control, &mut exchange)
}

/// Carries out a part of `work`, or all of it, on a lane that speaks rail. With a failure comes the first entry of the
/// part that is not known to be applied.
pub(super) fn run_rail(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
    part: Option<Part>,
) -> Result<(), (Failure, usize)> {
    let mut rail = lane.rail.take().expect("invariant: the caller knows that the lane speaks rail");
    let mut exchange = RailExchange::new(work, &mut rail, part);
    let outcome =
        drive(lane, target, work, control, &mut exchange).map_err(|failure| (failure, exchange.next_index()));
    drop(exchange);
    lane.rail = Some(rail);
    outcome
}

/// Runs the exchange to its end. What was stopped or refused is ended in order where the exchange can and the peer
/// confirms it soon; the lane then says that it is in step. After any other failure it must be reset.
pub(super) fn drive(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
    exchange: &mut impl Exchange,
) -> Result<(), Failure> {
    let Err(ending) = pump(lane, target, work, control, exchange) else { return Ok(()) };
    let patience = match &ending {
        Ending::Failed(_) => Duration::ZERO,
        Ending::Deadline => CONFIRMED_LATE,
        Ending::Stopped(_) | Ending::Refused(_) => CONFIRMED,
    };
    let confirmed = !patience.is_zero() && exchange.cancel() && settle(lane, work, exchange, patience);
    lane.in_step = confirmed && exchange.in_step();
    let here = reached(exchange);
    let failure = match ending {
        Ending::Failed(failure) => return Err(failure),
        Ending::Refused(code) => return Err(refused(target, work, here, code)),
        Ending::Stopped(stop) => failure::stopped(target, work, here, stop),
        Ending::Deadline => failure::deadline(target, work, here, Stage::Transfer),
    };
    Err(if lane.in_step { failure::confirmed(failure) } else { failure })
}

/// Why the loop ended before the batch was through.
enum Ending {
    /// The lane is of no use any more.
    Failed(Failure),
    /// The peer refused the entry at `failing_index` with this code.
    Refused(u32),
    /// Stopped from outside.
    Stopped(Stop),
    /// The call's own deadline passed.
    Deadline,
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The loop itself.
fn pump(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
    exchange: &mut impl Exchange,
) -> Result<(), Ending> {
    let mut last_progress = Instant::now();
    let mut send_error: Option<io::Error> = None;
    // When the thread began to look for an answer, and how long it has slept since.
    let (mut looking, mut slept) = (None, Duration::ZERO);
    loop {
        let mut moved = false;
        if send_error.is_none() && !exchange.sent_all() && exchange.may_send() {
            match exchange.send(&mut lane.stream) {
                Ok(_) => moved = true,
                Err(error) if is_transient(&error) => {}
                Err(error) if is_fault(&error) => {
                    let (index, applied) = (exchange.sending_index(), applied(exchange));
                    let here = Reached { index, applied, untouched: false };
                    return Err(failure::fault(target, work, here).into());
                }
                // The peer's refusal may still be in the receive queue: read on until that ends too.
                Err(error) => send_error = Some(error),
            }
        }
        let received = exchange.receive(&mut lane.stream);
        let here = || reached(exchange);
        match received {
            Ok(Received::Finished) if exchange.sent_all() => {
                learn(lane, looking.is_some(), slept);
                return Ok(());
            }
            Ok(Received::Nothing | Received::Finished) => {}
            Ok(Received::Some) => moved = true,
            Ok(Received::End) => return Err(failure::gone(target, work, here(), send_error.as_ref()).into()),
            Ok(Received::Refused(code)) => return Err(Ending::Refused(code)),
            Ok(Received::TlsRequired) => return Err(failure::tls_required(target, work, here()).into()),
            Ok(Received::KeyRequired) => return Err(failure::key_required(target, work, here()).into()),
            Ok(Received::Restarted) => return Err(failure::restarted(target, work, here()).into()),
            Ok(Received::Malformed(bytes)) => return Err(malformed(target, work, here(), bytes).into()),
            Err(error) if is_transient(&error) => {}
            Err(error) if is_fault(&error) => return Err(failure::fault(target, work, here()).into()),
            Err(error) => return Err(failure::gone(target, work, here(), Some(&error)).into()),
        }
        let now = Instant::now();
        if control.expired(now) {
            return Err(Ending::Deadline);
        }
        moved |= lane.stream.progressed();
        if moved {
            learn(lane, looking.take().is_some(), slept);
            slept = Duration::ZERO;
            last_progress = now;
            continue;
        }
        let began = *looking.get_or_insert(now);
        let may_look = slept.is_zero() && exchange.sent_all() && exchange.nearly_done();
        if may_look && now.duration_since(began) < lane.spin.budget() {
            // The peer may need this very core.
            std::thread::yield_now();
            continue;
        }
        if let Some(stop) = (control.stop)() {
            return Err(Ending::Stopped(stop));
        }
        failure::check_revoked(target, work, here(), now - last_progress)?;
        let Some(slice) = control.slice(now, last_progress + control.progress) else {
            return Err(failure::stalled(target, work, here(), (now - last_progress).as_secs_f64()).into());
        };
        let want_write = send_error.is_none() && !exchange.sent_all() && exchange.may_send();
        let want_write = want_write || lane.stream.wants_write();
        let interest = if want_write { Interest::Both } else { Interest::Read };
        lane.stream.wake_at(exchange.worth_waking());
        wait(lane.as_fd(), interest, Some(slice))
            .map_err(|error| failure::gone(target, work, here(), Some(&error)))?;
        slept += now.elapsed();
    }
}

/// Sends and receives what is left of a cancelled exchange; true once nothing is owed any more.
fn settle(lane: &mut Lane, work: &Work<'_>, exchange: &mut impl Exchange, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    lane.stream.wake_at(1);
    // What the peer said before it closed can still be read.
    let mut broken = false;
    loop {
        let mut moved = false;
        if !broken && !exchange.sent_all() {
            match exchange.send(&mut lane.stream) {
                Ok(_) => moved = true,
                Err(error) if is_transient(&error) => {}
                Err(_) => broken = true,
            }
        }
        match exchange.receive(&mut lane.stream) {
            Ok(Received::Finished) if exchange.sent_all() => return true,
            Ok(Received::Nothing | Received::Finished) => {}
            Ok(Received::Some) => moved = true,
            Err(error) if is_transient(&error) => {}
            Ok(_) | Err(_) => return false,
        }
        let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
        if moved {
            continue;
        }
        let all_out = exchange.sent_all() && !lane.stream.wants_write();
        let interest = if broken || all_out { Interest::Read } else { Interest::Both };
        let revoked = work.holds.any_revoked();
        if revoked || wait(lane.as_fd(), interest, Some(left.min(WAIT_SLICE))).is_err() {
            return false;
        }
    }
}

/// Something came: while `looked` for, or after a sleep.
fn learn(lane: &mut Lane, looked: bool, slept: Duration) {
    match (looked, slept.is_zero()) {
        (true, true) => lane.spin.paid(),
        (true, false) => lane.spin.slept(slept),
        (false, _) => {}
    }
}

fn reached(exchange: &impl Exchange) -> Reached {
    let (index, applied) = (exchange.failing_index(), applied(exchange));
    Reached { index, applied, untouched: exchange.untouched() }
}

/// Entries of the whole batch that are known to be applied; only an exchange of all entries can tell.
fn applied(exchange: &impl Exchange) -> Option<usize> {
    exchange.whole().then(|| exchange.next_index())
}

pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

pub(super) fn is_fault(error: &io::Error) -> bool {
    moonrail_sys::errno::is_bad_address(error)
}

fn refused(target: &Target, work: &Work<'_>, here: Reached, code: u32) -> Failure {
    let (kind, message) = if code == NO_TOKEN {
        (Code::TokenRefused, NO_TOKEN_FITS.to_owned())
    } else if code == PERMISSION {
        let message = "the peer refused the write: the region there was registered to be read only";
        (Code::PermissionDenied, message.to_owned())
    } else {
        let message = format!(
            "the peer refused the request with status {code}: the range is not inside one buffer that it has registered \
             now (it may have unregistered it)"
        );
        (Code::RemoteRefused, message)
    };
    failure::failed(target, work, here, kind, Stage::Acknowledge, message)
}

fn malformed(target: &Target, work: &Work<'_>, here: Reached, bytes: [u8; 8]) -> Failure {
    let message = format!(
        "{} answered {bytes:02x?} where a status frame belongs: it is not a Mooncake data port, or it speaks v1 \
         (MC_TCP_PROTO=1)",
        failure::endpoint(target)
    );
    failure::failed(target, work, here, Code::ProtocolError, Stage::Acknowledge, message)
}
