//! What is thrown: messages of every kind that the ports know, whole or spoilt, and bytes that mean nothing.
//!
//! No message names the honest clients' memory but by chance: what is valid may be carried out.

use moonrail_wire::auth::HANDSHAKE_MAGIC;
use moonrail_wire::data::{DataVersion, Op, RequestHeader};
use moonrail_wire::handshake::{Kind, Message, Notify};
use moonrail_wire::rail::{self, Cancel, Hello, Range, Request, RequestKind};

use super::target::{SCRATCH, Up};
use crate::dice::Dice;

/// The ports of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    Data,
    Handshake,
    Http,
}

/// One message for `port`.
pub(super) fn throw(dice: &mut Dice, port: Port, up: &Up) -> Vec<u8> {
    let mut bytes = match port {
        _ if dice.chance(5) => noise(dice, 300),
        Port::Data if dice.chance(50) => rail_lane(dice, up),
        Port::Data => mooncake(dice, up),
        Port::Handshake => handshake(dice, up),
        Port::Http => http(dice),
    };
    // A third arrives as it was made: those reach what lies behind the decoders.
    if dice.chance(67) {
        spoil(dice, &mut bytes);
    }
    bytes
}

fn noise(dice: &mut Dice, most: u64) -> Vec<u8> {
    (0..dice.below(most)).map(|_| dice.next() as u8).collect()
}

/// A number that somebody might compute with: small, near a limit, or anything.
fn number(dice: &mut Dice) -> u64 {
    let near = dice.pick(&[0, 1, 1 << 12, 1 << 20, 1 << 31, 1 << 32, 1 << 40, 1 << 63, u64::MAX]);
    match dice.below(3) {
        0 => near.wrapping_add(dice.below(5)).wrapping_sub(2),
        1 => dice.below(70_000),
        _ => dice.next(),
    }
}

/// A range in the scratch, or one that nobody registered.
fn range(dice: &mut Dice, up: &Up, most: u64) -> Range {
    let len = if dice.chance(80) { dice.below(most) } else { number(dice) };
    let inside = up.scratch + dice.below(SCRATCH - most);
    Range { addr: if dice.chance(75) { inside } else { number(dice) }, len }
}

/// A hello, and frames behind it.
fn rail_lane(dice: &mut Dice, up: &Up) -> Vec<u8> {
    let epoch = if dice.chance(90) { up.epoch } else { number(dice) };
    let features = if dice.chance(70) { rail::FEATURES } else { number(dice) as u32 };
    let version = if dice.chance(95) { rail::VERSION } else { number(dice) as u16 };
    let mut bytes = Hello { version, features, target_epoch: epoch }.encode().to_vec();
    for _ in 0..dice.below(4) {
        match dice.below(6) {
            0 => bytes.extend(Cancel { id: dice.below(4), from: dice.below(4), epoch }.encode()),
            1 => bytes.extend(noise(dice, 128)),
            _ => frame(dice, up, epoch, &mut bytes),
        }
    }
    bytes
}

/// A request frame with its table and, for a write, as much payload as it says, or less.
fn frame(dice: &mut Dice, up: &Up, epoch: u64, bytes: &mut Vec<u8>) {
    let kind = if dice.chance(50) { RequestKind::Write } else { RequestKind::Read };
    let ranges: Vec<Range> = (0..dice.between(1, 6)).map(|_| range(dice, up, 2048)).collect();
    let sum = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.len));
    let count = if dice.chance(90) { ranges.len() as u32 } else { number(dice) as u32 };
    let payload = if dice.chance(90) { sum } else { number(dice) };
    let request = Request { kind, count, id: dice.below(8), payload, epoch, first: ranges[0] };
    bytes.extend(request.encode());
    ranges[1..].iter().for_each(|range| bytes.extend(range.encode()));
    if kind == RequestKind::Write {
        bytes.extend(vec![0x5a; dice.below(sum.min(12_000) + 1) as usize]);
    }
}

/// A request of Mooncake's data protocol, and payload.
fn mooncake(dice: &mut Dice, up: &Up) -> Vec<u8> {
    let Range { addr, len } = range(dice, up, 4096);
    let op = dice.pick(&[Op::Read, Op::Write]);
    let version = dice.pick(&[DataVersion::V1, DataVersion::V2]);
    let mut bytes = RequestHeader { size: len, addr, op, version }.encode().to_vec();
    if dice.chance(10)
        && let Some(last) = bytes.last_mut()
    {
        *last = dice.next() as u8;
    }
    bytes.extend(vec![0x5a; dice.below(len.min(8000) + 1) as usize]);
    bytes
}

fn handshake(dice: &mut Dice, up: &Up) -> Vec<u8> {
    let kind = dice.pick(&[Kind::Connection, Kind::Metadata, Kind::Notify, Kind::Probe, Kind::Untyped]);
    let body = match dice.below(7) {
        0 => b"{}\n".to_vec(),
        // The queue of notifications fills up, and refuses.
        1 => Notify { name: "hostile".to_owned(), message: "x".repeat(dice.below(500) as usize) }.to_json(),
        2 => "[".repeat(dice.below(4000) as usize).into_bytes(),
        3 => format!(
            "{{\"name\":\"{}\",\"protocol\":\"tcp\",\"buffers\":[{{\"addr\":{},\"length\":{}}}]}}",
            up.handshake,
            number(dice),
            number(dice)
        )
        .into_bytes(),
        4 => noise(dice, 400),
        5 => {
            let mut bytes = HANDSHAKE_MAGIC.to_vec();
            bytes.extend(noise(dice, 120));
            return bytes;
        }
        _ => format!("{{\"local_nic_path\":{},\"qp_num\":[{}]}}", number(dice), number(dice)).into_bytes(),
    };
    let mut bytes = Message::new(kind, body).encode();
    if dice.chance(10) {
        bytes[..8].copy_from_slice(&number(dice).to_le_bytes());
    }
    bytes
}

fn http(dice: &mut Dice) -> Vec<u8> {
    let method = dice.pick(&["GET", "PUT", "DELETE", "POST", "HEAD", "\u{0}", "GET GET"]);
    let path = dice.pick(&[
        "/metadata?key=mooncake/ram/a",
        "/metadata?key=",
        "/metadata?key=%00%ff%zz",
        "/metadata",
        "/",
        "/errors",
        "/errors/no-such",
        "/api/errors",
        "/api/errors/../../etc/passwd",
        "/errors?q=%3Cscript%3E",
        "*",
    ]);
    // Keys that only the hostile use; few, so that the store stays small.
    let path = path.replace("/a", &format!("/hostile{}", dice.below(20)));
    let body = noise(dice, 300);
    let says = if dice.chance(80) { body.len() as u64 } else { number(dice) };
    let line = dice.pick(&["HTTP/1.1", "HTTP/1.0", "HTTP/9", ""]);
    let extra = dice.pick(&[
        "",
        "Connection: close\r\n",
        "Transfer-Encoding: chunked\r\n",
        "X: \u{1}\r\n",
        "Expect: 100-continue\r\n",
    ]);
    let mut bytes =
        format!("{method} {path} {line}\r\nHost: a\r\nContent-Length: {says}\r\n{extra}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

/// Changes, drops, doubles or cuts some of the bytes.
fn spoil(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..dice.between(1, 4) {
        let Some(last) = (bytes.len() as u64).checked_sub(1) else { return };
        let at = dice.below(last + 1) as usize;
        match dice.below(5) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => bytes.truncate(at),
            3 => {
                bytes.remove(at);
            }
            _ => {
                let piece = bytes[at..bytes.len().min(at + 16)].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}
