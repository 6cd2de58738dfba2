//! Peers that speak data protocol v1: releases up to 0.3.11, or any release told to (`MC_TCP_PROTO=1`).
//!
//! A v1 write has no answer, so "sent" is not "applied". What confirms it depends on the release line:
//! up to 0.3.9 the server closes the connection after each request, and an orderly end of file once it has
//! taken every byte means the payload was stored; from 0.3.10 it keeps the connection and serves in order, so
//! the answer to a read of the last written byte, sent right behind the write, is the confirmation. Which rule
//! holds is learnt once with two one-byte reads. Neither line checks addresses: the engine has checked the
//! range against a descriptor fetched for this very call.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use moonrail_memory::io::HeldIov;
use moonrail_sys::poll::{Interest, wait};
use moonrail_transport::{Code, Control, Failure, Opcode, Stage, Target, Work};
use moonrail_wire::data::{DataVersion, HEADER_LEN, Op, RequestHeader};

use super::drive::{drive, is_fault, is_transient};
use super::failure::{self, Reached, failed};
use super::lane::Lane;
use super::pipelined::Pipelined;
use super::pool::{ClosingRule, Pool};
use super::receive::Incoming;
use super::send::Outgoing;

pub(super) fn execute(
    pool: &Arc<Pool>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    let rule = match pool.rule() {
        ClosingRule::Unknown => learn(pool, target, work, control)?,
        known => known,
    };
    match rule {
        ClosingRule::KeepsOpen => on_one_connection(pool, target, work, control),
        ClosingRule::ClosesEach | ClosingRule::Unknown => one_connection_each(pool, target, work, control),
    }
}

