//! What a target says of itself, so that others on its host find it.
//!
//! Owns the text form. It must not know where the text is published.

use std::fmt;
use std::io;
use std::str::FromStr;

use moonrail_sys::host::{self, Namespace};

/// Longest text that is looked at.
const MAX_LEN: usize = 512;
const FORMAT: &str = "moonrail-shm/1";

/// Where one [`ShmServer`](crate::ShmServer) is reached, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShmContact {
    /// The host, or rather its run of the kernel.
    pub boot_id: String,
    /// The process, by its number in its own namespace.
    pub pid: u32,
    /// The namespace of that number.
    pub pid_namespace: u64,
    /// The namespace of its user id.
    pub user_namespace: u64,
    /// The namespace of its socket.
    pub network_namespace: u64,
    /// Name of its socket in the abstract name space.
    pub socket: String,
    /// What stands in its memory: proves that it was reached, and not another process.
    pub nonce: [u64; 2],
}

/// A text that is no contact, or one of a later format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a same-host contact that this release understands: {0}")]
pub struct BadContact(&'static str);

impl ShmContact {
    /// The contact of a server in this process.
    pub(crate) fn of_this_process(socket: String, nonce: [u64; 2]) -> io::Result<Self> {
        Ok(Self {
            boot_id: host::boot_id()?,
            pid: std::process::id(),
            pid_namespace: host::namespace(Namespace::Pid)?,
            user_namespace: host::namespace(Namespace::User)?,
            network_namespace: host::namespace(Namespace::Network)?,
            socket,
            nonce,
        })
    }
}

impl fmt::Display for ShmContact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { boot_id, pid, pid_namespace, user_namespace, network_namespace, socket, nonce } = self;
        write!(
            f,
            "{FORMAT} boot={boot_id} pid={pid} pidns={pid_namespace} userns={user_namespace} \
             netns={network_namespace} socket={socket} nonce={:016x}{:016x}",
            nonce[0], nonce[1]
        )
    }
}

impl FromStr for ShmContact {
    type Err = BadContact;

    /// Unknown keys are skipped, so that a later release may say more.
    fn from_str(text: &str) -> Result<Self, BadContact> {
        if text.len() > MAX_LEN {
            return Err(BadContact("it is too long"));
        }
        let mut words = text.split(' ');
        if words.next() != Some(FORMAT) {
            return Err(BadContact("another format"));
        }
        let pairs: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let find = |key| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let number = |key| find(key).and_then(|value| value.parse::<u64>().ok());
        let id =
            |key| find(key).filter(|value| !value.is_empty() && value.bytes().all(is_id)).map(str::to_owned);
        let nonce = find("nonce").filter(|hex| hex.len() == 32 && hex.is_ascii());
        let half = |range| u64::from_str_radix(nonce.and_then(|hex| hex.get(range))?, 16).ok();
        Ok(Self {
            boot_id: id("boot").ok_or(BadContact("no boot id"))?,
            pid: number("pid")
                .and_then(|pid| u32::try_from(pid).ok())
                .filter(|&pid| pid > 0 && pid <= i32::MAX as u32)
                .ok_or(BadContact("no process"))?,
            pid_namespace: number("pidns").ok_or(BadContact("no pid namespace"))?,
            user_namespace: number("userns").ok_or(BadContact("no user namespace"))?,
            network_namespace: number("netns").ok_or(BadContact("no network namespace"))?,
            socket: id("socket").filter(|name| name.len() < 100).ok_or(BadContact("no socket"))?,
            nonce: half(0..16).zip(half(16..32)).map(|(a, b)| [a, b]).ok_or(BadContact("no nonce"))?,
        })
    }
}

fn is_id(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_survives_its_text() {
        let contact = ShmContact::of_this_process("moonrail-0af3".to_owned(), [u64::MAX, 7]).unwrap();
        assert_eq!(contact.to_string().parse::<ShmContact>().unwrap(), contact);
        let later = format!("{contact} more=things");
        assert_eq!(later.parse::<ShmContact>().unwrap(), contact);
    }

    #[test]
    fn other_texts_are_refused() {
        let good = ShmContact::of_this_process("moonrail-0af3".to_owned(), [1, 2]).unwrap().to_string();
        let pid = format!("pid={} ", std::process::id());
        for bad in [
            String::new(),
            good.replace("shm/1", "shm/2"),
            good.replace(&pid, "pid=0 "),
            good.replace(&pid, "pid=4294967297 "),
            good.replace("socket=moonrail-0af3", "socket=../x"),
            good.replace("nonce=", "nonce=+"),
            good.replace("nonce=", "nonce=é"),
            good[..good.len() - 1].to_owned(),
            format!("{good} {}", "x".repeat(MAX_LEN)),
        ] {
            assert!(bad.parse::<ShmContact>().is_err(), "{bad}");
        }
    }
}
