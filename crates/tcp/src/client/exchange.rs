//! One batch on one lane, data protocol v2.
//!
//! Requests are pipelined: a v2 server serves them in order, so nothing waits for an answer before the next
//! request is sent. Answers are read all the while, or two full socket buffers would block each other; a
//! refusal also arrives before the refused payload is sent, and the server then resets the connection.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use moonrail_sys::poll::{Interest, wait};
use moonrail_transport::{Control, Failure, Opcode, Target, Work};
use moonrail_wire::data::DataVersion;

use super::failure::{self, Reached};
use super::lane::Lane;
use super::receive::{Incoming, Received};
use super::send::Outgoing;

/// Carries out `work` on `lane`; after a failure the lane is out of step and must not be used again.
pub(super) fn run(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    let mut outgoing = Outgoing::new(work, DataVersion::V2);
    let mut incoming = Incoming::new(work);
    drive(lane, target, work, control, &mut outgoing, &mut incoming)
}

/// The loop shared by all exchanges: send while there is something to send, receive until `incoming` is done.
pub(super) fn drive(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
    outgoing: &mut Outgoing<'_>,
    incoming: &mut Incoming<'_>,
) -> Result<(), Failure> {
    let mut last_progress = Instant::now();
    let mut send_error: Option<io::Error> = None;
    loop {
        let mut moved = false;
        let sending = send_error.is_none() && !outgoing.done() && outgoing.may_send(incoming.next_index());
        if sending {
            match outgoing.send(lane.as_fd()) {
                Ok(_) => moved = true,
                Err(error) if is_transient(&error) => {}
                Err(error) if is_fault(&error) => {
                    return Err(failure::fault(target, work, reached(outgoing.index(), true)));
                }
                // The peer's refusal may still be in the receive queue: read on until that ends too.
                Err(error) => send_error = Some(error),
            }
        }
        let received = incoming.receive(lane.as_fd());
        let here = reached(incoming.next_index(), outgoing.started());
        match received {
            Ok(Received::Nothing) => {}
            Ok(Received::Some) => moved = true,
            Ok(Received::Finished) if outgoing.done() => return Ok(()),
            // An answer to the last request before it was sent in full: only a refusal comes that early.
            Ok(Received::Finished) => moved = sending && moved,
            Ok(Received::End) => return Err(failure::gone(target, work, here, send_error.as_ref())),
            Ok(Received::Refused(code)) => return Err(refused(target, work, here, code)),
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
            last_progress = now;
            continue;
        }
        if let Some(stop) = (control.stop)() {
            return Err(failure::stopped(target, work, here, stop));
        }
        let Some(slice) = control.slice(now, last_progress + control.progress) else {
            return Err(failure::stalled(target, work, here, (now - last_progress).as_secs_f64()));
        };
        let want_write = send_error.is_none() && !outgoing.done() && outgoing.may_send(incoming.next_index());
        let interest = if want_write { Interest::Both } else { Interest::Read };
        wait(lane.as_fd(), interest, Some(slice))
            .map_err(|error| failure::gone(target, work, here, Some(&error)))?;
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