/// Two one-byte reads of the batch's first remote byte on one connection: is the second one answered?
fn learn(
    pool: &Arc<Pool>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<ClosingRule, Failure> {
    let Some(first) = work.entries.iter().find(|entry| entry.len > 0) else {
        return Ok(ClosingRule::Unknown);
    };
    // A connection that breaks just then looks like one that is closed by rule: only two in a row are believed.
    let keeps =
        keeps_open(first.remote, target, work, control)? || keeps_open(first.remote, target, work, control)?;
    let rule = if keeps { ClosingRule::KeepsOpen } else { ClosingRule::ClosesEach };
    pool.learn_rule(rule);
    Ok(rule)
}

fn keeps_open(remote: u64, target: &Target, work: &Work<'_>, control: &Control<'_>) -> Result<bool, Failure> {
    let mut lane = Lane::connect(target, work, control)?;
    let header = read_header(remote);
    let byte = |lane: &mut Lane| -> Result<bool, Failure> {
        match send_all(lane, &header, target, work, Reached::NOTHING, control)? {
            Ended::Yes => return Ok(false),
            Ended::No => {}
        }
        receive_byte(lane, target, work, Reached::NOTHING, control)
    };
    if !byte(&mut lane)? {
        return Err(failure::gone(target, work, Reached::NOTHING, None));
    }
    byte(&mut lane)
}

fn on_one_connection(
    pool: &Arc<Pool>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    // A v1 lane is never trusted idle: what a dead one swallowed could not be told from what it applied.
    let mut lane = Lane::connect(target, work, control)?;
    let count = work.entries.len();
    let mut outgoing = Outgoing::new(work, DataVersion::V1);
    if work.opcode == Opcode::Read {
        let incoming = Incoming::payload_only(work, 0, count);
        drive(&mut lane, target, work, control, &mut Pipelined::new(outgoing, incoming))?;
        return Ok(());
    }
    // Nothing that was sent is known to be applied before the read behind it is answered.
    send_writes(&mut lane, target, work, control, &mut outgoing, 0)?;
    let reached = Reached { index: 0, applied: Some(0), untouched: false };
    let Some(last) = work.entries.iter().rfind(|entry| entry.len > 0) else { return Ok(()) };
    let header = read_header(last.remote + (last.len - 1));
    let confirmed = match send_all(&mut lane, &header, target, work, reached, control)? {
        Ended::Yes => false,
        Ended::No => receive_byte(&mut lane, target, work, reached, control)?,
    };
    if confirmed {
        return Ok(());
    }
    // The peer may have been replaced by an older release behind the same port: learn again next time.
    pool.learn_rule(ClosingRule::Unknown);
    Err(unconfirmed(
        target,
        work,
        reached,
        "it closed the connection instead of answering a read behind the write",
    ))
}

fn one_connection_each(
    pool: &Arc<Pool>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    for index in 0..work.entries.len() {
        if work.entries[index].len == 0 {
            continue;
        }
        let mut lane = Lane::connect(target, work, control).map_err(|mut failure| {
            failure.untouched &= index == 0;
            failure
        })?;
        let mut outgoing = Outgoing::range(work, DataVersion::V1, index, index + 1);
        if work.opcode == Opcode::Read {
            let incoming = Incoming::payload_only(work, index, index + 1);
            drive(&mut lane, target, work, control, &mut Pipelined::new(outgoing, incoming))?;
            continue;
        }
        let reached = Reached { index, applied: Some(index), untouched: false };
        send_writes(&mut lane, target, work, control, &mut outgoing, index)?;
        let answered = receive_byte(&mut lane, target, work, reached, control)
            .inspect_err(|_| pool.learn_rule(ClosingRule::Unknown))?;
        if answered {
            let message =
                "the peer answered a write with a byte: it does not speak data protocol v1".to_owned();
            return Err(failed(target, work, reached, Code::ProtocolError, Stage::Acknowledge, message));
        }
        if lane.stream.unsent_bytes().unwrap_or(1) != 0 {
            pool.learn_rule(ClosingRule::Unknown);
            return Err(unconfirmed(
                target,
                work,
                reached,
                "it closed the connection before it took every byte",
            ));
        }
    }
    Ok(())
}

/// Sends headers and payload; a v1 server says nothing while it takes them, so any byte or end is a failure. The first
/// `applied` entries were confirmed before.
fn send_writes(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
    outgoing: &mut Outgoing<'_>,
    applied: usize,
) -> Result<(), Failure> {
    let mut clock = Progress::new();
    while !outgoing.done() {
        let reached =
            Reached { index: outgoing.index(), applied: Some(applied), untouched: !outgoing.started() };
        match outgoing.send(&mut lane.stream) {
            Ok(_) => clock.moved(),
            Err(error) if is_transient(&error) => {
                clock.wait(lane, Interest::Write, target, work, reached, control)?
            }
            Err(error) if is_fault(&error) => return Err(failure::fault(target, work, reached)),
            Err(error) => return Err(failure::gone(target, work, reached, Some(&error))),
        }
    }
    Ok(())
}

enum Ended {
    No,
    Yes,
}

fn send_all(
    lane: &mut Lane,
    bytes: &[u8],
    target: &Target,
    work: &Work<'_>,
    reached: Reached,
    control: &Control<'_>,
) -> Result<Ended, Failure> {
    let mut clock = Progress::new();
    let mut sent = 0;
    while sent < bytes.len() {
        let mut iov = HeldIov::new();
        iov.push_bytes(&bytes[sent..]);
        match lane.stream.send(&iov) {
            Ok(n) => sent += n,
            Err(error) if is_transient(&error) => {
                clock.wait(lane, Interest::Write, target, work, reached, control)?
            }
            Err(_) => return Ok(Ended::Yes),
        }
    }
    Ok(Ended::No)
}

/// Waits for one byte: true when it came, false when the connection ended in order or by reset.
///
/// # Errors
/// Only for limits: deadline, progress, stop. A reset after an unanswered write is reported as a failure by
/// the caller's rule; here a reset while a write awaits its end of file is one.
fn receive_byte(
    lane: &mut Lane,
    target: &Target,
    work: &Work<'_>,
    reached: Reached,
    control: &Control<'_>,
) -> Result<bool, Failure> {
    let mut clock = Progress::new();
    loop {
        let mut byte = [0u8; 1];
        match lane.stream.receive_bytes(&mut byte) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(error) if is_transient(&error) => {
                clock.wait(lane, Interest::Read, target, work, reached, control)?
            }
            Err(error) if !reached.untouched => {
                return Err(failure::gone(target, work, reached, Some(&error)));
            }
            Err(_) => return Ok(false),
        }
    }
}

/// When the last byte moved, and the wait for the next one.
struct Progress {
    last: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { last: Instant::now() }
    }

    fn moved(&mut self) {
        self.last = Instant::now();
    }

    fn wait(
        &mut self,
        lane: &mut Lane,
        interest: Interest,
        target: &Target,
        work: &Work<'_>,
        reached: Reached,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        if let Some(stop) = (control.stop)() {
            return Err(failure::stopped(target, work, reached, stop));
        }
        let now = Instant::now();
        if control.expired(now) {
            return Err(failure::deadline(target, work, reached, Stage::Transfer));
        }
        failure::check_revoked(target, work, reached, now - self.last)?;
        let Some(slice) = control.slice(now, self.last + control.progress) else {
            return Err(failure::stalled(target, work, reached, (now - self.last).as_secs_f64()));
        };
        lane.stream.wake_at(1);
        wait(lane.as_fd(), interest, Some(slice))
            .map(drop)
            .map_err(|error| failure::gone(target, work, reached, Some(&error)))
    }
}

fn read_header(addr: u64) -> [u8; HEADER_LEN] {
    RequestHeader { size: 1, addr, op: Op::Read, version: DataVersion::V1 }.encode()
}

fn unconfirmed(target: &Target, work: &Work<'_>, reached: Reached, why: &str) -> Failure {
    let message = format!("the write cannot be confirmed by a peer that speaks data protocol v1: {why}");
    failed(target, work, reached, Code::Unconfirmed, Stage::Acknowledge, message)
}
