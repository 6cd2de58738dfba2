//! `host:port` text, as in segment names, host names and rpc addresses (Mooncake TE wire, naming).
//!
//! Owns the split into host and port and the way back. Does not know name resolution.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A host, as a DNS name or an IP address, with or without a port.
///
/// Text forms read: `name`, `name:port`, `1.2.3.4[:port]`, `[v6]`, `[v6]:port`, bare `v6`, and IPv6 with a zone id
/// (`fe80::1%eth0`, `fe80::1%eth0:port`, `[fe80::1%eth0]:port`). Without brackets, text that is an IPv6 address as
/// a whole is one (`fe80::1:8000` has no port); else what follows the last `:` is the port (`fe80::1:15000`).
///
/// `Display` writes `host:port`, with brackets around IPv6, and reads back as the same value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// DNS name or IP address; IPv6 without brackets, with its zone id if it has one.
    pub host: String,
    /// The port, if the text had one.
    pub port: Option<u16>,
}

impl HostPort {
    /// Joins a host and a port that are already apart. The host is taken as it is, IPv6 without brackets.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port: Some(port) }
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let fault = |reason| AddressError { text: excerpt(text), reason };
        let (host, port) = split(text).map_err(fault)?;
        check_host(host).map_err(fault)?;
        let port = port.map(parse_port).transpose().map_err(fault)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (false, None) => f.write_str(&self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (true, None) => write!(f, "[{}]", self.host),
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
        }
    }
}

/// Text that is not a host with an optional port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad address {text:?}: {reason}")]
pub struct AddressError {
    /// The text, cut to 80 characters.
    pub text: String,
    /// What is wrong with it.
    pub reason: AddressFault,
}

/// What is wrong with the text of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressFault {
    /// No host in front of the port, or no text at all.
    #[error("the host is empty")]
    EmptyHost,
    /// A `:` with nothing behind it.
    #[error("the port is empty")]
    EmptyPort,
    /// The port is not made of decimal digits.
    #[error("the port is not a number")]
    PortNotANumber,
    /// The port is above 65535.
    #[error("the port is above 65535")]
    PortTooLarge,
    /// `[` without `]`, or text between `]` and `:`.
    #[error("brackets must hold the whole IPv6 address and be followed by nothing or by :port")]
    Brackets,
    /// Several `:`, but not an IPv6 address.
    #[error("not an IPv6 address (with a port, write it as [address]:port)")]
    NotIpv6,
    /// `%` with no zone name behind it.
    #[error("the IPv6 zone id is empty")]
    EmptyZone,
    /// A character that no host name holds: white space, control characters, `/`, `[`, `]`, `%` outside IPv6.
    #[error("the host holds a character that is not allowed")]
    HostCharacter,
    /// The host is longer than 255 bytes.
    #[error("the host is longer than 255 bytes")]
    HostTooLong,
}

/// Longest host accepted, in bytes: DNS names end at 253.
const MAX_HOST: usize = 255;

fn split(text: &str) -> Result<(&str, Option<&str>), AddressFault> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(AddressFault::Brackets)?;
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or(AddressFault::Brackets)?),
        };
        return if is_ipv6(host)? { Ok((host, port)) } else { Err(AddressFault::NotIpv6) };
    }
    let Some((front, port)) = text.rsplit_once(':') else { return Ok((text, None)) };
    if !front.contains(':') {
        return Ok((front, Some(port)));
    }
    // Two or more colons: IPv6. With a zone id the colon behind the zone can only introduce a port.
    if !port.contains('%') && front.contains('%') {
        return if is_ipv6(front)? { Ok((front, Some(port))) } else { Err(AddressFault::NotIpv6) };
    }
    if is_ipv6(text)? {
        return Ok((text, None));
    }
    if is_ipv6(front)? { Ok((front, Some(port))) } else { Err(AddressFault::NotIpv6) }
}

fn is_ipv6(text: &str) -> Result<bool, AddressFault> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    match zone {
        Some("") => Err(AddressFault::EmptyZone),
        _ => Ok(address.parse::<Ipv6Addr>().is_ok()),
    }
}

fn check_host(host: &str) -> Result<(), AddressFault> {
    if host.is_empty() {
        return Err(AddressFault::EmptyHost);
    }
    if host.len() > MAX_HOST {
        return Err(AddressFault::HostTooLong);
    }
    let ipv6 = host.contains(':');
    let allowed = |c: char| match c {
        '%' => ipv6,
        '/' | '[' | ']' => false,
        _ => !c.is_whitespace() && !c.is_control(),
    };
    if host.chars().all(allowed) { Ok(()) } else { Err(AddressFault::HostCharacter) }
}

fn parse_port(text: &str) -> Result<u16, AddressFault> {
    if text.is_empty() {
        return Err(AddressFault::EmptyPort);
    }
    // `u16::from_str` alone would also take a leading `+`.
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AddressFault::PortNotANumber);
    }
    text.parse().map_err(|_| AddressFault::PortTooLarge)
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}
