//! Which host, which namespaces and which user this process is in.
//!
//! Owns the reading of `/proc`. It must not know who compares the answers.

use std::io;
use std::os::linux::fs::MetadataExt;

/// The kinds of namespace that matter to processes which want to reach each other's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Namespace {
    /// Process numbers.
    Pid,
    /// User ids and capabilities.
    User,
    /// Networks, and with them abstract sockets.
    Network,
}

/// A number that changes with each boot of the kernel: 128 bits in hex with dashes.
///
/// # Errors
/// `/proc` is not mounted or hides it.
pub fn boot_id() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let id = text.trim();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the boot id is no id"));
    }
    Ok(id.to_owned())
}

/// The number of this process's namespace: equal for two processes of one boot only if they share it.
///
/// # Errors
/// `/proc` is not mounted or hides it.
pub fn namespace(kind: Namespace) -> io::Result<u64> {
    let path = match kind {
        Namespace::Pid => "/proc/self/ns/pid",
        Namespace::User => "/proc/self/ns/user",
        Namespace::Network => "/proc/self/ns/net",
    };
    Ok(std::fs::metadata(path)?.st_ino())
}

/// The effective user id of this process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// `kernel.yama.ptrace_scope`, where that security module is built in: above 0 it forbids copies between processes
/// that are not parent and child.
pub fn ptrace_scope() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Memory and swap space of the machine in bytes, used or not.
pub fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_add(info.totalswap).saturating_mul(u64::from(info.mem_unit))
}

/// Whether this process has CAP_SYS_PTRACE, which `ptrace_scope` up to 2 does not hold back.
pub fn may_trace() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_SYS_PTRACE != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_stay_the_same() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        for kind in [Namespace::Pid, Namespace::User, Namespace::Network] {
            assert!(namespace(kind).unwrap() != 0);
            assert_eq!(namespace(kind).unwrap(), namespace(kind).unwrap());
        }
    }
}
