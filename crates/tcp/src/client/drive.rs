//! The loop that every exchange runs on: send while there is something to send, receive all the while.
//!
//! Answers are read while requests are sent, or two full socket buffers would block each other; a refusal also
//! arrives before the refused payload is out, and a Mooncake server then resets the connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use moonrail_sys::poll::{Interest, wait};
use moonrail_transport::{Control, Failure, Opcode, Target, Work};
use moonrail_wire::data::DataVersion;

use super::exchange::{Exchange, Received};
use super::failure::{self, Reached};
use super::lane::Lane;
use super::rail::RailExchange;
use super::receive::Incoming;
use super::send::Outgoing;

/// Mooncake's data protocol: requests pipelined, since its server serves them in order.
pub(super) struct Pipelined<'a> {
    pub outgoing: Outgoing<'a>,
    pub incoming: Incoming<'a>,
}

impl Exchange for Pipelined<'_> {
    fn sent_all(&self) -> bool {
        self.outgoing.done()
    }

    fn may_send(&self) -> bool {
        self.outgoing.may_send(self.incoming.next_index())
    }

    fn started(&self) -> bool {
        self.outgoing.started()
    }

    fn sending_index(&self) -> usize {
        self.outgoing.index()
    }

    fn next_index(&self) -> usize {
        self.incoming.next_index()
    }

    fn in_step(&self) -> bool {
        false
    }

    fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.outgoing.send(fd)
    }

    fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<Received> {
        self.incoming.receive(fd)
    }
}

/// Carries out `work` on `lane`, as rail if the lane speaks it, else in data protocol v2.
pub(super) fn run(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    let Some(mut rail) = lane.rail.take() else {
        let outgoing = Outgoing::new(work, DataVersion::V2);
        return drive(
            lane,
            target,
            work,
            control,
            &mut Pipelined { outgoing, incoming: Incoming::new(work) },
        );
    };
    let mut exchange = RailExchange::new(work, &mut rail);
    let outcome = drive(lane, target, work, control, &mut exchange);
    lane.in_step = outcome.is_err() && exchange.in_step();
    lane.rail = Some(rail);
    outcome
}

/// The loop. After a failure the lane is out of step, unless the exchange says otherwise.
pub(super) fn drive(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
    exchange: &mut impl Exchange,
) -> Result<(), Failure> {
    let mut last_progress = Instant::now();
    let mut send_error: Option<io::Error> = None;
    // When the thread began to look for an answer, and how long it has slept since.
    let (mut looking, mut slept) = (None, Duration::ZERO);
    loop {
        let mut moved = false;
        if send_error.is_none() && !exchange.sent_all() && exchange.may_send() {
            match exchange.send(lane.as_fd()) {
                Ok(_) => moved = true,
                Err(error) if is_transient(&error) => {}
                Err(error) if is_fault(&error) => {
                    return Err(failure::fault(target, work, reached(exchange.sending_index(), true)));
                }
                // The peer's refusal may still be in the receive queue: read on until that ends too.
                Err(error) => send_error = Some(error),
            }
        }
        let received = exchange.receive(lane.as_fd());
        let here = reached(exchange.next_index(), exchange.started());
        match received {
            Ok(Received::Finished) if exchange.sent_all() => {
                learn(lane, looking.is_some(), slept);
                return Ok(());
            }
            Ok(Received::Nothing | Received::Finished) => {}
            Ok(Received::Some) => moved = true,
            Ok(Received::End) => return Err(failure::gone(target, work, here, send_error.as_ref())),
            Ok(Received::Refused(code)) => return Err(refused(target, work, here, code)),
            Ok(Received::Restarted) => return Err(failure::restarted(target, work, here)),
            Ok(Received::Malformed(bytes)) => return Err(malformed(target, work, here, bytes)),
            Err(error) if is_transient(&error) => {}
            Err(error) if is_fault(&error) => return Err(failure::fault(target, work, here)),
            Err(error) => return Err(failure::gone(target, work, here, Some(&error))),
        }
        let now = Instant::now();
        if control.expired(now) {
            return Err(failure::deadline(target, work, here, moonrail_transport::Stage::Transfer));
        }
        if moved {
            learn(lane, looking.take().is_some(), slept);
            slept = Duration::ZERO;
            last_progress = now;
            continue;
        }
        let began = *looking.get_or_insert(now);
        if slept.is_zero() && exchange.sent_all() && now.duration_since(began) < lane.spin.budget() {
            // The peer may need this very core.
            std::thread::yield_now();
            continue;
        }
        if let Some(stop) = (control.stop)() {
            return Err(failure::stopped(target, work, here, stop));
        }
        failure::check_revoked(target, work, here, now - last_progress)?;
        let Some(slice) = control.slice(now, last_progress + control.progress) else {
            return Err(failure::stalled(target, work, here, (now - last_progress).as_secs_f64()));
        };
        let want_write = send_error.is_none() && !exchange.sent_all() && exchange.may_send();
        let interest = if want_write { Interest::Both } else { Interest::Read };
        wait(lane.as_fd(), interest, Some(slice))
            .map_err(|error| failure::gone(target, work, here, Some(&error)))?;
        slept += now.elapsed();
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

fn reached(index: usize, started: bool) -> Reached {
    Reached { index, started }
}

pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

pub(super) fn is_fault(error: &io::Error) -> bool {
    moonrail_sys::errno::is_bad_address(error)
}

fn refused(target: &Target, work: &Work<'_>, here: Reached, code: u32) -> Failure {
    use moonrail_transport::{Code, Stage};
    let message = format!(
        "the peer refused the request with status {code}: the range is not inside one buffer that it has registered now \
         (it may have unregistered it)"
    );
    // A refused request was not applied, and nothing behind it in the pipeline is served.
    let mut failure = failure::failed(target, work, here, Code::RemoteRefused, Stage::Acknowledge, message);
    failure.untouched = here.index == 0 || work.opcode == Opcode::Read;
    failure
}

fn malformed(target: &Target, work: &Work<'_>, here: Reached, bytes: [u8; 8]) -> Failure {
    use moonrail_transport::{Code, Stage};
    let message = format!(
        "{} answered {bytes:02x?} where a status frame belongs: it is not a Mooncake data port, or it speaks v1 \
         (MC_TCP_PROTO=1)",
        failure::endpoint(target)
    );
    failure::failed(target, work, here, Code::ProtocolError, Stage::Acknowledge, message)
}
